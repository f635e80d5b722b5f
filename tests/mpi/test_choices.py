"""Law 3 where a library and an own kernel do the same: choices follow from a table, that of rank 0 on all ranks."""

import numpy as np
import pytest

import ops
import taskflow
from taskflow import CostModel, Executor, Graph, MachineModel, lower
from taskflow.backend.choices import LIBRARY, OWN, Choices, shipped_choices
from taskflow.checkpoint import load, save
from taskflow.comm.transport import connect
from tests.fake_cudnn import CudnnStreams
from tests.strategies import feeds_of

pytestmark = pytest.mark.two_ranks  # with more it takes no other way


class Timed(CudnnStreams):
    """By its clock one way takes twice as long as the other; `shows`: the name of the GPU."""

    def __init__(self, faster, shows="fake GPU"):
        super().__init__()
        self.faster, self.shows = faster, shows

    def name(self, device):
        return self.shows

    def seconds_between(self, first, second):
        now = OWN if self.choices.seconds else LIBRARY
        return 1e-3 if now == self.faster else 2e-3


def rows_of(ranks):
    graph = Graph()
    x, t = graph.input("x", (4, 3, 6, 6)), graph.input("t", (4,), "int32")
    h = ops.relu(ops.conv2d(x, 5, 3, padding=1, name="conv"))
    ops.sgd(ops.softmax_cross_entropy(ops.linear(ops.flatten(h), 3), t, name="loss"), lr=0.1)
    machine = MachineModel.uniform(ranks).with_rates(kind="cuda")
    return graph, lower(graph, taskflow.data_parallel(graph, machine), machine)


def run(ranks, backend, costs=None, folder=None):
    """The parameters after two steps, as bytes, and the digest of the choices."""
    graph, rows = rows_of(ranks)
    with Executor(rows, backend=backend, costs=costs, record=False, allow_nan=True) as step:
        for _ in range(2):
            step(feeds_of(graph))
        if folder:
            save(step, folder)
        return [step.read(name).tobytes() for name in step.persistent], step.choices.digest


def measured(ranks, backend, cache):
    costs = CostModel.measured(rows_of(ranks)[1].machine, cache, backend)
    costs.seconds(rows_of(ranks)[1])
    return costs


def test_ranks_whose_timings_differ_take_what_rank_0_has_measured(tmp_path):
    transport = connect()
    faster = (OWN, LIBRARY)[transport.rank % 2]
    costs = measured(transport.size, Timed(faster), tmp_path / f"costs{transport.rank}.json")
    ways = {costs.choices("fake GPU").way(key) for key in costs.choices("fake GPU").seconds}
    assert ways == {faster}
    found, digest = run(transport.size, Timed(faster), costs)
    assert len(set(transport.gather((tuple(found), digest)))) == 1
    table = Choices({key: {OWN: 1.0} for key in costs.choices("fake GPU").seconds})
    assert digest == table.digest


@pytest.mark.skipif(connect().size > 1, reason="one process at a time")
def test_a_process_takes_what_another_one_has_measured(tmp_path, caplog):
    file = tmp_path / "costs.json"
    first = run(1, Timed(OWN), measured(1, Timed(OWN), file), tmp_path / "run")
    again = run(1, Timed(LIBRARY), measured(1, Timed(LIBRARY), file))
    other = run(1, Timed(LIBRARY), measured(1, Timed(LIBRARY), tmp_path / "other.json"))
    assert first == again and first[1] != other[1]
    assert first[0] != other[0], "the two ways have other last bits: else this says nothing"
    costs, (_, rows) = measured(1, Timed(LIBRARY), tmp_path / "other.json"), rows_of(1)
    with Executor(rows, backend=Timed(LIBRARY), costs=costs, record=False) as step:
        manifest = load(step, tmp_path / "run")
    assert Choices(manifest.choices).digest == first[1]
    assert "other kernels ran there: last bits may differ" in caplog.text


@pytest.mark.skipif(connect().size > 1, reason="needs no ranks")
def test_what_a_table_lacks_goes_the_way_of_the_nearest_shapes():
    small, large = (f"convolution of tf32 | {n}x3x8x8 4x3x3x3 | stride (1, 1)" for n in (8, 512))
    choices = Choices({small: {LIBRARY: 2.0, OWN: 1.0}, large: {LIBRARY: 1.0, OWN: 2.0}})
    near = "convolution of tf32 | {}x3x9x9 4x3x3x3 | stride (2, 2)"
    assert [choices.way(near.format(n)) for n in (4, 16, 256)] == [OWN, OWN, LIBRARY]
    for other in ("float32 | 4x3x8x8 4x3x3x3", "tf32 | 4x3x8 4x3x3"):
        assert choices.way(f"convolution of {other} | ") == LIBRARY


@pytest.mark.skipif(connect().size > 1, reason="needs no ranks")
def test_a_run_without_a_file_takes_the_table_of_its_gpu():
    assert np.all(shipped_choices("no GPU").seconds == {})
    assert run(1, Timed(OWN, "NVIDIA H200"))[1] == shipped_choices("NVIDIA H200").digest
    own_times = measured(1, Timed(OWN), None)  # of this process, which another one would not have
    assert run(1, Timed(OWN), own_times)[1] == Choices().digest
