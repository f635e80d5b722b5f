"""Names are keys: where two things have one, the second is refused, and no first one is replaced in silence."""

import pytest

import ops
from taskflow import CostModel, Graph, Link, MachineModel, data_parallel, lower, search, stages
from taskflow.checkpoint.tensorfile import lay_out
from taskflow.core.system import world_rank, world_size
from taskflow.machine.library import LibraryTimes
from taskflow.machine.machinefile import read_machine
from taskflow.train.callbacks import BestCheckpoint, CsvLog, Moment, TensorBoardLog, check_places
from taskflow.train.tensorboard import EventFile
from tests.lowered import network
from tests.refusals import assert_refused

TWO = MachineModel.uniform(2)
ONE_LINK = "one link stands for all that join two places, with their bandwidth together"
PLACES = """
hosts = 2
shared = ["pcie@1"]
device = [{ count = 2 }]
link = [{ ends = [[0, 1], "pcie"], bandwidth = 1e9 }, { ends = [0, "pcie@1"], bandwidth = 1e9 }]
"""


def repeated(name, output):
    """A graph of two steps, of which the second has a name of the first."""
    graph = Graph()
    y = ops.relu(graph.input("x", (4, 3)), name="y")
    z = ops.tanh(y, name=name)
    graph.output("out", y)
    graph.output(output, z)
    return lower(graph, data_parallel(graph, TWO), TWO, repeat=2)


CASES = {
    "repeat: 'out@1' is the name of an output, and of one in step 1": lambda: repeated(
        "z", "out@1"
    ),
    "repeat: 'y@1' is the name of a region, and of one in step 1": lambda: repeated("y@1", "other"),
    "search: the start 'data parallel': it has the name of a start by a rule": lambda: search(
        network(),
        TWO,
        CostModel.analytic(TWO),
        proposals=1,
        starts={"data parallel": data_parallel(network(), TWO)},
    ),
    "machine 'm': 2 links go from 0 to 1; " + ONE_LINK: lambda: machine([(0, 1), (1, 0), (0, 1)]),
    "machine 'm': 2 links go from s to t; " + ONE_LINK: lambda: machine(
        [(0, "s"), ("s", "t"), ("t", 1), ("s", "t")]
    ),
    "machine 'a + b': 2 links go from s to t; " + ONE_LINK: lambda: MachineModel.join(
        [fabric("a", 1e9), fabric("b", 2e9)]
    ),
    "machine 'm': library: all-reduce among 2 devices on 1 hosts stands there 2 times": lambda: (
        MachineModel(
            TWO.devices,
            TWO.links,
            "m",
            library=(LibraryTimes("all-reduce", 1, 2, (1, 2), (1e-5, 2e-5)),) * 2,
        )
    ),
    "shared: 'pcie@1' is the name of 'pcie' of host 1; give one of them another": lambda: (
        read_machine(PLACES)
    ),
    "region '__metadata__': safetensors keeps notes under this name; give it another one": lambda: (
        lay_out([("__metadata__", (3,), "float32")])
    ),
    "BestCheckpoint('epoch'): 'epoch' is another note of a checkpoint; give the output another name": lambda: (
        BestCheckpoint("best", "epoch")
    ),
    "output 'loss': is 'y' already": lambda: with_an_output("loss"),
    "region 'learning_rate.slow': the graph has a region of this name already": lambda: (
        with_a_region("learning_rate")
    ),
}


def machine(ends):
    return MachineModel(TWO.devices, tuple(Link(each, 1e9) for each in ends), "m")


def fabric(name, bandwidth):
    """A device on each of two switches, which machines have in common."""
    links = [
        Link(ends[::step], bandwidth)
        for ends in ((0, "s"), (1, "t"), ("s", "t"))
        for step in (1, -1)
    ]
    return MachineModel(TWO.devices, tuple(links), name)


def with_an_output(name):
    graph = Graph()
    y = graph.output(name, ops.linear(graph.input("x", (4, 3)), 3, name="y"))
    ops.sgd(ops.mean(y), 0.1)


def with_a_region(name):
    graph = Graph()
    graph.parameter(f"{name}.slow", (), trainable=False)
    loss = ops.mean(ops.linear(graph.input("x", (4, 3)), 3, name="fc"))
    ops.sgd(loss, 0.1, groups=[ops.ParameterGroup("fc.*", lr=0.2, name="slow")])


@pytest.mark.parametrize("message", CASES)
def test_names(message):
    assert_refused(message, CASES[message])


@pytest.mark.parametrize(
    ("name", "ask"),
    [("OMPI_COMM_WORLD_RANK", world_rank), ("PMI_SIZE", world_size), ("PMIX_RANK", world_rank)],
)
@pytest.mark.parametrize("text", ["abc", "-1", "1.5"])
def test_variables_of_the_launcher(monkeypatch, name, ask, text):
    for each in (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "PMIX_RANK",
        "PMI_RANK",
        "PMI_SIZE",
    ):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(name, text)
    assert_refused(f"{name}: is a whole number from 0, not '{text}'", ask)


def test_stages_are_as_many_as_their_devices():
    graph, groups = network(), [(0,), (1,), (0,)]
    assert stages(graph, TWO, devices=groups) == stages(graph, TWO, count=3, devices=groups)


def test_equal_links_of_machines_that_are_joined_are_one():
    joined = MachineModel.join([fabric("a", 1e9), fabric("b", 1e9)])
    assert len(joined.links) == 2 * (4 + 1) and joined.bandwidth[0, 3] == 1e9


@pytest.mark.parametrize("name", ["step", "epoch", "validation loss"])
def test_columns_of_a_table(name, tmp_path):
    path = tmp_path / "run.csv"
    moment = Moment(1, 1, {"loss": 0.5, name: 1.0}, {"loss": 0.25}, None)
    message = f"CsvLog('{path}'): output '{name}' has the name of another column; rename it"
    assert_refused(message, lambda: CsvLog(path).row(moment))


def test_places_that_two_write(tmp_path):
    log, best, board = (
        CsvLog(tmp_path / "a"),
        BestCheckpoint(tmp_path / "b"),
        TensorBoardLog(tmp_path / "c"),
    )
    check_places([log, best, board, print], tmp_path / "run")
    for again in (log, best, board, CsvLog(tmp_path / "b" / ".." / "a")):
        place = getattr(again, "path", None) or again.folder
        first = [log, best, board].index(again) if again in (log, best, board) else 0
        message = (
            f"fit: callbacks[{first}] and callbacks[3] both write '{place}'; give one another place"
        )
        assert_refused(message, lambda again=again: check_places([log, best, board, again], None))
    message = (
        f"fit: checkpoint= and callbacks[0] both write '{tmp_path / 'b'}'; give one another place"
    )
    assert_refused(message, lambda: check_places([best], tmp_path / "b"))


def test_files_of_events_of_one_second(tmp_path):
    assert len({EventFile(tmp_path, 3.0).path for _ in range(3)}) == 3
