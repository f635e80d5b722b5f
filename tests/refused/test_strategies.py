"""Configurations and strategies that do not fit, and files that are none."""

import json

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
from tests.refusals import assert_refused

TWO = MachineModel.uniform(2)


@pytest.fixture
def graph():
    """x (8, 6) -> heads (8, 2, 3); x -> fc -> centre -> loss, with updates."""
    graph = Graph()
    x = graph.input("x", (8, 6))
    tiny.split_heads(x, 2)
    tiny.sgd(tiny.mean_square(tiny.centre(tiny.linear(x, 4))))
    return graph


def lowering(graph, changes, machine=TWO, without=()):
    strategy = single_device(graph, machine)
    strategy.update(changes)
    for name in without:
        del strategy[name]
    return lambda: lower(graph, strategy, machine)


CONFIGS = {
    "points": (
        lambda: ParallelConfig({"b": 2, "o": 2}, (0, 1)),
        "ParallelConfig: {'b': 2, 'o': 2} has 4 points, 2 devices were given",
    ),
    "replicas": (
        lambda: ParallelConfig({None: (0.5, 0.5)}),
        "replicas: a number of them is needed, not (0.5, 0.5)",
    ),
    "degree": (lambda: ParallelConfig({"b": 0}), "axis 'b': a degree is positive, not 0"),
    "sum": (
        lambda: ParallelConfig({"b": (0.5, 0.4)}),
        "axis 'b': fractions are positive and sum to 1, not (0.5, 0.4)",
    ),
    "negative": (
        lambda: ParallelConfig({"b": (1.5, -0.5)}),
        "axis 'b': fractions are positive and sum to 1, not (1.5, -0.5)",
    ),
    "none": (
        lambda: ParallelConfig({"b": ()}),
        "axis 'b': fractions are positive and sum to 1, not ()",
    ),
    "nan": (
        lambda: ParallelConfig({"b": (float("nan"), 0.5)}),
        "axis 'b': fractions are positive and sum to 1, not (nan, 0.5)",
    ),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_configuration_that_cannot_be(case):
    call, message = CONFIGS[case]
    assert_refused(message, call)


def test_a_configuration_of_another_type(graph):
    message = "axis 'b': a degree is a number of parts or a list of fractions, not 2.0"
    assert_refused(message, lambda: ParallelConfig({"b": 2.0}), TypeError)
    message = "ParallelConfig: a device is a number, not '0'"
    assert_refused(message, lambda: ParallelConfig({"b": 2}, "01"), TypeError)
    strategy = single_device(graph, TWO)
    message = "strategy['fc']: is a ParallelConfig, not a dict"
    assert_refused(message, lambda: strategy.__setitem__("fc", {"o": 2}), TypeError)


CHANGES = {
    "axis unknown": (
        {"fc": ParallelConfig({"z": 2})},
        "operator 'fc': axis 'z' is not in its pattern 'b i, o i -> b o'",
    ),
    "replicas by hand": (
        {"fc.weight.update": ParallelConfig({"b": 2})},
        "operator 'fc.weight.update': axis 'b' is not in its pattern 'o i, o i, o i ->'",
    ),
    "fixed axis": (
        {"centre": ParallelConfig({"c": 2})},
        "operator 'centre': axis '^c' is never split, a degree of 2 was given",
    ),
    "degree": (
        {"fc": ParallelConfig({"o": 5}, (0,) * 5)},
        "operator 'fc': axis 'o' has 4 points, fewer than its degree 5",
    ),
    "fractions": (
        {"fc": ParallelConfig({"o": (0.2,) * 5}, (0,) * 5)},
        "operator 'fc': axis 'o' has 4 points, fewer than its degree 5",
    ),
    "devices": (
        {"fc": ParallelConfig({"b": 2}, (0, 2))},
        "operator 'fc': device 2 is not among the machine's 2 devices",
    ),
    "negative device": (
        {"fc": ParallelConfig({}, (-1,))},
        "operator 'fc': device -1 is not among the machine's 2 devices",
    ),
    "group": (
        {"heads": ParallelConfig({"d": 3}, (0, 0, 0))},
        "operator 'heads': axis 'd' of the group '(h d)' is split, but an axis to its left has more than one point: "
        "only a split that is contiguous in memory order is allowed",
    ),
    "another graph": ({"fc7": ParallelConfig()}, "strategy: operator 'fc7' is not in the graph"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_strategy_that_does_not_fit(graph, case):
    changes, message = CHANGES[case]
    assert_refused(message, lowering(graph, changes))


def test_a_group_may_be_split_along_its_first_axis(graph):
    for degrees in ({"h": 2}, {"h": 2, "d": 3}):  # then a part has one point of h
        points = degrees["h"] * degrees.get("d", 1)
        config = ParallelConfig(degrees, (0, 1) * (points // 2))
        task_graph = lowering(graph, {"heads": config})()
        names = [task_graph.name(row) for row in np.flatnonzero(task_graph.kind == Kind.POINT)]
        assert names.count("heads") == points


def test_an_operator_without_a_configuration(graph):
    assert_refused(
        "strategy: operator 'fc' has no ParallelConfig", lowering(graph, {}, without=["fc"])
    )


def test_an_update_in_place_that_is_split_along_an_axis_it_does_not_have():
    graph = Graph()
    state = graph.parameter("state", (6,))
    x = graph.input("x", (4, 6))
    graph.launch("running", "b c, c ->", [x, state], kernel=tiny._copy, writes=[state])
    message = "operator 'running': axis 'b' is split, but 'state' is updated in place without it"
    assert_refused(message, lowering(graph, {"running": ParallelConfig({"b": 2})}))
    lowering(graph, {"running": ParallelConfig({"c": 2})})()


def test_a_graph_without_operators():
    assert_refused("lower: the graph has no operators", lambda: lower(Graph(), Strategy(), TWO))


def test_an_entry_for_a_member_of_a_fused_operator():
    graph = Graph()
    graph.output(
        "y", ops.relu(ops.add(graph.input("x", (8, 6)), 1.0, name="plus"), name="positive")
    )
    message = (
        "strategy: operator 'plus' is part of the fused operator positive: b c -> b c (plus + positive): "
        "name 'positive'"
    )
    assert_refused(message, lowering(fuse(graph), {"plus": ParallelConfig({"b": 2})}))


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_strategy_of_another_model(graph, tmp_path):
    data_parallel(graph, TWO).save(path := tmp_path / "s.json")
    loaded = Strategy.load(path)

    wider = Graph()
    x = wider.input("x", (8, 6))
    tiny.split_heads(x, 2)
    tiny.sgd(tiny.mean_square(tiny.centre(tiny.linear(x, 5))))
    message = "strategy: operator 'fc': axis 'o' is 5 in the graph and 4 in the strategy"
    assert_refused(message, lambda: lower(wider, loaded, TWO))

    other = Graph()
    x = other.input("x", (8, 6))
    other.launch("heads", "b c -> b c", [x], kernel=tiny._copy)
    message = "strategy: operator 'heads' has pattern 'b c -> b c', the strategy is for 'b (h d) -> b h d'"
    assert_refused(message, lambda: lower(other, loaded, TWO))


HEAD = {"format": "taskflow-strategy", "version": 1}
ENTRY = {"degrees": {"b": 2}, "devices": [0, 1]}


def with_entry(**changes):
    entry = {k: v for k, v in (ENTRY | changes).items() if v is not None}
    return HEAD | {"operators": {"fc": entry}}


OPERATOR_FIELDS = "degrees, devices, pattern, extents"
SIGNATURE = {"pattern": "b -> b", "extents": {"b": 4}}
FILES = {
    "truncated": (
        '{"format": "taskflow-strategy", "version": 1',
        "is not complete JSON: Expecting ',' delimiter: line 1 column 45 (char 44)",
    ),
    "empty": ("", "is not complete JSON: Expecting value: line 1 column 1 (char 0)"),
    "foreign": ({"model": "resnet"}, "its format is not 'taskflow-strategy'"),
    "list": ([1, 2], "its format is not 'taskflow-strategy'"),
    "version": (HEAD | {"version": 2}, "has version 2, this reads 1"),
    "true version": (HEAD | {"version": True}, "has version true, this reads 1"),
    "no version": ({"format": "taskflow-strategy"}, "has version null, this reads 1"),
    "no operators": (HEAD, "object missing required field 'operators'"),
    "operators": (
        HEAD | {"operators": ["fc"]},
        "'operators' is [\"fc\"]: expected 'object', got 'array'",
    ),
    "more": (
        HEAD | {"operators": {}, "seed": 3},
        "object contains unknown field 'seed'; the fields are operators",
    ),
    "entry": (HEAD | {"operators": {"fc": 3}}, "operator 'fc': is 3: expected 'object', got 'int'"),
    "no degrees": (
        with_entry(degrees=None),
        "operator 'fc': object missing required field 'degrees'",
    ),
    "degrees": (
        with_entry(degrees=[2]),
        "operator 'fc': 'degrees' is [2]: expected 'object', got 'array'",
    ),
    "degree": (
        with_entry(degrees={"b": "2"}),
        "operator 'fc': axis 'b': is \"2\": expected 'int | array', got 'str'",
    ),
    "no degree": (
        with_entry(degrees={"b": 0}),
        "operator 'fc': axis 'b': is 0: expected 'int' >= 1",
    ),
    "true": (
        with_entry(degrees={"b": True}),
        "operator 'fc': axis 'b': is true: expected 'int | array', got 'bool'",
    ),
    "fractions": (
        with_entry(degrees={"b": [0.5, 0.6]}),
        "operator 'fc': axis 'b': fractions are positive and sum to 1, not (0.5, 0.6)",
    ),
    "devices": (
        with_entry(devices="01"),
        "operator 'fc': 'devices' is \"01\": expected 'array', got 'str'",
    ),
    "device": (
        with_entry(devices=[0, 0.5]),
        "operator 'fc': 'devices[1]' is 0.5: expected 'int', got 'float'",
    ),
    "true device": (
        with_entry(devices=[0, True]),
        "operator 'fc': 'devices[1]' is true: expected 'int', got 'bool'",
    ),
    "points": (
        with_entry(devices=[0]),
        "operator 'fc': ParallelConfig: {'b': 2} has 2 points, 1 devices were given",
    ),
    "pattern": (
        with_entry(pattern=7),
        "operator 'fc': 'pattern' is 7: expected 'str | null', got 'int'",
    ),
    "extents": (
        with_entry(pattern="b -> b"),
        "operator 'fc': 'pattern' and 'extents' are there together or not at all",
    ),
    "extent": (
        with_entry(**SIGNATURE | {"extents": {"b": 4.0}}),
        "operator 'fc': extent of axis 'b': is 4.0: expected 'int', got 'float'",
    ),
    "misspelt": (
        with_entry(patern="b -> b"),
        f"operator 'fc': object contains unknown field 'patern'; the fields are {OPERATOR_FIELDS}",
    ),
    "twice": ('{"operators": {"fc": 1, "fc": 2}}', "key 'fc' is there twice"),
    "not finite": ('{"operators": {"fc": NaN}}', "the number NaN is not finite"),
    "too large": ('{"operators": {"fc": 1e999}}', "the number 1e999 is not finite"),
    "deep": ("[" * 100_000, "is nested deeper than 32 levels"),
    "deep and closed": ("[" * 40 + "]" * 40, "is nested deeper than 32 levels"),
    "half a character": (
        '{"\\ud800": 1}',
        "'utf-8' codec can't encode character '\\ud800' in position 2: surrogates not allowed",
    ),
    "a name that colours a terminal": (
        HEAD | {"operators": {"\x1b[31m\n": 3}},
        "operator '\\x1b[31m\\n': is 3: expected 'object', got 'int'",
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_a_file_that_is_no_strategy(case, tmp_path):
    content, message = FILES[case]
    path = tmp_path / "s.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    assert_refused(f"strategy file '{path}': {message}", lambda: Strategy.load(path))


def test_a_file_that_is_no_text(tmp_path):
    path = tmp_path / "s.json"
    path.write_bytes(b"\x93NUMPY")
    message = f"strategy file '{path}': 'utf-8' codec can't decode byte 0x93 in position 0: invalid start byte"
    assert_refused(message, lambda: Strategy.load(path))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        Strategy.load(tmp_path / "s.json")
