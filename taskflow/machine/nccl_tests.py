"""What NVIDIA's nccl-tests print -> library times of a machine: one for each output, by size.

The columns are named by the header; of two times of a size, out of place and in place, the first is taken. Bytes are of
all that is summed, gathered or sent, as nccl-tests count them. How many hosts there are say the lines of ranks, which
collective a line of new versions, a command line or the name of the file.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from taskflow.core.files import naming, read_text
from taskflow.machine.library import LibraryTimes
from taskflow.machine.model import MachineModel

_PROGRAM = re.compile(r"(all_reduce|all_gather|reduce_scatter|broadcast|reduce)(?=_perf|\b|_)")
_RANK = re.compile(r"Rank\s+(\d+)\s.*\bon\s+(\S+)\s+device")
_COLUMNS = {"size", "count", "type", "time"}


def with_nccl_tests(machine: MachineModel, paths: Iterable[str | Path]) -> MachineModel:
    """The machine with the times of these outputs, in the place of those that it has of the same group.

    Raises:
        ValueError: a file is no such output, or does not say which collective it is of.
    """
    times = {(t.collective, t.hosts, t.devices): t for t in machine.library}
    for path in paths:
        with naming(f"nccl-tests '{path}'"):
            read = read_nccl_tests(read_text(path), Path(path).name)
        times[read.collective, read.hosts, read.devices] = read
    return replace(machine, library=tuple(times.values()))


def read_nccl_tests(text: str, name: str = "") -> LibraryTimes:
    """The times of one output; `name` of its file says the collective where it does not itself.

    Raises:
        ValueError: what is missing.
    """
    program = _PROGRAM.search(text) or _PROGRAM.search(name)
    if program is None:
        raise ValueError("no collective is named in it, or by the file: all_reduce_perf.txt, say")
    ranks = {match[1]: match[2] for match in _RANK.finditer(text)}
    seconds = _seconds_by_size(text)
    if not seconds:
        raise ValueError("there is no table of sizes and times in it")
    if len(ranks) < 2:
        raise ValueError(f"has {len(ranks)} ranks; nccl-tests name each one, if built with MPI=1")
    return LibraryTimes(
        program[1].replace("_", "-"),
        len(set(ranks.values())),
        len(ranks),
        tuple(sorted(seconds)),
        tuple(float(np.median(seconds[size])) for size in sorted(seconds)),
    )


def _seconds_by_size(text: str) -> dict[int, list[float]]:
    """The times of the lines of a table, by their bytes."""
    seconds: dict[int, list[float]] = defaultdict(list)
    time = 0
    for line in text.splitlines():
        words = line.lstrip("# ").split()
        if set(words) >= _COLUMNS:
            time = words.index("time")
        elif time and len(words) > time and words[0].isdigit() and int(words[0]):
            seconds[int(words[0])].append(float(words[time]) / 1e6)
    return seconds
