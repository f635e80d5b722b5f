"""Devices and links: the parts of a machine, with their published or measured rates.

Rates are in flop/s and bytes/s, times in seconds, sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from math import inf
from numbers import Integral, Real
from operator import attrgetter

from taskflow.core.numbers import GIB, flag

KINDS = ("cpu", "cuda", "emulated")
LINK_KINDS = ("nvlink", "pci", "network")
OTHER_DTYPES = ("float64", "float16", "bfloat16", "tf32")
_LARGEST_BYTES, _SMALLEST_RATE, _LARGEST_RATE, _LONGEST_SECONDS = (
    1 << 60,
    1e-3,
    1e24,
    86_400.0,
)  # else a slip


@dataclass(frozen=True, slots=True)
class Device:
    """A place that holds instances and runs tasks.

    A task of f flops and b bytes reaches the share f / (f + half_flops) of `compute_efficiency * flops_per_second`, or
    b / (b + half_bytes) of `memory_efficiency * memory_bandwidth` (Hockney's half-performance length). See
    `machine.efficiency`.

    Attributes:
        kind: `cpu`, `cuda` or `emulated`.
        host: number of the host that it sits in; devices of one host may share memory.
        memory_bytes: what instances may take, and what follows.
        reserved_bytes: of it, what no instance has: the driver's context, kernels and workspaces of libraries.
        communicator_bytes: buffers of the library for each group of devices in which it communicates.
        flops_per_second: peak rate of float32.
        memory_bandwidth: peak bytes/s read or written by one kernel.
        overhead_seconds: fixed cost of one task: its launch.
        step_seconds: of a `cuda` device, what a step takes besides its tasks: until the host has launched its graph.
        rates: peak flop/s of other dtypes: `float64` (else half of float32's), `float16`, `bfloat16` (else float32's),
            `tf32`: float32 arrays multiplied in TensorFloat-32, where a cost model asks for it.
        compute_efficiency, memory_efficiency: share of the peaks that the largest tasks reach, step after step.
        burst_efficiency: share of the peak flop/s of one product on an idle device, before its power is limited; 0: as
            `compute_efficiency`.
        attention: the kernel of attention in one operator, a key of `attention_shares`; else it computes as others do.
        attention_shares: kernel -> share of the peak flop/s of its forward and backward pass, causal work by half.
        exposed_share: share of a task's shorter side, of what it computes or moves, that the other does not hide.
        half_flops: flops at which a float32 task reaches half of that; other dtypes take the same time longer.
        half_bytes: bytes at which a task reaches half of that.
        sends_by_link: whether transfers over different links of this device go on at the same time.
        collective_share: share of its compute that a collective takes while it is under way.
        joules_per_flop: of float32; of other dtypes so many times less as their rate is higher. None: not known.
        joules_per_byte: of what kernels read and write in its memory.
        watts: that it draws all the time, whatever it does.
    """

    kind: str = "cpu"
    host: int = 0
    memory_bytes: int = 8 * GIB
    flops_per_second: float = 5e10
    memory_bandwidth: float = 1e10
    overhead_seconds: float = 2e-6
    rates: Mapping[str, float] = field(default_factory=dict, hash=False)
    compute_efficiency: float = 1.0
    memory_efficiency: float = 1.0
    half_flops: float = 0.0
    half_bytes: float = 0.0
    sends_by_link: bool = False
    collective_share: float = 0.0
    reserved_bytes: int = 0
    communicator_bytes: int = 0
    burst_efficiency: float = 0.0
    exposed_share: float = 0.0
    attention: str = ""
    attention_shares: Mapping[str, tuple[float, float]] = field(default_factory=dict, hash=False)
    joules_per_flop: float | None = None
    joules_per_byte: float | None = None
    watts: float | None = None
    step_seconds: float = 0.0

    def __post_init__(self) -> None:
        where = f"{self.kind} device of host {self.host}"
        if self.kind not in KINDS:
            raise ValueError(f"device: kind is one of {', '.join(KINDS)}, not '{self.kind}'")
        if not isinstance(self.host, Integral) or isinstance(self.host, bool) or self.host < 0:
            raise ValueError(f"{self.kind} device: host is a number from 0, not {self.host!r}")
        check_positive(where, "memory_bytes", self.memory_bytes, _LARGEST_BYTES)
        if not isinstance(self.memory_bytes, Integral):
            raise ValueError(f"{where}: memory_bytes is a whole number, not {self.memory_bytes!r}")
        for name in ("reserved_bytes", "communicator_bytes"):
            check_not_negative(where, name, value := getattr(self, name), _LARGEST_BYTES)
            if not isinstance(value, Integral):
                raise ValueError(f"{where}: {name} is a whole number, not {value!r}")
        for name in ("flops_per_second", "memory_bandwidth"):
            check_positive(where, name, getattr(self, name))
        check_not_negative(where, "overhead_seconds", self.overhead_seconds, _LONGEST_SECONDS)
        check_not_negative(where, "step_seconds", self.step_seconds, _LONGEST_SECONDS)
        for name in ("half_flops", "half_bytes"):
            check_not_negative(where, name, getattr(self, name), _LARGEST_RATE)
        for name in ("compute_efficiency", "memory_efficiency"):
            _check_share(where, name, getattr(self, name))
        if not (_is_number(self.collective_share) and 0 <= self.collective_share < 1):
            raise ValueError(
                f"{where}: collective_share is from 0 to below 1, not {self.collective_share!r}"
            )
        for name in ("burst_efficiency", "exposed_share"):
            if not (_is_number(value := getattr(self, name)) and 0 <= value <= 1):
                raise ValueError(f"{where}: {name} is from 0 to 1, not {value!r}")
        flag(where, "sends_by_link", self.sends_by_link)
        for name in ("joules_per_flop", "joules_per_byte", "watts"):
            _check_known(where, name, getattr(self, name))
        self._check_rates(where)
        self._check_attention(where)

    def _check_rates(self, where: str) -> None:
        if not isinstance(self.rates, Mapping):
            raise ValueError(f"{where}: rates are flop/s by dtype, not {self.rates!r}")
        for dtype, rate in self.rates.items():
            if dtype not in OTHER_DTYPES:
                raise ValueError(
                    f"{where}: rates are of {', '.join(OTHER_DTYPES)}, not of '{dtype}'"
                )
            check_positive(where, f"the rate of {dtype}", rate)

    def _check_attention(self, where: str) -> None:
        shares = self.attention_shares
        if not isinstance(shares, Mapping):
            raise ValueError(f"{where}: attention_shares are by kernel, not {shares!r}")
        for kernel, pair in shares.items():
            if len(pair) != 2 or not all(_is_number(x) and 0 < x <= 1 for x in pair):
                raise ValueError(
                    f"{where}: the shares of '{kernel}' are two numbers above 0 and at most 1, not {pair!r}"
                )
        if self.attention and self.attention not in shares:
            kernels = ", ".join(shares) or "none"
            raise ValueError(f"{where}: attention is '{self.attention}', there is {kernels}")

    @property
    def free_bytes(self) -> int:
        """Memory for instances and communicators."""
        return self.memory_bytes - self.reserved_bytes

    @property
    def alone(self) -> tuple[object, ...]:
        """All of it but its host."""
        return *_alone(self), *(tuple(sorted(table.items())) for table in _tables(self))

    def attention_share(self, is_backward: bool) -> float:
        """Share of the peak flop/s that attention in one operator reaches."""
        if not self.attention:
            return self.compute_efficiency
        return self.attention_shares[self.attention][is_backward]

    def rate(self, dtype: str) -> float:
        """Peak flop/s of a dtype; integers count as float32."""
        return self.rates.get(dtype, self.flops_per_second / (2 if dtype == "float64" else 1))


SLOWED = "flops_per_second", "rates", "memory_bandwidth", "overhead_seconds"


def slowed(device: Device, factor: float) -> Device:
    """The device, all of whose tasks take so many times as long."""
    return replace(
        device,
        flops_per_second=device.flops_per_second / factor,
        rates={dtype: rate / factor for dtype, rate in device.rates.items()},
        memory_bandwidth=device.memory_bandwidth / factor,
        overhead_seconds=device.overhead_seconds * factor,
    )


_TABLES = ("rates", "attention_shares")
_tables = attrgetter(*_TABLES)
_alone = attrgetter(*(f.name for f in fields(Device) if f.name not in ("host", *_TABLES)))


@dataclass(frozen=True, slots=True)
class Link:
    """A directed connection that transfers occupy one after the other.

    Attributes:
        ends: the two places it joins: device numbers, or names of switches.
        bandwidth: bytes/s that it is sold with.
        latency_seconds: of one transfer.
        kind: its class, which decides how a library sends over it: `nvlink`, `pci` or `network`.
        efficiency: the share of its bandwidth that the largest transfers reach.
        joules_per_byte: that it carries; None: not known.
    """

    ends: tuple[int | str, int | str]
    bandwidth: float
    latency_seconds: float = 0.0
    kind: str = "pci"
    efficiency: float = 1.0
    joules_per_byte: float | None = None

    def __post_init__(self) -> None:
        where = f"link {self.ends[0]}->{self.ends[1]}"
        for end in self.ends:
            if not isinstance(end, str) and (
                isinstance(end, bool) or not isinstance(end, Integral)
            ):
                raise ValueError(
                    f"{where}: ends at a number of a device or the name of a switch, not {end!r}"
                )
        first, second = (end if isinstance(end, str) else int(end) for end in self.ends)
        object.__setattr__(self, "ends", (first, second))
        if self.ends[0] == self.ends[1]:
            raise ValueError(f"{where}: joins two different places")
        check_positive(where, "bandwidth", self.bandwidth)
        check_not_negative(where, "latency_seconds", self.latency_seconds, _LONGEST_SECONDS)
        if self.kind not in LINK_KINDS:
            raise ValueError(f"{where}: kind is one of {', '.join(LINK_KINDS)}, not {self.kind!r}")
        _check_share(where, "efficiency", self.efficiency)
        _check_known(where, "joules_per_byte", self.joules_per_byte)

    @property
    def rate(self) -> float:
        """bytes/s that the largest transfers reach."""
        return self.efficiency * self.bandwidth


def check_positive(where: str, name: str, value: object, most: float = _LARGEST_RATE) -> None:
    """Refuse what is no positive number, or one that cannot be meant."""
    if not _is_number(value) or not 0 < value < inf:  # type: ignore[operator]
        raise ValueError(f"{where}: {name} is a positive number, not {value!r}")
    if not _SMALLEST_RATE <= value <= most:  # type: ignore[operator]
        raise ValueError(
            f"{where}: {name} is a number from {_SMALLEST_RATE:g} to {most:g}, not {value!r}"
        )


def check_not_negative(where: str, name: str, value: object, most: float = inf) -> None:
    """Refuse what is no finite number from 0 to `most`."""
    if not _is_number(value) or not 0 <= value < inf:  # type: ignore[operator]
        raise ValueError(f"{where}: {name} is a number from 0, not {value!r}")
    if value > most:  # type: ignore[operator]
        raise ValueError(f"{where}: {name} is at most {most:g}, not {value!r}")


def _check_known(where: str, name: str, value: object) -> None:
    if value is not None:
        check_not_negative(where, name, value, _LARGEST_RATE)


def _check_share(where: str, name: str, value: float) -> None:
    if not (_is_number(value) and 0 < value <= 1):
        raise ValueError(f"{where}: {name} is above 0 and at most 1, not {value!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
