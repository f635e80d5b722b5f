"""Times that a cost file keeps: read, used and written; and what is far from possible is said."""

import json
import logging

import pytest

from taskflow import CostModel, Graph, MachineModel, lower, single_device
from taskflow.cost.costfile import Costs, read_costs, write_costs
from taskflow.cost.kept import KeptTimes
from tests import tiny


def never():
    raise AssertionError("it is kept")


@pytest.fixture
def path(tmp_path):
    write_costs(tmp_path / "costs.json", Costs({"fc": 2.0, "add": 2e-3, "tiny": 1e-6}))
    return tmp_path / "costs.json"


@pytest.mark.parametrize(
    "key, expected, is_said",
    [
        ("fc", 2e-3, True),  # a thousand times too slow
        ("fc", 0.5, False),
        ("fc", 5e3, True),  # a thousand times too fast
        ("add", 1e-6, True),
        ("add", 1e-4, False),
        ("tiny", 1e-9, False),  # clocks hardly see it
    ],
)
def test_a_time_that_is_far_from_the_rates_is_said(path, key, expected, is_said, caplog):
    kept = KeptTimes(path)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert (
                kept.find(key, never, lambda: expected)
                == json.loads(path.read_text())["kernels"][key]
            )
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == is_said, "once"
    if said:
        assert (
            said[0].startswith(f"cost file '{path}': kernel '{key}' takes ")
            and "its device's rates" in said[0]
        )


def test_what_is_measured_is_written_beside_what_another_process_wrote(path):
    kept = KeptTimes(path)
    assert kept.find("relu", lambda: 0.25, never) == 0.25
    kept.choose("H200", {"conv": {"library": 2.0, "own": 1.0}})
    other = {"H200": {"pool": {"library": 1.0}}, "H100": {"conv": {"own": 1.0}}}
    write_costs(path, Costs({"other": 0.5}, other).beside(read_costs(path)))
    kept.write()
    found = read_costs(path)
    assert found.kernels == {"fc": 2.0, "add": 2e-3, "tiny": 1e-6, "relu": 0.25, "other": 0.5}
    assert found.choices["H200"] == other["H200"] | {"conv": {"library": 2.0, "own": 1.0}}
    assert found.choices["H100"] == other["H100"]


def test_a_machine_of_another_kind(tmp_path, caplog):
    """A file whose times were made a hundred thousand times longer."""
    machine, graph = MachineModel.local(devices=1), Graph()
    graph.output("y", tiny.linear(graph.input("x", (64, 64)), 64))
    rows, path = lower(graph, single_device(graph, machine), machine), tmp_path / "costs.json"
    CostModel.measured(machine, path).seconds(rows)
    kept = {key: min(1e5 * seconds, 100.0) for key, seconds in read_costs(path).kernels.items()}
    write_costs(path, Costs(kept))
    with caplog.at_level(logging.WARNING):
        CostModel.measured(machine, path).seconds(rows)
    assert any("is it of this machine?" in record.getMessage() for record in caplog.records)
