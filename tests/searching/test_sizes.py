"""No cliffs: on any number of hosts a search tries the same kinds of plan, and calls the same functions.

On 4 and 8 hosts; on 8, 64 and 512 by HYPOTHESIS_PROFILE=thorough. What is left out on some stands in the table of
`docs/architecture.md`, with the figure that says why.
"""

import re
import sys
from pathlib import Path

import pytest

import taskflow
from taskflow import CostModel, Graph, MachineModel, search
from taskflow.searching import searching
from tests import tiny
from tests.sampling import IS_THOROUGH

ROOT = Path(taskflow.__file__).parent
LAYERS = "searching", "schedule", "collective"  # which decide what is tried
PROPOSALS = 1500


def left_out():
    """The functions in the first column of the table."""
    text = (ROOT.parent / "docs" / "architecture.md").read_text()
    table = text.partition("## What is left out at some sizes")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def trained():
    """Two layers whose samples and units can be split over 512 devices."""
    graph = Graph()
    h = tiny.tanh(tiny.linear(graph.input("x", (4096, 1024), "float32"), 1024, name="up"))
    tiny.sgd(tiny.mean_square(tiny.linear(h, 1024, name="down")), momentum=0.9)
    return graph


def tried(hosts):
    """The names of functions that a search calls, and the kinds of its starts."""
    machine = MachineModel.join([MachineModel.preset("p100").take(1)] * hosts)
    graph, codes = trained(), set()

    costs = CostModel.analytic(machine)
    forget()
    sys.setprofile(lambda frame, event, argument: codes.add(frame.f_code))
    try:
        found = search(graph, machine, costs, proposals=PROPOSALS, seed=0)
    finally:
        sys.setprofile(None)
    return names_of(codes), {kind_of(name) for name in found.baseline_seconds}


def names_of(codes):
    """Of the functions of these layers; not of what is imported late, nor of moves, which are drawn by chance."""
    folders = [f"{ROOT / layer}/" for layer in LAYERS]
    moves = str(ROOT / "searching" / "moves")
    return {
        code.co_name
        for code in codes
        if code.co_filename.startswith(tuple(folders)) and code.co_name != "<module>"
        if not code.co_filename.startswith(moves)
    }


def kind_of(name):
    """A grid's is whether it has tensor parallelism; what it has besides depends on what was the fastest so far."""
    name = re.sub(r"\d+", "n", name)
    return name.split(",")[0] if name.startswith(("data,", "tensor")) or "stages" in name else name


def compiled():
    """Names of compiled functions: small work interprets them, and then they are seen to be called."""
    layers = tuple(f"taskflow.{layer}." for layer in LAYERS)
    modules = [module for name, module in sys.modules.items() if name.startswith(layers)]
    return {
        name
        for module in modules
        for name, value in vars(module).items()
        if type(value).__module__ == "taskflow.core.compiling"
    }


def forget():
    """What functions of these layers remember (`functools.cache`): they are called again."""
    layers = tuple(f"taskflow.{layer}." for layer in LAYERS)
    for module in [module for name, module in sys.modules.items() if name.startswith(layers)]:
        for value in vars(module).values():
            if str(getattr(value, "__module__", "")).startswith(layers) and hasattr(
                value, "cache_clear"
            ):
                value.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [(8, 64, 512) if IS_THOROUGH else (4, 8)])
def test_the_same_is_tried_on_any_number_of_hosts(hosts, monkeypatch):
    monkeypatch.setattr(searching, "FAR", 1e9)  # starts that are given up have no seconds
    tried(hosts[0] // 2)  # what is compiled, or imported, on first use
    first, *others = map(tried, hosts)
    for called, kinds in others:
        assert kinds == first[1]
        assert (called ^ first[0]) - compiled() <= left_out()
