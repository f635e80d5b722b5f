"""A step's launches, without a GPU: what the models of `gpu` give to one, from the trace of the stub (tests/stub).

`python benchmarks/gpu.py --estimate` runs it in the environment of the stub. Kernels are not executed, so seconds are
estimates: each launch takes what a graph takes for a node, and what moves its bytes or does its flops, by the peaks of
an H200; a kernel of fewer blocks than there are multiprocessors gets their share of the bandwidth. Bytes are those of
each array once that a kernel reads, and once that it writes; the same is counted of torch.compile (`gpu_inductor`).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from cpu_step_models import MODELS
from gpu_models import CASES, Case
from gpu_setting import verdict

import taskflow
from taskflow import Device, Executor, Graph, MachineModel, lower
from taskflow.backend import Context
from taskflow.backend.cuda.device import CudaStreams
from taskflow.tasks.task_graph import Kind, Privilege, TaskGraph
from tests.stub import stub

NODE_SECONDS, BANDWIDTH, MULTIPROCESSORS = (
    1.2e-6,
    4.2e12,
    132,
)  # NVIDIA H200; benchmarks/results has the first two
FLOPS = {"bfloat16": 788e12, "float16": 788e12, "tf32": 394e12, "float32": 51e12, "float64": 51e12}
TYPES = {0: "float32", 1: "float64", 2: "float16", 14: "bfloat16"}
MULTIPLYING = ("flash_", "convolve_", "slopes_of_")  # kernels that multiply matrices themselves
TF32 = 77  # the number of a compute type
TABLES = 0  # no address
BYTES_SHARE, BYTES_THEN = (
    0.85,
    24.95e9,
)  # of what GPT-2 moved on 2026-11-27 (results/bytes_2026-11-27.txt)
WITH_KEPT = 128  # in the number of an epilogue of cuBLASLt that writes, or reads, an array beside the product
BYTES_RATIO = 1.3  # to those of torch.compile that is asked for


@dataclass(frozen=True)
class Launch:
    """Something that a stream is given.

    Attributes:
        kind: kernel, product, copy or fill.
        name: of the kernel.
        row: of the task graph.
        bytes: that it reads and writes at least, as far as the sizes of its arrays are known.
        seconds: estimated.
        kept: bytes of what an epilogue keeps for the gradient, or reads of that, which are not among `bytes`.
    """

    kind: str
    name: str
    row: str
    bytes: float
    seconds: float
    kept: float = 0.0

    @property
    def is_cast(self) -> bool:
        """Whether it does nothing but to change a dtype."""
        types = self.name.partition("cupy_copy__")[2].split("_")
        return len(types) == 2 and types[0] != types[1]


def launches_of(graph: Graph) -> list[Launch]:
    """Those of a training step on one GPU, in issue order."""
    rows, found = on_one_gpu(graph), list[Launch]()
    with Executor(rows, backend=CudaStreams(), record=False, allow_nan=True) as step:
        streamed: Any = step._streamed
        for item in streamed.issue.items:
            lines: list[list[str]] = []
            with _scratch() as scratch, stub.traced(lines):
                streamed.backend.run(streamed.issue.streams[item.stream], item.call)
            sizes = _sizes(step, item.row) | scratch
            flops = _flops(rows, item.row, lines)
            found += [_launch(line, str(rows_name(step, item.row)), sizes, flops) for line in lines]
    return found


def on_one_gpu(graph: Graph) -> TaskGraph:
    """The rows of a graph on an H200."""
    machine = MachineModel.uniform(1, Device("cuda", memory_bytes=139 << 30))
    return lower(graph, taskflow.single_device(graph, machine), machine)


def rows_name(step: Executor, row: int) -> str:
    """The operator of a row that runs."""
    return step._rows.name(row)


class _scratch:
    """Notes address and size of the scratch arrays that kernels ask for within the block."""

    def __enter__(self) -> dict[int, int]:
        sizes: dict[int, int] = {}
        self._plain = Context.scratch

        def scratch(context: Context, *args: Any) -> Any:
            array = self._plain(context, *args)
            sizes[array.data.ptr] = array.nbytes
            return array

        Context.scratch = scratch  # type: ignore[method-assign]
        return sizes

    def __exit__(self, *error: object) -> None:
        Context.scratch = self._plain  # type: ignore[method-assign]


def _sizes(step: Executor, row: int) -> dict[int, int]:
    """Address -> bytes that are moved of the arrays of a row, or of all rows that run together with it.

    A kernel of rows that run together finds the addresses in tables: TABLES stands for them all.
    """
    rows, memory, found = step._rows, step.memory, dict[int, int]()
    groups = step._streamed._groups._groups.values()  # type: ignore[union-attr]
    together = next((members for each in groups for members in each if members[0] == row), [row])
    for member in together:
        for instance, rect, privilege in rows.args(member):
            if instance >= 0:
                view: Any = memory.view(instance, rect)
                found[view.data.ptr] = view.nbytes * (1 + (privilege == Privilege.READ_WRITE))
    return found if len(together) == 1 else {TABLES: sum(found.values())}


def _flops(rows: TaskGraph, row: int, lines: list[list[str]]) -> float:
    """Of each kernel of a row that multiplies matrices itself: those of the row are shared among them."""
    count = sum(line[0] == "kernel" and line[4].startswith(MULTIPLYING) for line in lines)
    return float(rows.flops[row]) / count if count else 0.0


def _launch(line: list[str], row: str, sizes: dict[int, int], flops: float) -> Launch:
    kind = line[0]
    if kind == "kernel":
        _, _, grid, _, name, *pointers = line
        moved = sizes.get(TABLES) or sum(
            sizes.get(int(pointer, 16), 0) for pointer in dict.fromkeys(pointers)
        )
        share = min(1.0, int(grid) / MULTIPROCESSORS)
        work = flops / FLOPS[name.rpartition("_")[2]] if name.startswith(MULTIPLYING) else 0.0
        return Launch(
            kind, name, row, moved, max(NODE_SECONDS, moved / BANDWIDTH / share, work / share)
        )
    if kind == "product":
        m, n, k, count, first, last, compute = map(int, line[2:9])
        size = np.dtype(TYPES[first].replace("bfloat16", "float16")).itemsize
        result = np.dtype(TYPES[last].replace("bfloat16", "float16")).itemsize
        moved, flops = count * (size * (m * k + k * n) + result * m * n), 2.0 * m * n * k * count
        rate = FLOPS["tf32" if compute == TF32 else TYPES[first]]
        seconds = max(NODE_SECONDS, moved / BANDWIDTH, flops / rate)
        epilogue = int(line[9].removeprefix("lt")) if line[9].startswith("lt") else 0
        kept = float(size * m * n) if epilogue & WITH_KEPT else 0.0
        return Launch(kind, f"{m}x{n}x{k}", row, moved, seconds, kept)
    size = int(line[2])
    moved = size * (1 if kind == "fill" else 2)
    return Launch(kind, kind, row, moved, max(NODE_SECONDS, moved / BANDWIDTH))


def cases() -> Iterator[tuple[str, str]]:
    """Models and precisions of the table."""
    for name, case in CASES.items():
        for precision in case.precisions:
            yield name, precision


def table_row(name: str, precision: str, found: list[Launch]) -> str:
    """A line of the table."""
    count = Counter(each.kind for each in found)
    casts = sum(each.is_cast for each in found)
    seconds, moved = sum(each.seconds for each in found), sum(each.bytes for each in found)
    numbers = count["kernel"], count["product"], count["copy"] + count["fill"], casts
    return f"| {name} | {precision} | {' | '.join(map(str, numbers))} | {moved / 1e9:.2f} | {seconds * 1e3:.2f} |"


HEAD = """| model | precision | kernels | products | copies, fills | casts | GB moved | ms by roofline |
|---|---|---|---|---|---|---|---|"""


TORCH_HEAD = """ torch eager | torch.compile | its GB | ours to its |
---|---|---|---|"""


def torch_columns(name: str, precision: str, moved: float) -> str:
    """Kernels and products of PyTorch eager, those of torch.compile, its bytes and our share, if it is installed."""
    try:
        import gpu_inductor
        import gpu_torch_launches
    except ImportError as error:
        return f" no PyTorch: {error} | | | |"
    kernels, products = gpu_torch_launches.eager(name, precision)
    compiled = gpu_inductor.compiled(name, precision)
    size = sum(each.bytes for each in compiled)
    counts = gpu_inductor.summary(compiled)
    asked = f", {verdict(moved / size <= BYTES_RATIO, f'{BYTES_RATIO}')}" if name == "gpt" else ""
    return f" {kernels} + {products} | {counts} | {size / 1e9:.2f} | {moved / size:.2f}{asked} |"


FUSION_HEAD = """| model | precision | operators | kernels + products | GB | fused | kernels + products | GB | share |
|---|---|---|---|---|---|---|---|---|"""


def fusion(names: Sequence[str]) -> Iterator[str]:
    """What `taskflow.fuse` makes of the models of `cpu_step`, of plain operators, and of GPT-2: lines of a table."""
    cases = {name: Case(model, model.batch) for name, model in MODELS.items()} | {
        "gpt-2": CASES["gpt"]
    }
    yield FUSION_HEAD
    for name in names or cases:
        for precision in ("float32", "bfloat16"):
            line, moved = f"| {name} | {precision} |", []
            for is_fused in (False, True):
                graph = cases[name].graph(precision, is_fused)
                found = launches_of(graph)
                count = Counter(each.kind for each in found)
                moved.append(sum(each.bytes for each in found) / 1e9)
                line += f" {len(graph.operators)} | {count['kernel']} + {count['product']} | {moved[-1]:.2f} |"
            yield f"{line} {moved[1] / moved[0]:.2f} |"


BRANCHES_HEAD = """| model | precision | items of a step | beside the chain | copies in, out | others |
|---|---|---|---|---|---|"""


def branches(graph: Graph) -> tuple[int, int, list[str]]:
    """Items of a step; copies from and to the host that run beside the chain; the names of others that do."""
    rows = on_one_gpu(graph)
    with Executor(rows, backend=CudaStreams(), record=False, allow_nan=True) as step:
        replay: Any = step._streamed.replay  # type: ignore[union-attr]
        beside = replay.branches
        is_copy = [each.role == "fetch" or rows.kind[each.row] == Kind.FEED for each in beside]
        others = [each.name for each, is_one in zip(beside, is_copy, strict=True) if not is_one]
        return len(replay.items), sum(is_copy), others


def print_branches(models: Sequence[str]) -> None:
    """The table of branches, of all models or of those that are named."""
    print(BRANCHES_HEAD)
    for name, precision in cases():
        if not models or name in models:
            items, copies, others = branches(CASES[name].graph(precision))
            end = verdict(not others, "a chain but for copies")
            print(
                f"| {name} | {precision} | {items} | {copies + len(others)} | {copies} | "
                f"{', '.join(others) or '-'}, {end} |",
                flush=True,
            )


def print_bytes() -> None:
    """What GPT-2 moves, by kind of launch, and its share of what it moved on the day of the first hours."""
    found = launches_of(CASES["gpt"].graph("bfloat16"))
    moved, often = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for each in found:
        key = each.name, re.sub(r"layer\d+", "layer", each.row)
        moved[key] += int(each.bytes)
        often[key] += 1
    print("| launches | of | row | GB |", "|---|---|---|---|", sep="\n")
    for (name, row), size in moved.most_common(40):
        print(f"| {often[name, row]} | {name} | {row} | {size / 1e9:.3f} |")
    now, kept = sum(each.bytes for each in found), sum(each.kept for each in found)
    share = now / BYTES_THEN
    print(
        f"gpt, bfloat16: {now / 1e9:.2f} GB in {len(found)} launches, {BYTES_THEN / 1e9:.2f} GB then: "
        f"share {share:.3f}  {verdict(share <= BYTES_SHARE, f'{BYTES_SHARE}')}",
        f"with {kept / 1e9:.2f} GB that epilogues write and read beside products, now as then: "
        f"share {(now + kept) / (BYTES_THEN + kept):.3f}",
        sep="\n",
    )


def longest(found: list[Launch], count: int = 12) -> Iterator[str]:
    """The kernels that take most of a step, with how often each runs."""
    seconds, often = dict[str, float](), Counter[str]()
    for each in found:
        seconds[each.name] = seconds.get(each.name, 0.0) + each.seconds
        often[each.name] += 1
    for name, total in sorted(seconds.items(), key=lambda pair: -pair[1])[:count]:
        yield f"  {total * 1e3:8.3f} ms {often[name]:5d} x {name}"


def main(arguments: list[str] | None = None) -> None:
    """Print the table, of all models or of those that are named, and what takes most of each step."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", help="names, or names and a precision: gpt,bfloat16")
    parser.add_argument(
        "--torch", action="store_true", help="beside PyTorch's kernels + products, compiled: and GB"
    )
    parser.add_argument("--fusion", action="store_true", help="what fusion changes, instead")
    parser.add_argument("--table", action="store_true", help="the table alone")
    parser.add_argument(
        "--bytes", action="store_true", help="what GPT-2 moves by kind of launch, instead"
    )
    parser.add_argument("--branches", action="store_true", help="what leaves the chain, instead")
    options = parser.parse_args(arguments)
    if options.bytes:
        print_bytes()
        return
    if options.branches:
        print_branches(options.models)
        return
    if options.fusion:
        for line in fusion(options.models):
            print(line, flush=True)
        return
    title, rule = HEAD.splitlines()
    more = TORCH_HEAD.splitlines() if options.torch else ("", "")
    print(title + more[0], rule + more[1], sep="\n", flush=True)
    details = []
    for name, precision in cases():
        if not options.models or {name, f"{name},{precision}"} & {*options.models}:
            found = launches_of(CASES[name].graph(precision))
            moved = sum(each.bytes for each in found)
            beside = torch_columns(name, precision, moved) if options.torch else ""
            print(table_row(name, precision, found) + beside, flush=True)
            details += [f"\n{name}, {precision}", *longest(found)]
    if not options.table:
        print("\n".join(details))


if __name__ == "__main__":
    main()
