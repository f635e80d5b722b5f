"""Words: configurations in SOAP's terms, times, sizes and changes."""

import pytest

from taskflow import Graph, ParallelConfig, axis_kinds
from taskflow.report.describe import (
    describe_bytes,
    describe_change,
    describe_config,
    describe_devices,
    describe_seconds,
    describe_split,
    soap_letters,
)
from tests import tiny

CONFIGS = {
    "": (ParallelConfig({}, (3,)), "O", "whole on device 3"),
    "b": (ParallelConfig({"b": 4}), "S", "Sample axis b in 4 on devices 0-3"),
    "o": (ParallelConfig({"o": 2}), "OP", "Parameter axis o in 2 on devices 0,1"),
    "i": (
        ParallelConfig({"i": 2}, (1, 3)),
        "OP",
        "Parameter axis i in 2 (partial sums) on devices 1,3",
    ),
    "b o": (
        ParallelConfig({"b": 2, "o": 2}),
        "SP",
        "Sample axis b in 2, Parameter axis o in 2 on devices 0-3",
    ),
    "uneven": (
        ParallelConfig({"b": (0.75, 0.25)}, (0, 1)),
        "SO",
        "Sample axis b in 2 (0.75/0.25) on devices 0,1",
    ),
    "one part": (ParallelConfig({"b": 1}, (0,)), "O", "whole on device 0"),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_configuration(case):
    config, letters, words = CONFIGS[case]
    graph = Graph()
    tiny.linear(graph.input("x", (8, 6)), 4)
    op, kinds = graph.operators[0], axis_kinds(graph)["fc"]
    assert soap_letters(config, kinds, 4) == letters
    assert describe_config(op, config, kinds) == words


def test_an_attribute():
    graph = Graph()
    tiny.tanh(graph.input("x", (8, 6)))
    op, kinds, config = graph.operators[0], axis_kinds(graph)["tanh"], ParallelConfig({"c": 2})
    assert soap_letters(config, kinds, 2) == "A"
    assert describe_config(op, config, kinds) == "Attribute axis c in 2 on devices 0,1"


def test_devices():
    assert describe_devices((2,)) == describe_devices((2, 2)) == "device 2"
    assert describe_devices((0, 1, 2, 0, 1, 2)) == "devices 0-2 (2 points each)"
    assert describe_devices((5, 3, 4)) == "devices 3-5"
    assert describe_devices((0, 2, 4)) == "devices 0,2,4"
    assert describe_devices((0, 0, 1)) == "devices 0,1 (1 to 2 points each)"
    assert describe_devices(range(0, 64, 2)) == "devices 0,2,4,...,62"
    assert describe_split(ParallelConfig({"b": 2, "o": (0.5, 0.5), "i": 1})) == "b:2 o:2 on 0-3"
    assert describe_split(ParallelConfig({}, (1,))) == "whole on 1"


def test_times_and_sizes_have_three_digits():
    seconds = (0.0, 1.234e-9, 9.994e-6, 9.996e-6, 99.96e-6, 999.6e-6, 0.25, 12.34, 5000.0)
    expected = [
        "0",
        "0.00 µs",
        "9.99 µs",
        "10.0 µs",
        "100 µs",
        "1.00 ms",
        "250 ms",
        "12.3 s",
        "5000 s",
    ]
    assert [describe_seconds(s) for s in seconds] == expected
    assert [describe_bytes(n) for n in (0, 999, 1000, 999_600, 12_345_678)] == [
        "0",
        "999 B",
        "1.00 kB",
        "1.00 MB",
        "12.3 MB",
    ]


def test_changes():
    assert [describe_change(*pair) for pair in ((4, 3), (1, 4), (5, 5), (0, 0), (0, 2))] == [
        "-25 %",
        "+300 %",
        "the same",
        "the same",
        "new",
    ]
