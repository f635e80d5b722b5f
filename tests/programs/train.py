"""Trains the network of tests/kept.py with checkpoints and prints a digest of what came out: `train.py folder ...`."""

import argparse
import hashlib
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import taskflow
from tests import kept


def main() -> None:
    """Train, perhaps with an accident on rank 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--every", type=int)
    parser.add_argument("--rule", default="data_parallel")
    parser.add_argument("--accident", choices=("raise", "leave", "kill", "stop", "hang"))
    parser.add_argument(
        "--at", type=int, default=7, help="the step of the accident, which is rank 1's"
    )
    options = parser.parse_args()

    trainer = kept.trainer(getattr(taskflow, options.rule))
    step, batches = trainer.step, kept.batches()
    if options.accident and step.transport.rank == 1:
        load = batches.epoch

        def epoch(number):
            for feeds in load(number):
                yield dict(feeds) | {"x": accident(step, options, feeds["x"])}

        batches.epoch = epoch
    history = trainer.fit(batches, options.epochs, checkpoint=options.folder, every=options.every)
    digest = hashlib.blake2b(
        repr((kept.bits(step), step.steps, history.outputs)).encode(), digest_size=8
    )
    if step.transport.rank == 0:
        print(f"digest {digest.hexdigest()} after step {step.steps}")


def accident(step, options, load):
    """A feed in the middle of which the accident happens."""

    def feed(rect):
        if step.steps == options.at:
            Path(options.folder).mkdir(exist_ok=True)
            Path(options.folder, "accident").touch()
            if options.accident == "raise":
                raise RuntimeError("no such image")
            if options.accident == "leave":
                sys.exit("out of data")
            if options.accident == "hang":
                time.sleep(60)
            os.kill(os.getpid(), signal.SIGKILL if options.accident == "kill" else signal.SIGTERM)
        return load(rect)

    return feed


if __name__ == "__main__":
    main()
