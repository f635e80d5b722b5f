"""Outside of steps a rank that waits for others sleeps."""

import resource
import time

import pytest

from taskflow.comm.transport import connect

pytestmark = pytest.mark.two_ranks  # with more it takes no other way


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@pytest.mark.slow
@pytest.mark.parametrize(
    "meet", [lambda t: t.gather(t.rank), lambda t: t.barrier()], ids=["gather", "barrier"]
)
def test_a_rank_that_waits_a_second_leaves_its_core_to_others(meet):
    transport = connect()
    if transport.size == 1:
        pytest.skip("a rank alone waits for nobody")
    transport.barrier()
    if transport.rank == 0:
        time.sleep(1.0)  # what is tested is a wait, and nothing else makes one
    begin, before = time.monotonic(), cpu_seconds()
    meet(transport)
    waited, used = time.monotonic() - begin, cpu_seconds() - before
    assert used < 0.2
    assert transport.rank == 0 or waited > 0.9


def test_what_sleepers_gather_is_in_order():
    transport = connect()
    for number in range(50):
        assert transport.gather((transport.rank, number)) == [
            (rank, number) for rank in range(transport.size)
        ]
