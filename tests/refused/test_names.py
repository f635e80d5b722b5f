"""Names are keys: where two things have one, the second is refused, and no first one is replaced in silence."""

from pathlib import Path

import ops
from taskflow import CostModel, Graph, Link, MachineModel, data_parallel, lower, search, stages
from taskflow.checkpoint.tensorfile import lay_out
from taskflow.core.system import world_rank, world_size
from taskflow.machine.library import LibraryTimes
from taskflow.machine.machinefile import read_machine
from taskflow.train.callbacks import BestCheckpoint, CsvLog, Moment, TensorBoardLog, check_places
from taskflow.train.tensorboard import EventFile
from tests.lowered import network
from tests.refusals import each_refused

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


def write_again(number):
    """Of three callbacks, one is there twice."""
    three = [CsvLog("a"), BestCheckpoint("b"), TensorBoardLog("c")]
    check_places([*three, three[number]], None)


def variable(name, ask, text):
    """A call that asks for the rank or size that a launcher has given."""

    def call(monkeypatch):
        for each in LAUNCHERS:
            monkeypatch.delenv(each, raising=False)
        monkeypatch.setenv(name, text)
        ask()

    return call


def log(column):
    CsvLog("run.csv").row(
        Moment(1, 1, {"loss": 0.5, column: 1.0}, {"loss": 0.25}, None, None, None)
    )


LAUNCHERS = ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"]
TWICE = LibraryTimes("all-reduce", 1, 2, (1, 2), (1e-5, 2e-5))
REFUSED = [
    (
        "an output of the next step",
        lambda: repeated("z", "out@1"),
        "repeat: 'out@1' is the name of an output, and of one in step 1",
    ),
    (
        "a region of the next step",
        lambda: repeated("y@1", "other"),
        "repeat: 'y@1' is the name of a region, and of one in step 1",
    ),
    (
        "a start of a search",
        lambda: search(
            network(),
            TWO,
            CostModel.analytic(TWO),
            proposals=1,
            starts={"data parallel": data_parallel(network(), TWO)},
        ),
        "search: the start 'data parallel': it has the name of a start by a rule",
    ),
    (
        "links of devices",
        lambda: machine([(0, 1), (1, 0), (0, 1)]),
        f"machine 'm': 2 links go from 0 to 1; {ONE_LINK}",
    ),
    (
        "links of switches",
        lambda: machine([(0, "s"), ("s", "t"), ("t", 1), ("s", "t")]),
        f"machine 'm': 2 links go from s to t; {ONE_LINK}",
    ),
    (
        "links of joined machines",
        lambda: MachineModel.join([fabric("a", 1e9), fabric("b", 2e9)]),
        f"machine 'a + b': 2 links go from s to t; {ONE_LINK}",
    ),
    (
        "times of a library",
        lambda: MachineModel(TWO.devices, TWO.links, "m", library=(TWICE,) * 2),
        "machine 'm': library: all-reduce among 2 devices on 1 hosts stands there 2 times",
    ),
    (
        "a shared place",
        lambda: read_machine(PLACES),
        "shared: 'pcie@1' is the name of 'pcie' of host 1; give one of them another",
    ),
    (
        "a region of notes",
        lambda: lay_out([("__metadata__", (3,), "float32")]),
        "region '__metadata__': safetensors keeps notes under this name; give it another one",
    ),
    (
        "a note of a checkpoint",
        lambda: BestCheckpoint("best", "epoch"),
        "BestCheckpoint('epoch'): 'epoch' is another note of a checkpoint; give the output another name",
    ),
    ("the output of a loss", lambda: with_an_output("loss"), "output 'loss': is 'y' already"),
    (
        "a rate of a group",
        lambda: with_a_region("learning_rate"),
        "region 'learning_rate.slow': the graph has a region of this name already",
    ),
    *(
        (
            f"{name} is {text}",
            variable(name, ask, text),
            f"{name}: is a whole number from 0, not '{text}'",
        )
        for name, ask in (
            ("OMPI_COMM_WORLD_RANK", world_rank),
            ("PMI_SIZE", world_size),
            ("PMIX_RANK", world_rank),
        )
        for text in ("abc", "-1", "1.5")
    ),
    *(
        (
            f"a column {name!r}",
            lambda name=name: log(name),
            f"CsvLog('run.csv'): output '{name}' has the name of another column; rename it",
        )
        for name in ("step", "epoch", "validation loss")
    ),
    *(
        (
            f"the place of callback {k}",
            lambda k=k: write_again(k),
            f"fit: callbacks[{k}] and callbacks[3] both write '{'abc'[k]}'; give one another place",
        )
        for k in range(3)
    ),
    (
        "a place by another path",
        lambda: check_places([CsvLog("a"), print, print, CsvLog("b/../a")], None),
        "fit: callbacks[0] and callbacks[3] both write 'b/../a'; give one another place",
    ),
    (
        "a place of checkpoints",
        lambda: check_places([BestCheckpoint("b")], Path("b")),
        "fit: checkpoint= and callbacks[0] both write 'b'; give one another place",
    ),
]
test_refused = each_refused(REFUSED)


def test_stages_are_as_many_as_their_devices():
    graph, groups = network(), [(0,), (1,), (0,)]
    assert stages(graph, TWO, devices=groups) == stages(graph, TWO, count=3, devices=groups)


def test_equal_links_of_machines_that_are_joined_are_one():
    joined = MachineModel.join([fabric("a", 1e9), fabric("b", 1e9)])
    assert len(joined.links) == 2 * (4 + 1) and joined.bandwidth[0, 3] == 1e9


def test_places_of_their_own(tmp_path):
    three = [CsvLog("a"), BestCheckpoint("b"), TensorBoardLog("c")]
    assert check_places([*three, print], tmp_path / "run") is None


def test_files_of_events_of_one_second(tmp_path):
    assert len({EventFile(tmp_path, 3.0).path for _ in range(3)}) == 3
