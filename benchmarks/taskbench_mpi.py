"""The same tasks in mpi4py, as one writes them by hand: the yardstick."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from taskbench_graph import Cells, Job, System, two_rows, verify


def mpi_persistent(job: Job) -> System:
    """mpi4py by hand: per row and peer one message of the columns that it reads, with persistent requests."""
    rows, messages = _rows_by_hand(job)

    @functools.cache
    def request(init: str, half: int, peer: int, columns: tuple[int, ...]) -> MPI.Prequest:
        return getattr(MPI.COMM_WORLD, init)(messages(half, columns), peer)

    plan = []
    for row, (mine, sends, receives) in enumerate(rows):
        outgoing = [request("Send_init", row % 2, peer, columns) for peer, columns in sends]
        incoming = [request("Recv_init", row % 2, peer, columns) for peer, columns in receives]
        plan.append((row, incoming, mine, outgoing, incoming + outgoing))

    def run(iterations: int) -> None:
        work = job.work
        for row, incoming, tasks, outgoing, both in plan:
            for start in incoming:
                start.Start()
            for column, cell, cells in tasks:
                if job.verifies:
                    verify(job.shape, row, column, cells)
                work(cell, iterations, row, column)
            for start in outgoing:
                start.Start()
            for each in both:
                each.Wait()

    return run


def mpi_blocking(job: Job) -> System:
    """mpi4py by hand: the same messages with Send and Recv (so small that no Send waits)."""
    rows, messages = _rows_by_hand(job)
    comm = MPI.COMM_WORLD
    plan = [
        (
            row,
            tasks,
            [(messages(row % 2, columns), peer) for peer, columns in sends],
            [(messages(row % 2, columns), peer) for peer, columns in receives],
        )
        for row, (tasks, sends, receives) in enumerate(rows)
    ]

    def run(iterations: int) -> None:
        work = job.work
        for row, tasks, sends, receives in plan:
            for column, cell, cells in tasks:
                if job.verifies:
                    verify(job.shape, row, column, cells)
                work(cell, iterations, row, column)
            for message, peer in sends:
                comm.Send(message, peer)
            for message, peer in receives:
                comm.Recv(message, peer)

    return run


def _rows_by_hand(job: Job) -> tuple[list[Any], Callable[[int, tuple[int, ...]], list[Any]]]:
    """Per row this rank's tasks with their cells, what it sends and what it receives; and a maker of messages."""
    shape, rank = job.shape, MPI.COMM_WORLD.rank
    memory, cells = two_rows(shape)
    moved: list[dict[tuple[int, int], set[int]]] = [{} for _ in range(shape.rows + 1)]
    tasks: list[list[tuple[int, np.ndarray, Cells]]] = [[] for _ in range(shape.rows)]
    for row in range(shape.rows):
        for column in shape.columns(row):
            reads, reader = shape.reads(row, column), job.place(column)
            for other in reads:
                if (owner := job.place(other)) != reader:
                    moved[row - 1].setdefault((owner, reader), set()).add(other)
            if reader == rank:
                tasks[row].append(
                    (column, cells[row % 2][column], [cells[(row - 1) % 2][j] for j in reads])
                )
    rows = [
        (
            tasks[row],
            [
                (reader, tuple(sorted(c)))
                for (owner, reader), c in sorted(moved[row].items())
                if owner == rank
            ],
            [
                (owner, tuple(sorted(c)))
                for (owner, reader), c in sorted(moved[row].items())
                if reader == rank
            ],
        )
        for row in range(shape.rows)
    ]

    @functools.cache
    def message(half: int, columns: tuple[int, ...]) -> list[Any]:
        first, last = columns[0], columns[-1]
        part = memory[half, first : last + 1]
        if last - first + 1 == len(columns):
            return [part, MPI.INT64_T]
        places = [(c - first) * shape.cell for c in columns]
        return [part, 1, MPI.INT64_T.Create_indexed_block(shape.cell, places).Commit()]

    return rows, message
