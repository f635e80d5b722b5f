"""Ways of running the same rows: devices of a kind, how many, what carries their data, in what detail they are run.

The laws hold for each of them (see `tests/mpi/test_laws.py`): `ALONE` are those of one process, `TOGETHER` those of
several ranks. An example draws the number of devices, and whether executors record times.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from taskflow import Device, Executor, MachineModel
from taskflow.comm import transport
from taskflow.core.system import world_size
from taskflow.tasks import moves
from tests import shim
from tests.collectives import by_copies
from tests.fake_gpu.streams import FakeStreams
from tests.strategies import DEVICES, Strategy, hosted, random_strategy

SIZE = world_size()
TRANSPORTS = "shared", "messages"
EMULATED = MachineModel.uniform(SIZE, Device("emulated", 0, 1 << 34, 1e11, 1e11, 1e-6), 1e10, 1e-5)
NAMES = ("compute", "receiving", "host copies", "within", "outputs", "next feeds")
STARVED = (None, *NAMES, *(f"{name} {device}" for name in NAMES for device in (0, 1)))
SEEDS = st.integers(0, 2**32 - 1)
Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass(frozen=True)
class Way:
    """See the module.

    Attributes:
        kind: of the devices.
        counts: numbers of devices, one of which is drawn.
        transports: what may carry data, each of which is tried.
        always: options of every executor.
        backend: makes what runs on GPUs, from a draw.
        missing: why it cannot be tried here; empty: it can.
    """

    name: str
    kind: str = "cpu"
    counts: tuple[int, ...] = (SIZE,)
    transports: tuple[str, ...] = ("auto",)
    always: Mapping[str, Any] = field(default_factory=dict)
    backend: Callable[[Draw], FakeStreams] | None = None
    missing: str = ""

    def __str__(self) -> str:
        return self.name

    def machine(self, draw: Draw) -> MachineModel:
        """Some devices."""
        count = draw(st.sampled_from(self.counts))
        if self.kind == "emulated":
            return hosted(MachineModel.uniform(count, EMULATED.devices[0], 1e10, 1e-5))
        return hosted(MachineModel.uniform(count).with_rates(kind=self.kind))

    def options(self, draw: Draw) -> dict[str, Any]:
        """Options of an executor, but for the transport and the backend; checked ones record."""
        record = {} if "watch" in self.always else {"record": draw(st.booleans())}
        return record | dict(self.always)

    def backend_options(self, draw: Draw) -> dict[str, Any]:
        """What runs on GPUs, as an option of an executor; nothing elsewhere."""
        return {"backend": self.backend(draw)} if self.backend else {}

    @contextmanager
    def setting(self, draw: Draw) -> Iterator[None]:
        """What holds while an example runs."""
        yield

    def placed(
        self, draw: Draw, models: st.SearchStrategy[Any]
    ) -> tuple[Any, MachineModel, Strategy]:
        """A model, a machine, and a strategy."""
        model, machine = draw(models), self.machine(draw)
        return model, machine, random_strategy(model.graph, machine, draw(SEEDS))


class Hosts(Way):
    """Any two devices sum and gather in one row, whose ranks are on one host or two: some share memory, and have
    messages, in small pieces, for others."""

    def machine(self, draw: Draw) -> MachineModel:
        each = draw(st.integers(1, SIZE))  # devices a host: rings where there are several
        count = draw(st.sampled_from((SIZE, MANY)))
        devices = tuple(Device(host=d // each) for d in range(count))
        return by_copies(hosted(MachineModel(devices, MachineModel.uniform(count).links)), 1)

    @contextmanager
    def setting(self, draw: Draw) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(moves, "ROOM_BYTES", draw(st.sampled_from([0, 40, 200])))
            on_hosts(patch, draw(st.integers(1, 2)))
            yield


class Uneven(Way):
    """Ranks of uneven pace: now and then one is late with what it does."""

    @contextmanager
    def setting(self, draw: Draw) -> Iterator[None]:
        generator = np.random.default_rng([draw(st.integers(0, 99)), transport.connect().rank])
        plain = Executor.__init__

        def make(step: Executor, *args: Any, **options: Any) -> None:
            plain(step, *args, **options)
            calls = step.program.calls
            for k in np.flatnonzero(generator.random(len(calls)) < 0.2).tolist():
                calls[k] = partial(call_late, calls[k], generator.random() * 1e-3)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Executor, "__init__", make)
            yield


def call_late(call: Callable[[], None], seconds: float) -> None:
    """Begin a call later."""
    time.sleep(seconds)
    call()


def on_hosts(patch: pytest.MonkeyPatch, count: int) -> None:
    """Deal the ranks out to hosts."""
    patch.setattr(transport, "_PIECE_BYTES", 100)
    patch.setattr(transport.connect(), "hosts", [rank * count // SIZE for rank in range(SIZE)])


def adversarial(draw: Draw) -> FakeStreams:
    """Streams that go on in any order, one of them as late as it may."""
    rank = transport.connect().rank if SIZE > 1 else 0
    return FakeStreams(draw(st.integers(0, 99)) + rank, draw(st.sampled_from(STARVED)))


def compiled(draw: Draw) -> FakeStreams:
    """Such streams on which kernels run as C++."""
    return shim.ShimStreams(draw(st.integers(0, 99)))


FEW, SOME = tuple(range(1, 5)), tuple(range(1, DEVICES + 1))
CHECKED = {"watch": True, "record": True}
ALONE = (
    Way("NumPy", counts=SOME),
    Way("checked memory", counts=SOME, always=CHECKED),
    Way("emulated", "emulated", counts=FEW),
    Way("GPU", "cuda", counts=SOME, backend=adversarial),
    Way(
        "GPU's kernels",
        "cuda",
        counts=FEW,
        always={"record": False},
        backend=compiled,
        missing="" if shim.COMPILER else "g++ is not installed",
    ),
)
MANY = 2 * SIZE + 1  # so that ranks drive several devices, and not as many as each other
TOGETHER = (
    Way("NumPy", transports=TRANSPORTS),
    Way("checked memory", transports=TRANSPORTS, always=CHECKED),
    Way("several devices", counts=(MANY,), transports=TRANSPORTS),
    Uneven("uneven pace", transports=TRANSPORTS, always={"record": False}),
    Hosts("hosts", transports=TRANSPORTS),
    Way("emulated", "emulated", counts=(SIZE, MANY)),
    Way("GPU", "cuda", transports=("auto", "shared", "messages", "nccl"), backend=adversarial),
)
WAYS = {str(way): way for way in (ALONE if SIZE == 1 else TOGETHER)}
