"""Ranks of several hosts train with the rows of their host's devices alone: to the bit as with all rows."""

import json
import re

import numpy as np
import pytest

import taskflow
from taskflow import Batches, CostModel, MachineModel, Plan
from taskflow.comm.transport import connect
from taskflow.core.system import world_size
from taskflow.lowering import Lowering
from taskflow.train import trainer as trainers
from tests import kept
from tests.ways import on_hosts

SIZE = world_size()
DEVICES = 2 * SIZE


def sharded(graph, machine):
    """Homes on all devices."""
    homes = [r.name for r in graph.parameters if r.role == "parameter"]
    changed = Plan(taskflow.single_device(graph, machine), homes=homes).transform(graph)
    return Plan(taskflow.fully_sharded(changed, machine), homes=homes)


def staged(graph, machine):
    """Two micro-batches a stage."""
    return taskflow.stages(graph, machine, SIZE, 2)


def at_random(graph, machine):
    """Any splits and devices."""
    return taskflow.random_strategy(graph, machine, 3)


CASES = {
    "data": (taskflow.data_parallel, None),
    "model": (taskflow.model_parallel, None),
    "random": (at_random, None),
    "homes": (sharded, None),
    "in order": (taskflow.data_parallel, "critical_path"),
    "pipeline": (staged, "one_f_one_b"),
    "searched": (staged, "searched"),
}


def plain_network(training=True, batch=4 * DEVICES):
    """Without batch norm, which needs all micro-batches at once."""
    graph = taskflow.Graph()
    h = graph.input("x", (batch, 8))
    for k in range(SIZE):
        h = kept.ops.relu(kept.ops.linear(h, 8, name=f"fc{k}"))
    loss = kept.ops.softmax_cross_entropy(h, graph.input("t", (batch,), "int32"), name="loss")
    graph.output("loss", loss)
    if training:
        kept.ops.adam(loss, 0.01)
    return graph


def batches(samples):
    random = np.random.default_rng(1)
    x = random.standard_normal((samples, 8)).astype(np.float32)
    return Batches({"x": x, "t": random.integers(0, 8, samples).astype(np.int32)}, 4 * DEVICES)


def trained(rule, order, is_own, check=True, costs=CostModel.analytic):
    """A trainer after two epochs on two hosts: what it has seen, and the bits of all regions."""
    machine = MachineModel.uniform(DEVICES)
    with pytest.MonkeyPatch.context() as patch:
        on_hosts(patch, min(2, SIZE))
        if not is_own:
            patch.setattr(trainers, "has_own_rows", lambda *about: False)
        trainer = taskflow.Trainer(
            plain_network(),
            machine=machine,
            strategy=rule,
            costs=costs(machine),
            quiet=True,
            check=check,
            order=order,
        )
        validation = plain_network(False), batches(8 * DEVICES)
        history = trainer.fit(
            batches(10 * DEVICES),
            2,
            validation,
            resized=lambda samples: plain_network(batch=samples),
        )
        seen = history.outputs, history.validation, trainer.predicted_seconds
        return trainer, (*seen, kept.bits(trainer.step))


MORE_RANKS = "data", "homes", "pipeline"  # on four ranks; the others prove what they prove on two


def proven_on_two(*cases):
    """Cases of which those that more ranks do not run are marked."""
    marks = {case: [] if case in MORE_RANKS else [pytest.mark.two_ranks] for case in cases}
    return pytest.mark.parametrize(
        "case", [pytest.param(case, marks=each) for case, each in marks.items()]
    )


@proven_on_two(*CASES)
def test_own_rows_train_as_all_rows_do(case):
    own, found = trained(*CASES[case], is_own=True)
    all_rows, expected = trained(*CASES[case], is_own=False)
    assert found == expected
    assert own.task_graph.is_complete == (SIZE == 1)
    assert len(own.task_graph) <= len(all_rows.task_graph)


@proven_on_two("data", "in order", "searched")
def test_ranks_that_decide_nothing_make_their_own_rows_alone(case):
    with pytest.MonkeyPatch.context() as patch:
        if connect().rank > 0:
            patch.setattr(Lowering, "_all_rows", None)
        trained(*CASES[case], is_own=True, check=False)


@pytest.mark.two_ranks
@pytest.mark.parametrize("case", ["data", "pipeline"])
def test_own_rows_are_rehearsed(case):
    """Rank 0 learns what all rows take, in the order in which they run; the numbers are those of other costs."""
    with pytest.MonkeyPatch.context() as patch:
        if connect().rank > 0:
            patch.setattr(Lowering, "_all_rows", None)
        trainer, found = trained(*CASES[case], is_own=True, check=False, costs=CostModel.measured)
        _, expected = trained(*CASES[case], is_own=True, check=False)
    assert (found[:2], found[3]) == (expected[:2], expected[3])
    if connect().rank == 0:
        plan, machine, costs = trainer.plan, trainer.machine, trainer.costs
        rows = plan.apply(trainer.graph, machine, costs)[1]
        assert costs.is_rehearsed(rows)
        assert trainer.predicted_seconds == taskflow.simulate(rows, costs).seconds > 0
        points = rows.kind == taskflow.Kind.POINT
        assert (costs.seconds(rows)[points] > 0).all()


@pytest.mark.two_ranks
def test_a_report_tells_of_all_devices(folder, capfd):
    """Bytes, memory of all devices, and a page with the steps of all ranks."""
    said, pages = [], []
    for is_own in (True, False):
        trainer, _ = trained(staged, "one_f_one_b", is_own=is_own)
        trainer.console.quiet = connect().rank != 0
        path = folder / f"{is_own}.html"
        trainer.report(path)
        connect().barrier()
        said.append(re.findall(r"(?:bytes|peak).*", capfd.readouterr().out))
        (text,) = re.findall(r'id="data">(.*?)</script>', path.read_text(), re.DOTALL)
        measured = json.loads(text)["steps"][1]
        names, kept_of = measured["names"], measured["tasks"]
        pages.append((measured["rows"], len(kept_of["name"]), names, measured["shown_devices"]))
    assert said[0] == said[1]
    assert pages[0] == pages[1]
    assert len(said[0]) == (1 + DEVICES if connect().rank == 0 else 0)
