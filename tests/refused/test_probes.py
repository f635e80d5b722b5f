"""Measurements that cannot be: no machine is made of them, whichever probe they come from."""

from functools import partial

import pytest

from taskflow import Device, MachineModel, measure_machine
from taskflow.comm.transport import LocalTransport
from taskflow.cost import measure_links
from taskflow.cost.measure_gpu import measure_host_link
from taskflow.cost.plausible import Possible, possible, transfer_rate
from taskflow.cost.samples import fitted_rates
from tests.cost.test_measure_gpu import ModelStreams
from tests.refusals import each_refused


class Timed(ModelStreams):
    """Seconds of what is timed are what a test makes of them."""

    def __init__(self, seen):
        super().__init__()
        self._seen = seen

    def seconds_between(self, first, second):
        return self._seen(super().seconds_between(first, second))


def host_link(seen):
    return lambda: measure_host_link(Timed(seen))


def gpu(seen):
    return lambda: measure_machine(MachineModel.uniform(1, Device("cuda")), Timed(seen))


def rates(overhead=1e-6, products=None, copies=None):
    return lambda: fitted_rates(Device(), overhead, products or {}, copies or {})


def link_between_ranks(monkeypatch):
    times = iter([[2e-3] * 5, [1e-3] * 5])
    monkeypatch.setattr(measure_links, "one_way_times", lambda *given, **options: next(times))
    measure_links.link_between(LocalTransport(), 0, 0)


MEASURED = [
    (
        "a clock that stands still",
        host_link(lambda s: 0.0),
        "small copies to the device: 0 s, possible are 1e-09 to 10",
    ),
    (
        "one that goes backwards",
        host_link(lambda s: -s),
        "small copies to the device: -2.01e-06 s, possible are 1e-09 to 10",
    ),
    (
        "small copies as slow as large ones",
        host_link(lambda s: 2.76e-3),
        "copies to the device: inf bytes/s (4096 bytes in 0.00276 s and 268435456 bytes in 0.00276 s), "
        "possible are 100000 to 1e+14",
    ),
    (
        "a fast GPU",
        gpu(lambda s: s * 1e-9),
        "products of 128 x 128: 2.05e+21 flop/s (2.04e-15 s), possible are 100000 to 1e+18",
    ),
    (
        "a slow GPU",
        gpu(lambda s: s * 1e9),
        "products of 128 x 128: 2.05e+03 flop/s (2.04e+03 s), possible are 100000 to 1e+18",
    ),
    (
        "products",
        rates(products={64: 0.0}),
        "products of 64 x 64: inf flop/s (0 s), possible are 100000 to 1e+18",
    ),
    (
        "slow products",
        rates(products={64: 9.0}),
        "products of 64 x 64: 5.83e+04 flop/s (9 s), possible are 100000 to 1e+18",
    ),
    (
        "copies",
        rates(copies={512: 1e-15}),
        "copies of 512 bytes: 1.02e+18 bytes/s (1e-15 s), possible are 100000 to 1e+15",
    ),
    ("overhead", rates(-1e-6), "the overhead of calls: -1e-06 s, possible are 1e-09 to 10"),
    (
        "a link between ranks",
        link_between_ranks,
        "messages between ranks 0 and 0: inf bytes/s (8 bytes in 0.002 s and 1048576 bytes in 0.001 s), "
        "possible are 100000 to 1e+14",
    ),
]
# Values beside the bounds, as a message has them, and the bounds.
BESIDE = {
    Possible.PRODUCTS: ("9.9e+04", "1.01e+18", "flop/s", "100000 to 1e+18"),
    Possible.MEMORY: ("9.9e+04", "1.01e+15", "bytes/s", "100000 to 1e+15"),
    Possible.LINK: ("9.9e+04", "1.01e+14", "bytes/s", "100000 to 1e+14"),
    Possible.CALL: ("9.9e-10", "10.1", "s", "1e-09 to 10"),
}
AGAIN = "something else may run there: measure again"
REFUSED = [
    *((what, call, f"measure: {said}; {AGAIN}") for what, call, said in MEASURED),
    *(
        (
            f"{rate.name} of {value}",
            partial(possible, "a rate", float(value), rate),
            f"measure: a rate: {value} {unit}, possible are {bounds}; {AGAIN}",
        )
        for rate, (low, high, unit, bounds) in BESIDE.items()
        for value in (low, high, "nan", "0")
    ),
]
test_refused = each_refused(REFUSED)


@pytest.mark.parametrize("rate", Possible)
def test_both_bounds_are_taken(rate):
    assert rate in BESIDE
    for value in (rate.least, rate.most):
        assert possible("a rate", value, rate) == value


def test_the_median_of_transfers_counts():
    assert transfer_rate("x", (0, 1000), [1e-3, 9.0, 1e-3], [2e-3, 2e-3, 1e-4]) == 1e6
