"""Configurations and strategies that do not fit, and files that are none."""

from pathlib import Path

import numpy as np
import pytest

import ops
from taskflow import (
    Graph,
    MachineModel,
    ParallelConfig,
    Strategy,
    data_parallel,
    fuse,
    lower,
    single_device,
)
from taskflow.tasks.task_graph import Kind
from tests import tiny
from tests.refusals import each_refused, of_files

TWO = MachineModel.uniform(2)


def model(width):
    """x (8, 6) -> heads (8, 2, 3); x -> fc -> centre -> loss, with updates."""
    graph = Graph()
    x = graph.input("x", (8, 6))
    tiny.split_heads(x, 2)
    tiny.sgd(tiny.mean_square(tiny.centre(tiny.linear(x, width))))
    return graph


@pytest.fixture
def graph():
    return model(4)


def lower_changed(graph, changes, without=()):
    strategy = single_device(graph, TWO)
    strategy.update(changes)
    for name in without:
        del strategy[name]
    return lower(graph, strategy, TWO)


def lowering(changes, **options):
    """A call that lowers the graph under a strategy with these changes."""
    return lambda graph: lower_changed(graph, changes, **options)


def running_state(degrees):
    """A state of (6,) that is updated in place, from (4, 6)."""
    graph = Graph()
    state, x = graph.parameter("state", (6,)), graph.input("x", (4, 6))
    graph.launch("running", "b c, c ->", [x, state], kernel=tiny._copy, writes=[state])
    return lower_changed(graph, {"running": ParallelConfig(degrees)})


def name_a_member():
    """An entry for a member of a fused operator."""
    graph = Graph()
    plus = ops.add(graph.input("x", (8, 6)), 1.0, name="plus")
    graph.output("y", ops.relu(plus, name="positive"))
    lower_changed(fuse(graph), {"plus": ParallelConfig({"b": 2})})


# -- files -------------------------------------------------------------------------------------------------------------


def load_for(other, graph, tmp_path):
    """A strategy of `graph`, for another one."""
    data_parallel(graph, TWO).save(path := tmp_path / "s.json")
    lower(other, Strategy.load(path), TWO)


def load_for_a_wider_graph(graph, tmp_path):
    load_for(model(5), graph, tmp_path)


def load_for_another_pattern(graph, tmp_path):
    other = Graph()
    other.launch("heads", "b c -> b c", [other.input("x", (8, 6))], kernel=tiny._copy)
    load_for(other, graph, tmp_path)


def load_no_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("s.json").write_bytes(b"\x93NUMPY")
    Strategy.load("s.json")


HEAD = {"format": "taskflow-strategy", "version": 1}
ENTRY = {"degrees": {"b": 2}, "devices": [0, 1]}


def with_entry(**changes):
    entry = {k: v for k, v in (ENTRY | changes).items() if v is not None}
    return HEAD | {"operators": {"fc": entry}}


OPERATOR_FIELDS = "degrees, devices, pattern, extents"
SIGNATURE = {"pattern": "b -> b", "extents": {"b": 4}}
FILES = [
    (
        "truncated",
        '{"format": "taskflow-strategy", "version": 1',
        "is not complete JSON: Expecting ',' delimiter: line 1 column 45 (char 44)",
    ),
    ("empty", "", "is not complete JSON: Expecting value: line 1 column 1 (char 0)"),
    ("foreign", {"model": "resnet"}, "its format is not 'taskflow-strategy'"),
    ("list", [1, 2], "its format is not 'taskflow-strategy'"),
    ("version", HEAD | {"version": 2}, "has version 2, this reads 1"),
    ("true version", HEAD | {"version": True}, "has version true, this reads 1"),
    ("no version", {"format": "taskflow-strategy"}, "has version null, this reads 1"),
    ("no operators", HEAD, "object missing required field 'operators'"),
    (
        "operators",
        HEAD | {"operators": ["fc"]},
        "'operators' is [\"fc\"]: expected 'object', got 'array'",
    ),
    (
        "more",
        HEAD | {"operators": {}, "seed": 3},
        "object contains unknown field 'seed'; the fields are operators",
    ),
    ("entry", HEAD | {"operators": {"fc": 3}}, "operator 'fc': is 3: expected 'object', got 'int'"),
    (
        "no degrees",
        with_entry(degrees=None),
        "operator 'fc': object missing required field 'degrees'",
    ),
    (
        "degrees",
        with_entry(degrees=[2]),
        "operator 'fc': 'degrees' is [2]: expected 'object', got 'array'",
    ),
    (
        "degree",
        with_entry(degrees={"b": "2"}),
        "operator 'fc': axis 'b': is \"2\": expected 'int | array', got 'str'",
    ),
    (
        "no degree",
        with_entry(degrees={"b": 0}),
        "operator 'fc': axis 'b': is 0: expected 'int' >= 1",
    ),
    (
        "true",
        with_entry(degrees={"b": True}),
        "operator 'fc': axis 'b': is true: expected 'int | array', got 'bool'",
    ),
    (
        "fractions",
        with_entry(degrees={"b": [0.5, 0.6]}),
        "operator 'fc': axis 'b': fractions are positive and sum to 1, not (0.5, 0.6)",
    ),
    (
        "devices",
        with_entry(devices="01"),
        "operator 'fc': 'devices' is \"01\": expected 'array', got 'str'",
    ),
    (
        "device",
        with_entry(devices=[0, 0.5]),
        "operator 'fc': 'devices[1]' is 0.5: expected 'int', got 'float'",
    ),
    (
        "true device",
        with_entry(devices=[0, True]),
        "operator 'fc': 'devices[1]' is true: expected 'int', got 'bool'",
    ),
    (
        "points",
        with_entry(devices=[0]),
        "operator 'fc': ParallelConfig: {'b': 2} has 2 points, 1 devices were given",
    ),
    (
        "pattern",
        with_entry(pattern=7),
        "operator 'fc': 'pattern' is 7: expected 'str | null', got 'int'",
    ),
    (
        "extents",
        with_entry(pattern="b -> b"),
        "operator 'fc': 'pattern' and 'extents' are there together or not at all",
    ),
    (
        "extent",
        with_entry(**SIGNATURE | {"extents": {"b": 4.0}}),
        "operator 'fc': extent of axis 'b': is 4.0: expected 'int', got 'float'",
    ),
    (
        "misspelt",
        with_entry(patern="b -> b"),
        f"operator 'fc': object contains unknown field 'patern'; the fields are {OPERATOR_FIELDS}",
    ),
    ("twice", '{"operators": {"fc": 1, "fc": 2}}', "key 'fc' is there twice"),
    ("not finite", '{"operators": {"fc": NaN}}', "the number NaN is not finite"),
    ("too large", '{"operators": {"fc": 1e999}}', "the number 1e999 is not finite"),
    ("deep", "[" * 100_000, "is nested deeper than 32 levels"),
    ("deep and closed", "[" * 40 + "]" * 40, "is nested deeper than 32 levels"),
    (
        "half a character",
        '{"\\ud800": 1}',
        "'utf-8' codec can't encode character '\\ud800' in position 2: surrogates not allowed",
    ),
    (
        "a name that colours a terminal",
        HEAD | {"operators": {"\x1b[31m\n": 3}},
        "operator '\\x1b[31m\\n': is 3: expected 'object', got 'int'",
    ),
]


SUM = "axis 'b': fractions are positive and sum to 1, not"
REFUSED = [
    (
        "points",
        lambda: ParallelConfig({"b": 2, "o": 2}, (0, 1)),
        "ParallelConfig: {'b': 2, 'o': 2} has 4 points, 2 devices were given",
    ),
    (
        "replicas",
        lambda: ParallelConfig({"replicas": (0.5, 0.5)}),
        "replicas: a number of them is needed, not (0.5, 0.5)",
    ),
    ("degree", lambda: ParallelConfig({"b": 0}), "axis 'b': a degree is positive, not 0"),
    (
        "sum",
        lambda: ParallelConfig({"b": (0.5, 0.4)}),
        f"{SUM} (0.5, 0.4)",
    ),
    (
        "negative",
        lambda: ParallelConfig({"b": (1.5, -0.5)}),
        f"{SUM} (1.5, -0.5)",
    ),
    (
        "none",
        lambda: ParallelConfig({"b": ()}),
        f"{SUM} ()",
    ),
    (
        "nan",
        lambda: ParallelConfig({"b": (float("nan"), 0.5)}),
        f"{SUM} (nan, 0.5)",
    ),
    (
        "a degree of a float",
        lambda: ParallelConfig({"b": 2.0}),
        "axis 'b': a degree is a number of parts or a list of fractions, not 2.0",
        TypeError,
    ),
    (
        "devices in words",
        lambda: ParallelConfig({"b": 2}, "01"),
        "ParallelConfig: a device is a number, not '0'",
        TypeError,
    ),
    (
        "a dictionary as a configuration",
        lambda graph: single_device(graph, TWO).__setitem__("fc", {"o": 2}),
        "strategy['fc']: is a ParallelConfig, not a dict",
        TypeError,
    ),
    (
        "axis unknown",
        lowering({"fc": ParallelConfig({"z": 2})}),
        "operator 'fc': axis 'z' is not in its pattern 'b i, o i -> b o'",
    ),
    (
        "replicas by hand",
        lowering({"fc.weight.update": ParallelConfig({"b": 2})}),
        "operator 'fc.weight.update': axis 'b' is not in its pattern 'o i, o i, o i ->'",
    ),
    (
        "fixed axis",
        lowering({"centre": ParallelConfig({"c": 2})}),
        "operator 'centre': axis '^c' is never split, a degree of 2 was given",
    ),
    (
        "degree of fc",
        lowering({"fc": ParallelConfig({"o": 5}, (0,) * 5)}),
        "operator 'fc': axis 'o' has 4 points, fewer than its degree 5",
    ),
    (
        "fractions of fc",
        lowering({"fc": ParallelConfig({"o": (0.2,) * 5}, (0,) * 5)}),
        "operator 'fc': axis 'o' has 4 points, fewer than its degree 5",
    ),
    (
        "devices of fc",
        lowering({"fc": ParallelConfig({"b": 2}, (0, 2))}),
        "operator 'fc': device 2 is not among the machine's 2 devices",
    ),
    (
        "negative device",
        lowering({"fc": ParallelConfig({}, (-1,))}),
        "operator 'fc': device -1 is not among the machine's 2 devices",
    ),
    (
        "group",
        lowering({"heads": ParallelConfig({"d": 3}, (0, 0, 0))}),
        "operator 'heads': axis 'd' of the group '(h d)' is split, but an axis to its left has more than one point: "
        "only a split that is contiguous in memory order is allowed",
    ),
    (
        "another graph",
        lowering({"fc7": ParallelConfig()}),
        "strategy: operator 'fc7' is not in the graph",
    ),
    (
        "no configuration",
        lowering({}, without=["fc"]),
        "strategy: operator 'fc' has no ParallelConfig",
    ),
    (
        "an update in place that is split along another axis",
        lambda: running_state({"b": 2}),
        "operator 'running': axis 'b' is split, but 'state' is updated in place without it",
    ),
    (
        "a graph without operators",
        lambda: lower(Graph(), Strategy(), TWO),
        "lower: the graph has no operators",
    ),
    (
        "a member of a fused operator",
        name_a_member,
        "strategy: operator 'plus' is part of the fused operator positive: b c -> b c (plus + positive): "
        "name 'positive'",
    ),
    (
        "a wider graph",
        load_for_a_wider_graph,
        "strategy: operator 'fc': axis 'o' is 5 in the graph and 4 in the strategy",
    ),
    (
        "another pattern",
        load_for_another_pattern,
        "strategy: operator 'heads' has pattern 'b c -> b c', the strategy is for 'b (h d) -> b h d'",
    ),
    *(
        (f"a file, {what}", *rest)
        for what, *rest in of_files(Strategy.load, "strategy file", "s.json", FILES)
    ),
    (
        "a file that is no text",
        load_no_text,
        "strategy file 's.json': 'utf-8' codec can't decode byte 0x93 in position 0: invalid start byte",
    ),
    (
        "a file that is not there",
        lambda: Strategy.load("none.json"),
        "[Errno 2] No such file or directory: 'none.json'",
        FileNotFoundError,
    ),
]
test_refused = each_refused(REFUSED)


def test_a_group_may_be_split_along_its_first_axis(graph):
    for degrees in ({"h": 2}, {"h": 2, "d": 3}):  # then a part has one point of h
        points = degrees["h"] * degrees.get("d", 1)
        config = ParallelConfig(degrees, (0, 1) * (points // 2))
        task_graph = lower_changed(graph, {"heads": config})
        names = [task_graph.name(row) for row in np.flatnonzero(task_graph.kind == Kind.POINT)]
        assert names.count("heads") == points


def test_an_update_in_place_may_be_split_along_its_axis():
    assert len(running_state({"c": 2}))
