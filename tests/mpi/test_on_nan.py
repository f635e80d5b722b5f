"""Ranks agree, before the first update of a step, whether they give it up, and go back together."""

import numpy as np
import pytest

from tests.train.test_on_nan import BAD, Spoilt, Without, kept, trainer
from tests.ways import SIZE, TRANSPORTS

pytestmark = pytest.mark.two_ranks  # on more: test_laws, a step that is given up

WAYS = [("cpu", way, record) for way in TRANSPORTS for record in (False, True)]
WAYS += [("emulated", "auto", True), *(("cuda", way, False) for way in (*TRANSPORTS, "nccl"))]


@pytest.mark.parametrize(("kind", "transport", "record"), WAYS)
def test_all_ranks_skip_alike(comm, kind, transport, record):
    """The bad numbers are on the last rank alone; what follows is what one process gives."""
    options = {"executor": {"transport": transport, "record": record}}
    run, plain = trainer(kind, **options), trainer(kind, **options)

    class Late(Spoilt):
        def epoch(self, number):
            for k, feeds in enumerate(self.batches.epoch(number)):
                load = feeds["x"]
                if number * len(self) + k == BAD:
                    feeds = feeds | {
                        "x": lambda rect, load=load: (
                            load(rect) * (np.nan if rect.hi[0] == 12 else 1)
                        )
                    }
                yield feeds

    history = run.fit(Late(), 2, on_nan="skip")
    assert history.refused == 1 and run.step.steps == 10
    before = plain.fit(kept.batches(), 1)
    assert history.outputs["loss"][0] == before.outputs["loss"][0]
    assert all(np.isfinite(run.step.read(name)).all() for name in run.step.persistent)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_all_ranks_go_back(transport):
    run, twin = (
        trainer(executor={"transport": transport}),
        trainer(executor={"transport": transport}),
    )
    assert run.fit(Spoilt(BAD), 3, on_nan="back").refused == 1
    twin.fit(Without(5, 6, BAD), 3)
    assert SIZE and kept.bits(run.step) == kept.bits(twin.step)
