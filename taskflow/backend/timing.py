"""How long calls take on a device, by events on a stream of their own.

A call is captured many times over into one graph, so that what is timed is the device and not the host that launches:
5 to 8 us a kernel from Python, 1.2 us in a graph (measured on an H200). What cannot be captured is launched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from taskflow.backend.context import Array
from taskflow.backend.streams import Call, NotCapturable, StreamBackend
from taskflow.core.dtypes import is_floating, known_dtype
from taskflow.core.numbers import MIB

_MOST_CALLS = 200
_SHORTEST_SECONDS = 1e-7
_ROUNDS = 3
_COLD_SECONDS = 0.008  # of calls with what evicts their arrays, some 30 us on an H200
_BLOCK_BYTES = MIB


class DeviceClock:
    """Times calls on one device."""

    def __init__(self, backend: StreamBackend, device: int) -> None:
        self._backend = backend
        self.device = device
        self.stream = backend.make_stream(device, "timing")
        self._events = (
            backend.make_event(device, timed=True),
            backend.make_event(device, timed=True),
        )
        self._others: Array | None = None  # what the cache holds instead

    def seconds(self, call: Call, budget_seconds: float = 0.004) -> float:
        """Median seconds of a call, after one that is not counted."""
        backend = self._backend
        self._time(lambda: backend.run(self.stream, call))
        once = self._time(lambda: backend.run(self.stream, call))
        count = (
            budget_seconds / once if once > _SHORTEST_SECONDS else _MOST_CALLS
        )  # what is no time is measured again
        return self.seconds_each([call], int(min(max(count, 1), _MOST_CALLS)))

    def cold_seconds(self, call: Call) -> float:
        """As `seconds`, of a call that finds nothing of its arrays in the cache of the device.

        In a step that moves more than the cache holds, a kernel finds what was last used in the step before like that:
        parameters, say. Steps of an H200 were predicted 4 to 20 % too fast from kernels timed one after the other; how
        much of that this mends is not measured yet.
        """
        warm = self.seconds(call)
        if not (size := self._backend.l2_bytes(self.device)):
            return warm
        if self._others is None:
            self._others = self.array((2, size // 4), "int32")
        evict = partial(self._backend.xp.copyto, *self._others)
        evicting = self.seconds(evict)
        count = int(min(max(_COLD_SECONDS / (evicting + warm), 1), _MOST_CALLS))
        return max(
            warm, self.seconds_each([evict, call], count) - self.seconds_each([evict], count)
        )

    def seconds_each(self, calls: Sequence[Call], count: int) -> float:
        """Median seconds of `calls`, one after the other, made `count` times: on all ranks as often, if ranks wait."""
        launch = self._repeated(calls, count)
        self._time(launch)
        return float(np.median([self._time(launch) for _ in range(_ROUNDS)])) / count

    def _repeated(self, calls: Sequence[Call], count: int) -> Callable[[], object]:
        def issue() -> None:
            for call in (*calls,) * count:
                self._backend.run(self.stream, call)

        try:
            return self._backend.capture(self.stream, issue)
        except NotCapturable:
            return issue

    def _time(self, launch: Callable[[], object]) -> float:
        begin, end = self._events
        self._backend.record(self.stream, begin)
        launch()
        self._backend.record(self.stream, end)
        self._backend.synchronize(end)
        return self._backend.seconds_between(begin, end)

    def array(self, shape: tuple[int, ...], dtype: str) -> Array:
        """An array of the device: numbers between 0.1 and 1, or zeros where an index may be expected.

        Numbers, since a product of zeros takes less power, and so less time.
        """
        dtype = known_dtype("array", dtype)
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        array: Array = self._backend.zeros(self.device, size).view(dtype)
        if is_floating(dtype):
            block = (
                np.random.default_rng(0)
                .uniform(0.1, 1.0, min(array.size, _BLOCK_BYTES))
                .astype(dtype)
            )
            self._backend.write(array[: block.size], block)
            self._spread(array, block.size)
        return array.reshape(shape)

    def _spread(self, array: Array, held: int) -> None:
        """Copy the first `held` numbers over the rest, twice as many each time."""
        copyto = self._backend.xp.copyto
        while held < array.size:
            more = min(held, array.size - held)
            source = array[:more]
            target = array[held : held + more]
            self._time(partial(self._backend.run, self.stream, partial(copyto, target, source)))
            held += more
