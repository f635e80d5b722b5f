"""A search on all ranks that only Ctrl-C ends: `search.py folder what`, with `command` or `trainer` for what."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import taskflow
from taskflow import cli
from taskflow.core.system import world_rank
from taskflow.train import trainer
from tests.lowered import network

ROOT = Path(__file__).parents[2]
FOLDER, WHAT = Path(sys.argv[1]), sys.argv[2]
FOUND = FOLDER / "s.json"


def endless(*arguments, progress, **options):
    """A search that leaves a file when it is under way."""

    def tell(done, best):
        if done == 10:
            (FOLDER / f"{world_rank()}.ready").touch()

    return taskflow.search(*arguments, progress=tell, **options | {"proposals": 10**8})


def main() -> int:
    """Search; write what is found."""
    cli.search.search = trainer.search = endless
    if WHAT == "command":
        return cli.main(["search", f"{ROOT}/tests/lowered.py:network", "--devices", "4", "--out", str(FOUND)])
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
