"""Division of a program: points that follow each other become sections, and their calls those of their parts.

Takes the program of a rank with several threads a device, and its compiler; changes the calls, each under the row of
its point (`taskflow.tasks.threads.sections`). So the measured time of a row is that of its first part, and the last row
of a section has the waiting, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from taskflow.execute.program import Compiler, RankProgram
from taskflow.tasks.threads.division import Part
from taskflow.tasks.threads.sections import PlannedBytes, section_calls, sections


def divide_program(compiler: Compiler, program: RankProgram) -> dict[int, Sequence[Part]]:
    """Divide the points of a compiled program over the threads of their devices; the parts of every point."""
    parts = dict[int, Sequence[Part]]()
    graph = compiler.graph
    if not compiler.is_divided:
        return parts
    memory = PlannedBytes(graph, compiler.plan)
    for first, end in list(_runs(compiler, program)):
        for section in sections(graph, program.rows[first:end], compiler.crew.size, memory):
            parts.update(zip(section.rows, section.parts, strict=True))
            calls = section_calls(
                graph, section, compiler.views, compiler.part_context, compiler.crew
            )
            program.calls[first : first + len(calls)] = calls
            first += len(calls)
    return parts


def _runs(compiler: Compiler, program: RankProgram) -> Iterator[tuple[int, int]]:
    """Where calls of points of one device follow each other: the first, and the one behind the last."""
    key = [
        int(compiler.graph.device[row]) if role == "run" and row in compiler.views else -1
        for row, role in zip(program.rows, program.roles, strict=True)
    ]
    bounds = [0, *(k for k in range(1, len(key)) if key[k] != key[k - 1]), len(key)]
    return ((a, b) for a, b in pairwise(bounds) if a < b and key[a] >= 0)
