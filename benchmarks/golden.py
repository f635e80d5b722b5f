"""Golden digests of task graphs, so that a change of the code can be shown to change nothing that it lowers to.

`python benchmarks/golden.py` lowers ten models under four strategies on 1, 4 and 16 devices of two machines, compares
every task graph and its predicted seconds with `golden.json` beside this file, and ends with 1 if one differs.
`--record` writes them anew; `--smallest 40` is for the cases of fewest rows alone, `--models moe` for those of a model.

Integers count as values, whatever their dtype. A kernel counts by its qualified name and its bound arguments, not by
the module in which it stands.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import taskflow
from taskflow import CostModel, Graph, MachineModel, ParallelConfig, Rect, Strategy, TaskGraph

PATH = Path(__file__).with_suffix(".json")
SEED = 7

# Model -> what is not as by default: every batch is a multiple of 16.
MODELS: dict[str, dict[str, Any]] = {
    "alexnet": {},
    "inception_v3": {},
    "resnet101": {},
    "rnntc": {},
    "rnnlm": {},
    "nmt": {},
    "gpt": {"batch": 16},
    "bert": {"batch": 16},
    "dlrm": {},
    "moe": {"batch": 16},
}
PRESETS = ("p100", "h100")
DEVICES = (1, 4, 16)

# What has a hash of its own in the file, in this order.
GROUPS = ("rows", "args", "dependences", "instances", "launches", "regions", "rest", "memory")
COLUMNS = {
    "arg_": "args",
    "dep_": "dependences",
    "instance_": "instances",
}  # how a column begins; others are of rows
LAUNCH = ("name", "spans", "axes", "args", "leader", "split", "members")
REGION = ("name", "shape", "dtype", "is_persistent")
REST = ("homes", "fetches", "combine", "orders", "devices_used", "groups", "uses_tf32")


@dataclass(frozen=True)
class Case:
    """A model under a strategy on a machine."""

    model: str
    strategy: str
    devices: int
    preset: str

    def __str__(self) -> str:
        return f"{self.model} {self.strategy} {self.devices} {self.preset}"


@dataclass(frozen=True)
class Record:
    """What is kept of a case: the number of rows, the predicted seconds in hexadecimal, a hash for each of GROUPS."""

    rows: int
    seconds: str
    hashes: tuple[str, ...]

    def differences(self, other: Record) -> list[str]:
        """The names of what is not equal."""
        names = [
            name for name, a, b in zip(GROUPS, self.hashes, other.hashes, strict=True) if a != b
        ]
        return names + ["seconds"] * (self.seconds != other.seconds)


def zero(graph: Graph, machine: MachineModel) -> Strategy:
    """Data parallel, but every update of a parameter is split along its first axis, over all devices if it can be."""
    strategy = taskflow.data_parallel(graph, machine)
    count = len(machine.devices)
    for op in graph.operators:
        if op.split_axes and any(op.inputs[k].role == "parameter" for k in op.writes):
            axis = op.split_axes[0]
            strategy[op.name] = ParallelConfig({axis: min(op.extents[axis], count)})
    return strategy


STRATEGIES: dict[str, Callable[[Graph, MachineModel], Strategy]] = {
    "data_parallel": taskflow.data_parallel,
    "model_parallel": taskflow.model_parallel,
    "random": lambda graph, machine: taskflow.random_strategy(graph, machine, SEED),
    "zero": zero,
}
CASES = {
    str(case): case
    for case in map(Case, *zip(*product(MODELS, STRATEGIES, DEVICES, PRESETS), strict=True))
}


@cache
def graph_of(model: str) -> Graph:
    """The training graph of a model."""
    graph: Graph = import_module(f"ops.models.{model}").build(**MODELS[model])
    return graph


@cache
def machine_of(preset: str, devices: int) -> MachineModel:
    """The first devices of as many hosts as they need."""
    nodes = -(-devices // len(MachineModel.preset(preset).devices))
    return MachineModel.preset(preset, nodes=nodes).take(devices)


def measure(case: Case) -> Record:
    """Lower and simulate one case."""
    graph, machine = graph_of(case.model), machine_of(case.preset, case.devices)
    task_graph = taskflow.lower(graph, STRATEGIES[case.strategy](graph, machine), machine)
    timeline = taskflow.simulate(task_graph, CostModel.analytic(machine))
    parts = contents(task_graph) | {"memory": list(timeline.peak_bytes)}
    return Record(
        len(task_graph),
        float(timeline.seconds).hex(),
        tuple(hash_of(parts[name]) for name in GROUPS),
    )


# -- hashes ------------------------------------------------------------------------------------------------------------


def contents(task_graph: TaskGraph) -> dict[str, Any]:
    """What a task graph consists of, for each of GROUPS."""
    parts: dict[str, Any] = {"rows": {}, "args": {}, "dependences": {}, "instances": {}}
    for field in fields(task_graph):
        value = getattr(task_graph, field.name)
        if isinstance(value, np.ndarray):
            group = next(
                (group for start, group in COLUMNS.items() if field.name.startswith(start)), "rows"
            )
            parts[group][field.name] = value
    parts["launches"] = [
        [*(getattr(n, name) for name in LAUNCH), without_modules(n.identity)]
        for n in task_graph.launches
    ]
    parts["regions"] = [
        [*(getattr(r, name) for name in REGION), without_modules(repr(r.init))]
        for r in task_graph.regions
    ]
    parts["rest"] = {name: getattr(task_graph, name) for name in REST}
    return parts


def without_modules(text: str) -> str:
    """`text` in which every `taskflow.module.name` and `ops.module.name`, however deep, is its `name`.

    A module is what Python has imported under that name, so `module.function.<locals>.kernel` keeps its function.
    """
    return re.sub(
        r"(?<![\w.])(?:taskflow|ops)(?:\.(?:\w+|<\w+>))+", lambda found: _qualified(found[0]), text
    )


def _qualified(path: str) -> str:
    names = path.split(".")
    return next(
        (
            ".".join(names[k:])
            for k in reversed(range(1, len(names)))
            if ".".join(names[:k]) in sys.modules
        ),
        path,
    )


def hash_of(value: Any) -> str:
    """Eight hexadecimal digits."""
    hasher = hashlib.blake2b(digest_size=4)
    _feed(value, hasher.update)
    return hasher.hexdigest()


def _feed(value: Any, update: Callable[[bytes], None]) -> None:
    """Hash a nested value, each part with its kind and length; NumPy scalars are as Python's."""
    if isinstance(value, np.ndarray):
        dtype = np.float64 if value.dtype.kind == "f" else np.int64
        update(f"array {np.dtype(dtype)} {value.shape} ".encode())
        update(np.ascontiguousarray(value, dtype).tobytes())
    elif isinstance(value, Rect):
        _feed((tuple(value.lo), tuple(value.hi)), update)
    elif is_dataclass(value):
        _feed({field.name: getattr(value, field.name) for field in fields(value)}, update)
    elif isinstance(value, Mapping):
        _feed([part for pair in value.items() for part in pair], update)
    elif isinstance(value, list | tuple):
        update(f"list {len(value)} ".encode())
        for part in value:
            _feed(part, update)
    elif isinstance(value, np.generic):
        _feed(value.item(), update)
    elif isinstance(value, str | int | float | bool):
        update(f"{value!r} ".encode())
    else:
        raise TypeError(f"golden: {type(value).__name__} has no hash here: {value!r}")


# -- the file ----------------------------------------------------------------------------------------------------------


def load() -> dict[str, Record]:
    """The recorded cases."""
    table = json.loads(PATH.read_text())
    return {
        name: Record(rows, seconds, tuple(hashes.split()))
        for name, (rows, seconds, hashes) in table.items()
    }


def save(records: Mapping[str, Record]) -> None:
    """Write the file, a line a case."""
    entries = {name: [r.rows, r.seconds, " ".join(r.hashes)] for name, r in sorted(records.items())}
    lines = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items()]
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def smallest(records: Mapping[str, Record], count: int) -> list[str]:
    """The names of the cases of fewest rows."""
    return sorted(records, key=lambda name: (records[name].rows, name))[:count]


def compare(names: Iterable[str], recorded: Mapping[str, Record]) -> int:
    """Print a line for every case that differs; their number."""
    differing = 0
    for name in names:
        known, found = recorded.get(name), measure(CASES[name])
        if known == found:
            continue
        differing += 1
        if known is None:
            print(f"{name}: is not recorded", flush=True)
        else:
            rows = f" ({known.rows} rows are now {found.rows})" if known.rows != found.rows else ""
            print(f"{name}: {', '.join(known.differences(found))}{rows}", flush=True)
    return differing


def main() -> int:
    """Compare or record; the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--record", action="store_true", help="write the file anew")
    choice.add_argument(
        "--smallest", type=int, metavar="N", help="compare the N cases of fewest rows alone"
    )
    parser.add_argument(
        "--models", nargs="*", choices=MODELS, default=list(MODELS), help="cases of these alone"
    )
    options = parser.parse_args()
    begin, recorded = time.perf_counter(), load()
    chosen = [name for name in CASES if name.split()[0] in options.models]
    if options.record:
        kept = {name: record for name, record in recorded.items() if name in CASES}
        save(kept | {name: measure(CASES[name]) for name in chosen})
        print(f"{len(chosen)} cases recorded in {time.perf_counter() - begin:.0f} s")
        return 0
    names = (
        chosen
        if options.smallest is None
        else smallest({name: recorded[name] for name in chosen}, options.smallest)
    )
    differing = compare(names, recorded)
    print(f"{differing} of {len(names)} cases differ; {time.perf_counter() - begin:.0f} s")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
