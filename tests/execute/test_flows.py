"""The ledger of shared links knows the ends that the fair pass gives, in whatever order beginnings become known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskflow.core.columns import pointers
from taskflow.execute import flows as module
from taskflow.execute.flows import FlowLedger
from taskflow.tasks.fair import Loads, fair_pass, turn_round
from tests.strategies import examples

FLOWS, LINKS = 30, 3
LATEST = 0.15  # seconds; the ledger takes up to 0.2


def flows(random):
    """Loads and seconds of transfers that cross one to three links."""
    crossed = [np.flatnonzero(random.random(LINKS) < 0.5) for _ in range(FLOWS)]
    crossed = [links if len(links) else np.array([0]) for links in crossed]
    width = random.choice([1.0, 2.0, 5.0], LINKS)
    peak = np.array([width[links].min() for links in crossed])
    part = np.concatenate([1 / width[links] for links in crossed])
    loads = Loads(
        pointers([len(c) for c in crossed]),
        np.concatenate(crossed),
        part,
        peak,
        np.full(FLOWS, 0.01),
    )
    return loads, random.uniform(0.02, 0.3, FLOWS)


def ends_at_once(loads, seconds, begin):
    """By one pass in which a row that takes `begin` stands before every transfer."""
    both = turn_round(2 * FLOWS, np.arange(FLOWS), FLOWS + np.arange(FLOWS))
    none = np.zeros(FLOWS, np.int64)
    wide = Loads(
        np.concatenate([none, loads.ptr]),
        loads.link,
        loads.part,
        *(np.append(none, c) for c in loads[3:]),
    )
    return fair_pass(both, wide, np.append(begin, seconds))[1][FLOWS:]


@examples(100)
@given(st.integers(0, 2**32))
def test_ends_are_those_of_the_fair_pass_however_late_beginnings_are_known(seed):
    random = np.random.default_rng(seed)
    loads, seconds = flows(random)
    begin = 100.0 + np.sort(random.uniform(0.0, 2.0, FLOWS))
    known = begin + random.uniform(-0.001, LATEST, FLOWS)
    ledgers = [FlowLedger(loads, seconds, begun) for begun in [np.zeros(FLOWS)] * 2]
    with pytest.MonkeyPatch.context() as patch:
        for row in np.argsort(known):
            patch.setattr(module.time, "monotonic", lambda now=known[row]: now)
            assert ledgers[0].end(row) == 0.0
            ledgers[0].begin(row, begin[row])
        patch.setattr(module.time, "monotonic", lambda: begin.max())
        ledgers[1].look()  # another rank that looks once
    expected = ends_at_once(loads, seconds, begin)
    for ledger in ledgers:
        assert [ledger.end(row) for row in range(FLOWS)] == pytest.approx(expected, abs=1e-9)
    assert (expected > begin + seconds + 1e-9).any()  # some were slowed


def test_what_begins_later_delays_what_is_under_way():
    loads = Loads(np.array([0, 1, 2]), np.zeros(2, np.int64), np.ones(2), np.ones(2), np.zeros(2))
    now = module.time.monotonic()
    ledger = FlowLedger(loads, np.ones(2), np.zeros(2))
    ledger.begin(0, now)
    assert ledger.end(0) == now + 1
    ledger.begin(1, now + 0.5)
    assert [ledger.end(row) - now for row in range(2)] == pytest.approx([1.5, 2.0])
    ledger.clear([0, 1])
    assert ledger.end(0) == 0.0
