"""Measurements that cannot be: no machine is made of them, whichever probe they come from."""

import pytest

from taskflow import Device, MachineModel, measure_machine
from taskflow.comm.transport import LocalTransport
from taskflow.cost import measure_links
from taskflow.cost.measure_gpu import measure_host_link
from taskflow.cost.plausible import Possible, possible, transfer_rate
from taskflow.cost.samples import fitted_rates
from tests.cost.test_measure_gpu import ModelStreams
from tests.refusals import assert_refused

AGAIN = "; something else may run there: measure again"


class Timed(ModelStreams):
    """Seconds of what is timed are what a test makes of them."""

    def __init__(self, seen):
        super().__init__()
        self._seen = seen

    def seconds_between(self, first, second):
        return self._seen(super().seconds_between(first, second))


HOST_LINKS = {
    "a clock that stands still": (
        lambda s: 0.0,
        "small copies to the device: 0 s, possible are 1e-09 to 10",
    ),
    "one that goes backwards": (
        lambda s: -s,
        "small copies to the device: -2.01e-06 s, possible are 1e-09 to 10",
    ),
    "small copies as slow as large ones": (
        lambda s: 2.76e-3,
        "copies to the device: inf bytes/s (4096 bytes in 0.00276 s and 268435456 bytes in 0.00276 s), "
        "possible are 100000 to 1e+14",
    ),
}


@pytest.mark.parametrize("case", HOST_LINKS)
def test_a_host_link(case):
    seen, said = HOST_LINKS[case]
    assert_refused(f"measure: {said}{AGAIN}", lambda: measure_host_link(Timed(seen)))


@pytest.mark.slow
@pytest.mark.parametrize("seen, said", [
    (lambda s: s * 1e-9, "products of 128 x 128: 2.05e+21 flop/s (2.04e-15 s), possible are 100000 to 1e+18"),
    (lambda s: s * 1e9, "products of 128 x 128: 2.05e+03 flop/s (2.04e+03 s), possible are 100000 to 1e+18"),
])  # fmt: skip
def test_a_gpu(seen, said):
    machine = MachineModel.uniform(1, Device("cuda"))
    assert_refused(f"measure: {said}{AGAIN}", lambda: measure_machine(machine, Timed(seen)))


RATES = {
    "products": ({64: 0.0}, {}, 1e-6, "products of 64 x 64: inf flop/s (0 s), possible are 100000 to 1e+18"),
    "slow products": ({64: 9.0}, {}, 1e-6, "products of 64 x 64: 5.83e+04 flop/s (9 s), possible are 100000 to 1e+18"),
    "copies": ({}, {512: 1e-15}, 1e-6, "copies of 512 bytes: 1.02e+18 bytes/s (1e-15 s), possible are 100000 to 1e+15"),
    "overhead": ({}, {}, -1e-6, "the overhead of calls: -1e-06 s, possible are 1e-09 to 10"),
}  # fmt: skip


@pytest.mark.parametrize("case", RATES)
def test_rates_of_a_device(case):
    products, copies, overhead, said = RATES[case]
    assert_refused(
        f"measure: {said}{AGAIN}", lambda: fitted_rates(Device(), overhead, products, copies)
    )


def test_a_link_between_ranks(monkeypatch):
    times = iter([[2e-3] * 5, [1e-3] * 5])
    monkeypatch.setattr(measure_links, "one_way_times", lambda *given, **options: next(times))
    said = (
        "measure: messages between ranks 0 and 0: inf bytes/s (8 bytes in 0.002 s and 1048576 bytes in 0.001 s), "
        f"possible are 100000 to 1e+14{AGAIN}"
    )
    assert_refused(said, lambda: measure_links.link_between(LocalTransport(), 0, 0))


@pytest.mark.parametrize("rate", Possible)
def test_both_bounds_are_taken_and_what_lies_outside_is_not(rate):
    for value in (rate.least, rate.most):
        assert possible("a rate", value, rate) == value
    for value in (rate.least * 0.99, rate.most * 1.01, float("nan"), 0.0):
        with pytest.raises(ValueError, match="measure: a rate: "):
            possible("a rate", value, rate)


def test_the_median_of_transfers_counts():
    assert transfer_rate("x", (0, 1000), [1e-3, 9.0, 1e-3], [2e-3, 2e-3, 1e-4]) == 1e6
