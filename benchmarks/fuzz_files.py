"""Damages files at random and loads them: `python benchmarks/fuzz_files.py --mutations 100000`.

The five formats: strategies, plans, costs and manifests of checkpoints (JSON; a manifest with a new digest after the
damage, so that it is not the digest that refuses), and machines (TOML). A mutation flips, cuts, repeats or inserts
characters, or puts a value that cannot be meant, a renamed, missing or repeated key, or deep brackets in the place of
something.

What is loaded must be refused by a ValueError of one line with the file in it, or else make sense: numbers finite, in
range and no booleans, nothing of the file dropped, no path outside of the folder. Prints what was not so, and exits
with 1 if there was anything.
"""

import argparse
import json
import random
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import taskflow
from taskflow import CostModel, Graph, MachineModel, Plan, Strategy
from taskflow.checkpoint import manifest
from taskflow.checkpoint.history import Position, position_of
from taskflow.checkpoint.tensorfile import digest_of
from taskflow.cost.model import MeasuredCosts
from taskflow.schedule import Schedule

HANG_SECONDS = 5.0
TEXTS = [
    "",
    "x",
    "1_0",
    "no",
    "network",
    "../../outside.safetensors",
    "/etc/passwd",
    "rank-0000.safetensors\0",
    "a\nb",
]
NUMBERS = [
    -1,
    0,
    1,
    2,
    3.5,
    -0.0,
    1e12,
    1e300,
    1e999,
    -1e999,
    2**31,
    2**63,
    2**64,
    100_000_000,
    10**400,
]
JUNK = [True, False, None, [], {}, [[]], [0, 1], {"a": 1}, "\ud800", "\x1b[31m", *TEXTS, *NUMBERS]
TOKENS = [
    "true",
    "false",
    "nan",
    "inf",
    "-inf",
    "1e999",
    "-1",
    "0",
    "1e300",
    "100000000",
    "1_0",
    '"x"',
    "[]",
    "{}",
]
TOKENS += [
    "[" * 5000,
    "{a=" * 500,
    "a." * 5000 + "b = 1",
    "1979-05-27",
    "'''",
    "[0, [1, 2]]",
    "9" * 5000,
    '"\\ud800"',
]


class Format(NamedTuple):
    """A kind of file: a sound one, how it is read, and what is wrong with what was read from a text, if anything."""

    path: Path
    load: Callable[[], Any]
    complain: Callable[[Any, str], str]
    sign: Callable[[str], str] = str


# -- formats -----------------------------------------------------------------------------------------------------------


def model() -> Graph:
    """A parameter, an output, an update in place."""
    graph = Graph()
    x = graph.input("x", (8, 4))
    w = graph.parameter("fc.weight", (3, 4))
    y = graph.launch(
        "fc", "b i, o i -> b o", [x, w], kernel=lambda ctx, x, w, y: np.matmul(x, w.T, out=y)
    )
    graph.launch("again", "b o -> b o", [y], kernel=lambda ctx, y, z: np.copyto(z, y))
    graph.parameter("other", (5,), dtype="int32", trainable=False)
    return graph


def formats(folder: Path) -> Iterator[tuple[str, Format]]:
    """The five, each with a file in `folder`."""
    graph, machine = model(), MachineModel.uniform(2)
    path = folder / "strategy.json"
    strategy = taskflow.data_parallel(graph, machine)
    strategy["again"] = taskflow.ParallelConfig({"b": (0.25, 0.75)}, (1, 0))
    strategy.save(path)
    yield "strategy", Format(path, lambda p=path: Strategy.load(p), complain_of_strategy)

    path = folder / "plan.json"
    steps = {
        0: (("F", 0, 0), ("F", 0, 1), ("B", 0, 0), ("B", 0, 1)),
        11: (("I", 1, 0), ("W", 1, 0)),
    }
    names = {
        "recomputed": ["fc", "again"],
        "homes": ["fc.weight"],
        "collectives": {"all-reduce": "ring"},
    }
    Plan(strategy, 2, Schedule(steps, "mine"), **names).save(path)
    yield "plan", Format(path, lambda p=path: Plan.load(p), complain_of_plan)

    path = folder / "machine.toml"
    path.write_text(MACHINE)
    yield "machine", Format(path, lambda p=path: MachineModel.load(p), complain_of_machine)

    path = folder / "costs.json"
    kernels = {
        "fc | [(4, 4), (3, 4)]": 1.5e-6,
        "again | [(4, 3)]": 2e-7,
        "a | [(1,)] | [(0,)] | 2 threads": 0.25,
    }
    path.write_text(
        json.dumps({"format": "taskflow-costs", "version": 1, "processor": "x", "kernels": kernels})
    )
    yield "costs", Format(path, lambda p=path: CostModel.measured(machine, p), complain_of_costs)

    one = MachineModel.uniform(1)
    step = taskflow.Executor(taskflow.lower(graph, taskflow.single_device(graph, one), one))
    notes = {
        "position": {
            "batches": 5,
            "epoch": 1,
            "batch": 2,
            "sums": {"loss": 0.5},
            "history": {"outputs": {}},
        }
    }
    notes["plan"] = Plan(taskflow.single_device(graph, one)).to_table()
    saved = taskflow.checkpoint.save(step, folder / "run", notes=notes)
    path = saved / manifest.NAME
    yield "manifest", Format(path, lambda p=saved: resumed(p), complain_of_manifest, sign)


def resumed(path: Path) -> tuple[manifest.Manifest, Position | None]:
    """What a checkpoint holds, and where its run stood, if it was one; its plan is read, too."""
    found = manifest.check_all(path)
    taskflow.checkpoint.plan_of(path)
    return found, position_of(path, found) if "position" in found.notes else None


MACHINE = """
name = "pair of hosts"
collectives = { all-reduce = "ring" }
hosts = 2
shared = ["network"]

[[device]]
count = 2
kind = "cuda"
memory_bytes = 17_179_869_184
flops_per_second = 10.6e12
rates = { float64 = 5.3e12, float16 = 21.2e12 }
memory_bandwidth = 732e9
overhead_seconds = 5.7e-6
compute_efficiency = 0.76
half_flops = 105e6

[[link]]
ends = [[0, 1], "pcie"]
bandwidth = 16e9
latency_seconds = 1.25e-6

[[link]]
ends = ["pcie", "network"]
bandwidth = 12.5e9

[[link]]
ends = [0, 1]
bandwidth = 5e9
directed = true
"""


def is_number(value: object, low: float, high: float) -> bool:
    """Whether it is a finite number, no boolean, within bounds."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and isfinite(value)
        and low <= value <= high
    )


def complain_of_strategy(strategy: Strategy, text: str) -> str:
    """What does not make sense in it, or was dropped."""
    for name, config in strategy.items():
        if not all(type(d) is int and 0 <= d < 2**31 for d in config.devices):
            return f"'{name}' runs on {config.devices}"
        for axis, degree in config.degrees:
            shares = degree if isinstance(degree, tuple) else ()
            if not (type(degree) is int and degree >= 1) and not (
                shares and all(is_number(f, 0, 1) for f in shares)
            ):
                return f"'{name}' splits '{axis}' by {degree}"
    for name, (pattern, extents) in strategy.signatures.items():
        if type(pattern) is not str or not all(type(e) is int and e >= 0 for e in extents.values()):
            return f"'{name}' has the signature {pattern} {extents}"
    entries = {}
    for name, config in strategy.items():
        degrees = {a: list(d) if isinstance(d, tuple) else d for a, d in config.degrees}
        entries[name] = {"degrees": degrees, "devices": list(config.devices)}
        if name in strategy.signatures:
            entries[name]["pattern"], entries[name]["extents"] = strategy.signatures[name]
    found = json.loads(text)["operators"]
    given = {n: {k: v for k, v in e.items() if v is not None} for n, e in found.items()}
    return "" if entries == given else "something of it was dropped"


def complain_of_plan(plan: Plan, text: str) -> str:
    """What does not make sense in it, or was dropped."""
    if (
        type(plan.parts) is not int
        or not 1 <= plan.parts < 2**31
        or type(plan.gathers_again) is not bool
    ):
        return f"{plan.parts!r} micro-batches, {plan.gathers_again!r}"
    texts = (*plan.recomputed, *plan.homes, *plan.collectives, *plan.collectives.values())
    if not all(type(each) is str for each in texts):
        return f"names {texts}"
    found, own = json.loads(text), plan.to_table()
    if isinstance(plan.schedule, Schedule):
        steps = [step for each in plan.schedule.steps.values() for step in each]
        if not all(
            letter in "FIWB" and is_number(s, 0, 2**31) and is_number(p, 0, 2**31)
            for letter, s, p in steps
        ):
            return f"steps {steps}"
    if any(
        own[name] != value
        for name, value in found.items()
        if name not in ("format", "version", "operators")
    ):
        return "something of it was dropped"
    return complain_of_strategy(plan.strategy, text)


def complain_of_machine(machine: MachineModel, text: str) -> str:
    """What does not make sense in it."""
    for device in machine.devices:
        for name, value in asdict(device).items():
            if name == "sends_by_link" and type(value) is bool:
                continue
            if name in ("joules_per_flop", "joules_per_byte", "watts") and value is None:
                continue
            is_name = name in ("kind", "attention")
            numbers = (
                np.ravel(list(value.values()))
                if isinstance(value, dict)
                else [value] * (not is_name)
            )
            if not all(is_number(n, 0, 1e24) for n in numbers):
                return f"{name} is {value!r}"
    for link in machine.links:
        if not is_number(link.bandwidth, 1e-3, 1e24) or not is_number(
            link.latency_seconds, 0, 86_400
        ):
            return str(link)
        if not all(type(end) in (int, str) for end in link.ends):
            return str(link)
    if (
        not isinstance(machine.name, str)
        or len(machine.devices) > 4096
        or type(machine.collectives) is not dict
    ):
        return f"'{machine.name}' has {len(machine.devices)} devices, {machine.collectives}"
    known = {"version", "name", "collectives", "hosts", "shared", "device", "link"}
    return "" if set(tomllib.loads(text)) <= known else "a key was dropped"


def complain_of_costs(costs: Any, text: str) -> str:
    """What does not make sense in them, or was dropped."""
    assert isinstance(costs, MeasuredCosts)
    for name, seconds in costs._kept.items():
        if type(seconds) is not float or not is_number(seconds, 0, 86_400):
            return f"'{name}' takes {seconds!r}"
    return (
        ""
        if dict(costs._kept.items()) == json.loads(text)["kernels"]
        else "something of it was dropped"
    )


def complain_of_manifest(read: tuple[manifest.Manifest, Position | None], text: str) -> str:
    """What does not make sense in it."""
    found, position = read
    numbers = [position.batches, position.epoch, position.batch] if position else []
    if not all(type(n) is int and n >= 0 for n in numbers):
        return str(position)
    if type(found.steps) is not int or type(found.seed) is not int or not 0 <= found.steps < 2**63:
        return f"step {found.steps!r}, seed {found.seed!r}"
    if any(Path(name).name != name or not name.startswith("rank-") for name in found.files):
        return f"files {list(found.files)}"
    shapes = {name: (entry.shape, entry.dtype) for name, entry in found.regions.items()}
    expected = {"fc.weight": ((3, 4), "float32"), "other": ((5,), "int32")}
    if shapes != expected and set(found.regions) != set():
        return f"regions {shapes}"
    return "" if type(found.notes) is dict else f"notes {found.notes!r}"


def sign(text: str) -> str:
    """A manifest with the digest of what it says now, where it says anything."""
    try:
        table = json.loads(text)
        body = {k: v for k, v in table.items() if k != "digest"}
        return (
            json.dumps(body | {"digest": digest_of(json.dumps(body, indent=1).encode())}, indent=1)
            + "\n"
        )
    except (ValueError, AttributeError, RecursionError):
        return text


# -- mutations ---------------------------------------------------------------------------------------------------------


def mutate(text: str, chance: random.Random) -> str:
    """A damaged text."""
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        text = chance.choice((flip, cut, repeat, insert, put_token, put_junk, put_junk, put_junk))(
            text, chance
        )
    return text


def flip(text: str, chance: random.Random) -> str:
    """Another character at some place."""
    at = chance.randrange(max(len(text), 1))
    return (
        text[:at]
        + chr(chance.choice((chance.randrange(128), chance.randrange(0xD800))))
        + text[at + 1 :]
    )


def cut(text: str, chance: random.Random) -> str:
    """Without a part."""
    first, last = sorted(chance.randrange(len(text) + 1) for _ in range(2))
    return text[:first] + text[min(last, first + chance.choice((1, 5, 30, 10_000))) :]


def repeat(text: str, chance: random.Random) -> str:
    """A line twice, or a part of one."""
    lines = text.split("\n")
    at, to = (chance.randrange(len(lines)) for _ in range(2))
    return "\n".join([*lines[:to], lines[at], *lines[to:]])


def insert(text: str, chance: random.Random) -> str:
    """Something between two characters."""
    at = chance.randrange(len(text) + 1)
    return text[:at] + chance.choice(TOKENS) + text[at:]


def put_token(text: str, chance: random.Random) -> str:
    """Something instead of what stands behind `=` or `:`."""
    lines = text.split("\n")
    at = chance.randrange(len(lines))
    for mark in ("=", ":"):
        if mark in lines[at]:
            head, _, rest = lines[at].partition(mark)
            lines[at] = f"{head}{mark} {chance.choice(TOKENS)}{',' if rest.endswith(',') else ''}"
            break
    return "\n".join(lines)


def put_junk(text: str, chance: random.Random) -> str:
    """Somewhere in a JSON value: another value, a key less, renamed, or twice, or deep brackets."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return put_token(text, chance)
    places = list(walk(value))
    if not places:
        return text
    inside, key = chance.choice(places)
    act = chance.randrange(8)
    if act == 0:
        del inside[key]
    elif act == 1 and isinstance(inside, dict):
        inside[str(key)[:-1] + chance.choice("xe ")] = inside.pop(key)
    elif act == 2 and isinstance(inside, dict):
        inside["<twice>"] = chance.choice(JUNK)
        return json.dumps(value, indent=1).replace('"<twice>"', json.dumps(key))
    elif act == 3:
        inside[key] = "<deep>"
        depth = chance.choice((20, 40, 1000, 100_000))
        return json.dumps(value, indent=1).replace('"<deep>"', "[" * depth + "]" * depth)
    else:
        inside[key] = chance.choice(JUNK)
    return json.dumps(value, indent=1)


def walk(value: Any) -> Iterator[tuple[Any, Any]]:
    """Everything inside a JSON value: where it is, and under which key."""
    pending = [value]
    while pending:
        each = pending.pop()
        for key in (
            list(each)
            if isinstance(each, dict)
            else range(len(each))
            if isinstance(each, list)
            else ()
        ):
            yield each, key
            pending.append(each[key])


# -- the run -----------------------------------------------------------------------------------------------------------


class Hang(BaseException):
    """A load took too long."""


def stop(number: int, frame: object) -> None:
    """What the clock does."""
    raise Hang


def verdict(each: Format, text: str) -> tuple[str, str]:
    """(kind, what was seen): `refused`, `accepted`, or one of the three that must not be."""
    each.path.write_bytes(text.encode("utf-8", "surrogatepass"))
    signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
    try:
        found = each.load()
    except Hang:
        return "hangs", f"{len(text)} characters"
    except ValueError as error:
        said = str(error)
        is_clear = (
            type(error) is ValueError and said.isprintable() and str(each.path.parent) in said
        )
        return ("refused", said) if is_clear else ("raw errors", repr(error))
    except Exception as error:
        return "raw errors", repr(error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    complaint = each.complain(found, text)
    return ("nonsense accepted", complaint) if complaint else ("accepted", "")


def run(mutations: int, seed: int, show: int = 5) -> Counter[str]:
    """So many mutations over the five formats; what became of them."""
    total: Counter[str] = Counter()
    before = signal.signal(signal.SIGALRM, stop)
    with tempfile.TemporaryDirectory() as base:
        for number, (name, each) in enumerate(formats(Path(base))):
            chance, sound, counts, slowest = (
                random.Random(seed + number),
                each.path.read_text(),
                Counter(),
                0.0,
            )
            assert verdict(each, sound)[0] == "accepted", verdict(each, sound)
            for _ in range(mutations // 5):
                text = each.sign(mutate(sound, chance))
                begin = time.perf_counter()
                kind, said = verdict(each, text)
                slowest = max(slowest, time.perf_counter() - begin)
                counts[kind] += 1
                if kind not in ("refused", "accepted") and counts[kind] <= show:
                    print(f"{name}: {kind}: {said[:300]}\n  {text[:200]!r}")
            print(
                f"{name:9s} {dict(sorted(counts.items()))}, slowest {slowest * 1e3:.0f} ms",
                flush=True,
            )
            total += counts
    signal.signal(signal.SIGALRM, before)
    return total


def main() -> int:
    """The acceptance line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mutations", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=18)
    options = parser.parse_args()
    total = run(options.mutations, options.seed)
    wrong = {kind: total[kind] for kind in ("raw errors", "hangs", "nonsense accepted")}
    print(
        f"{sum(total.values())} mutations: {', '.join(f'{count} {kind}' for kind, count in wrong.items())}"
    )
    return int(any(wrong.values()))


if __name__ == "__main__":
    sys.exit(main())
