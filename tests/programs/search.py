"""A search on all ranks that only Ctrl-C ends: `search.py folder what`, with `command` or `trainer` for what."""

import sys
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import taskflow
from taskflow import cli
from taskflow.cli import search as command
from taskflow.comm.interrupt import noted_interrupt
from taskflow.core.system import world_rank
from taskflow.searching import at_home
from taskflow.searching.budget import Budget
from taskflow.searching.searching import search_on
from tests.lowered import network

ROOT = Path(__file__).parents[2]
FOLDER, WHAT = Path(sys.argv[1]), sys.argv[2]
FOUND = FOLDER / "s.json"


def is_ready():
    (FOLDER / f"{world_rank()}.ready").touch()


def tell(done, best):
    """Leave a file when a search is under way."""
    if done == 10:
        is_ready()


def endless(*arguments, progress, **options):
    """A search of any number of proposals."""
    return taskflow.search(*arguments, progress=tell, **options | {"proposals": 10**8})


def endless_on(transport, problem, budget, *arguments, progress, **options):
    """One of such a search at home."""
    budget = Budget(10**8, budget.seconds)
    return search_on(transport, problem, budget, *arguments, progress=tell, **options)


@contextmanager
def waiting(note):
    """So does a rank that waits for the search of another."""
    with noted_interrupt(note):
        is_ready()
        yield


def main() -> int:
    """Search; write what is found."""
    command.search = endless
    at_home.search_on = endless_on
    at_home.noted_interrupt = waiting
    if WHAT == "command":
        return cli.main(
            ["search", f"{ROOT}/tests/lowered.py:network", "--devices", "4", "--out", str(FOUND)]
        )
    machine = taskflow.MachineModel.uniform(4)
    try:
        taskflow.Trainer(network(), machine=machine, costs=taskflow.CostModel.analytic(machine))
    except taskflow.SearchInterrupted as interrupted:
        if world_rank() == 0:
            interrupted.result.strategy.save(FOUND)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
