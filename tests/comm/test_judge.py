"""Who is at fault: every fault from the reports alone, and nobody who takes his time."""

import pytest

from taskflow.comm.judge import Fault, RankState, Report, Stage, judge

LONG = 5000


def report(rank, **about):
    """A rank that is well, but for what is said; times in milliseconds."""
    well = {
        "state": RankState.RUNS,
        "stage": Stage.RUNS,
        "meetings": 7,
        "step": -1,
        "waits": 0,
        "still": 0,
        "stopped": 0,
        "phase": 0,
    }
    return Report(0, rank, **(well | about))


def found(*reports, size=None, patience=5.0, gone=()):
    """The verdict on these ranks."""
    return judge(
        {r.rank: r for r in reports}, size or len(reports), patience, lambda rank: rank in gone
    )


STOPPED = {"state": RankState.STOPPED, "stopped": LONG}
AT_FAULT = {
    Fault.DIED: report(1, state=RankState.GONE),
    Fault.SAID: report(1, stage=Stage.SAID, state=RankState.GONE),
    Fault.FAILED: report(1, stage=Stage.FAILED, meetings=0),
    Fault.STOPPED: report(1, **STOPPED),
    Fault.STANDS: report(1, step=3, still=LONG),
    Fault.LEFT: report(1, stage=Stage.DONE, state=RankState.GONE, meetings=6),
}


@pytest.mark.parametrize("fault", AT_FAULT)
def test_who_is_at_fault_is_found(fault):
    waiting = report(0, step=3, waits=1, still=LONG)
    assert found(waiting, AT_FAULT[fault]) == (1, fault)
    assert found(waiting, report(1)) is None


def test_time_alone_is_no_fault():
    assert found(report(0, still=10 * LONG), report(1, waits=1, still=10 * LONG)) is None
    assert found(report(0, step=3, still=LONG - 1), report(1, step=3, waits=1, still=LONG)) is None
    assert found(report(0, step=3, still=LONG), report(1), patience=0.0) is None
    assert found(report(0, **STOPPED), report(1), patience=0.0) is None


def test_when_all_wait_for_each_other_in_a_step_it_ends():
    waiting = [report(rank, step=3, waits=1, still=LONG) for rank in range(2)]
    assert found(*waiting) == (0, Fault.STANDS)
    assert found(*waiting, size=3) is None  # the third may come


def test_a_job_that_is_suspended_is_left_alone():
    assert found(report(0, **STOPPED), report(1, **STOPPED)) is None


def test_who_has_left_is_at_fault_only_if_one_waits_in_a_meeting_that_he_missed():
    waiting = report(0, waits=1, still=2000, meetings=7)
    for stage in (Stage.LEAVING, Stage.DONE):
        assert found(waiting, report(1, stage=stage, meetings=6)) == (1, Fault.LEFT)
        assert found(waiting, report(1, stage=stage, meetings=7)) is None
        assert found(waiting._replace(still=1999), report(1, stage=stage, meetings=6)) is None
        assert found(waiting._replace(waits=0), report(1, stage=stage, meetings=6)) is None


def test_who_waits_in_vain_has_not_died_of_himself():
    died = report(0, waits=1, meetings=7, state=RankState.GONE)
    assert found(died, report(1, stage=Stage.DONE, meetings=6)) == (1, Fault.LEFT)
    assert found(died, report(1, stage=Stage.DONE, meetings=7)) == (0, Fault.DIED)
    assert found(died._replace(waits=0), report(1, stage=Stage.DONE, meetings=6)) == (0, Fault.DIED)


def test_who_never_came_is_at_fault_if_he_is_gone():
    waiting = report(0, waits=1, still=2000)
    assert found(waiting, size=2, gone=[1]) == (1, Fault.LEFT)
    assert found(waiting, size=2) is None
