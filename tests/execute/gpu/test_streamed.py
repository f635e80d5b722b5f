"""Programs for GPUs on fake streams: missing events, captured steps, feeds and outputs."""

import re
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import ops
import taskflow
from taskflow import Device, Executor, Graph, Kind, MachineModel, lower
from taskflow.backend import NotCapturable
from taskflow.core.errors import InternalError
from taskflow.execute.gpu import replay
from tests import laws, tiny
from tests.fake_gpu.streams import FakeStreams
from tests.strategies import random_strategy
from tests.ways import STARVED


def on_gpus(machine):
    return machine.with_rates(kind="cuda")


def run(task_graph, feeds, backend, **options):
    """What the steps with these feeds give, in order, and the persistent regions after the last."""
    with Executor(task_graph, seed=3, allow_nan=True, backend=backend, **options) as step:
        arenas = step.memory.arenas
        values = []
        for feed in feeds:
            for device, arena in arenas.items():
                arena[int(step.plan.persistent_bytes[device]) :] = (
                    0xFF  # NaN: nobody reads what was not written
                )
            values.append(step(feed))
        return {f"{n} {k}": v for k, found in enumerate(values) for n, v in found.items()} | {
            name: step.read(name) for name in step.persistent
        }


# -- events ------------------------------------------------------------------------------------------------------------


def network():
    """Layers of which several devices share all, with momentum, and two inputs."""
    graph = Graph()
    x, t = graph.input("x", (6, 4), "float64"), graph.input("t", (6, 3), "float64")
    h = ops.tanh(ops.linear(x, 5, name="fc1"))
    graph.output("h", h)
    ops.sgd(ops.mean_squared_error(ops.linear(h, 3, name="fc2"), t), lr=0.5, momentum=0.9)
    return graph


def feeds(count=3):
    generator = np.random.default_rng(0)
    return [
        {"x": generator.normal(size=(6, 4)), "t": generator.normal(size=(6, 3))}
        for _ in range(count)
    ]


PLAN_EVENTS = replay.plan_events


def without_wait(item, other):
    """`plan_events` with one wait left out."""

    def plan(*program):
        found = PLAN_EVENTS(*program)
        waits = tuple(
            tuple(o for o in others if (k, o) != (item, other))
            for k, others in enumerate(found.waits)
        )
        return replace(found, waits=waits)

    return plan


def all_waits(task_graph, monkeypatch):
    """Every wait of a program as (item, other), but for those of copies whose result nobody needs."""
    plans = []
    with monkeypatch.context() as patch:
        patch.setattr(
            replay, "plan_events", lambda *args: plans.append(PLAN_EVENTS(*args)) or plans[-1]
        )
        with Executor(task_graph, backend=FakeStreams()) as step:
            rows = [step._rows[item.row] for item in step._streamed.issue.items]
            needed = {dep for row in range(len(step._rows)) for dep in step._rows.deps(row)}
    idle = {k + 1 for k, row in enumerate(rows) if row.kind == Kind.COPY and row.row not in needed}
    return [(k, o) for k, others in enumerate(plans[0].waits) for o in others if not {k, o} & idle]


@pytest.mark.slow
@pytest.mark.parametrize("is_captured", [False, True])
def test_any_missing_event_is_found(is_captured, monkeypatch):
    """Each wait of a program in turn is left out; starving one stream or another, some number is wrong.

    Every second one is left out of a captured step, the others of one that is not.
    """
    graph, machine = network(), MachineModel.uniform(2, Device(kind="cuda"))
    task_graph = lower(graph, random_strategy(graph, machine, 2), machine)
    expected = run(task_graph, feeds(), FakeStreams())
    waits = all_waits(task_graph, monkeypatch)
    assert len(waits) > 20
    for wait in waits[int(is_captured) :: 2]:
        monkeypatch.setattr(replay, "plan_events", without_wait(*wait))
        assert any(is_wrong(task_graph, expected, starve, not is_captured) for starve in STARVED), (
            f"{wait} is not missed"
        )


def is_wrong(task_graph, expected, starve, record):
    try:
        found = run(task_graph, feeds(), FakeStreams(0, starve), record=record)
    except (NotCapturable, InternalError):
        return True
    return not all(np.array_equal(found[name], value) for name, value in expected.items())


def test_streams_that_need_no_event_have_none():
    graph, machine = Graph(), MachineModel.uniform(1, Device(kind="cuda"))
    tiny.tanh(tiny.tanh(graph.parameter("p", (3,), 1.0, "float64")))
    task_graph = lower(graph, taskflow.single_device(graph, machine), machine)
    with Executor(task_graph, backend=FakeStreams(), record=False) as step:
        names = [
            call.func.__name__
            for segment in step._streamed.replay.segments
            for call in segment.calls
        ]
    assert names == ["run", "run"]


# -- steps -------------------------------------------------------------------------------------------------------------


def test_a_step_is_one_graph_from_the_second_on():
    graph, machine = network(), MachineModel.uniform(2, Device(kind="cuda"))
    task_graph, backend = lower(graph, random_strategy(graph, machine, 5), machine), FakeStreams()
    with Executor(task_graph, backend=backend, record=False, allow_nan=True) as step:
        launches = [step(feed) and backend.launches for feed in feeds(4)]
    assert launches == [0, 1, 2, 3]


def test_a_guarded_step_is_two_graphs_from_the_second_on():
    graph, machine = network(), MachineModel.uniform(2, Device(kind="cuda"))
    task_graph, backend = lower(graph, random_strategy(graph, machine, 5), machine), FakeStreams()
    with Executor(task_graph, backend=backend, record=False) as step:
        launches = [step(feed) and backend.launches for feed in feeds(4)]
    assert launches == [0, 2, 4, 6]


@pytest.mark.parametrize("options", [{"record": True}, {"record": False, "capture": False}])
def test_steps_are_issued_row_by_row_when_recorded_or_asked_to(options):
    graph, machine = network(), MachineModel.uniform(2, Device(kind="cuda"))
    backend = FakeStreams()
    with Executor(
        lower(graph, taskflow.single_device(graph, machine), machine), backend=backend, **options
    ) as step:
        for feed in feeds():
            step(feed)
    assert backend.launches == 0


def test_a_recorded_step_has_a_time_for_every_row():
    graph, machine = network(), MachineModel.uniform(2, Device(kind="cuda"))
    task_graph = lower(graph, random_strategy(graph, machine, 5), machine)
    with Executor(task_graph, backend=FakeStreams(), record=True) as step:
        step(feeds()[0])
        assert np.all(step.timeline.end >= step.timeline.start)
        start, end = step._times_of_rows()  # without collectives, whose parts end one by one
        assert all(
            start[row] >= end[dep] for row in range(len(start)) for dep in step._rows.deps(row)
        )


def test_outputs_are_the_callers_own():
    graph, machine = network(), MachineModel.uniform(2, Device(kind="cuda"))
    with Executor(
        lower(graph, taskflow.single_device(graph, machine), machine), backend=FakeStreams()
    ) as step:
        first = step(feeds()[0])
        kept = {name: value.copy() for name, value in first.items()}
        step(feeds()[1])
    laws.assert_equal(first, kept)


# -- what cannot be captured -------------------------------------------------------------------------------------------


class RefusingStreams(FakeStreams):
    """Refuses the rows whose kernels have one of these names, and what the host waits for, under capture."""

    def __init__(self, *names):
        super().__init__()
        self.names = names

    def run(self, stream, call):
        if self._capture is not None and any(
            name in str(getattr(call, "func", "")) for name in self.names
        ):
            raise NotCapturable(f"{call} is refused")
        super().run(stream, call)


@pytest.mark.parametrize(
    "names, graphs",
    [([], 1), (["function forward "], 2), (["_sgd"], 1), (["_feed", "_to_host"], 1)],
)
def test_a_step_is_split_around_what_cannot_be_captured(names, graphs):
    graph, machine = network(), MachineModel.uniform(2, Device(kind="cuda"))
    task_graph = lower(graph, random_strategy(graph, machine, 2), machine)
    expected, backend = run(task_graph, feeds(4), FakeStreams()), RefusingStreams(*names)
    with Executor(task_graph, seed=3, backend=backend, record=False, allow_nan=True) as step:
        values = [step(feed) for feed in feeds(4)]
        weights = {name: step.read(name) for name in step.persistent}
        kinds = [part.is_captured for part in step._streamed.replay.segments]
    found = {
        f"{n} {k}": v for k, outputs in enumerate(values) for n, v in outputs.items()
    } | weights
    laws.assert_equal(found, expected)
    assert all(a != b for a, b in pairwise(kinds))
    assert backend.launches == 3 * kinds.count(True)
    assert kinds.count(True) >= graphs if names else kinds == [True]


def test_a_stream_that_is_not_joined_cannot_be_captured():
    backend = FakeStreams()
    first, second, event = (
        backend.make_stream(0, "a"),
        backend.make_stream(0, "b"),
        backend.make_event(0),
    )

    def issue():
        backend.record(first, event)
        backend.wait(second, event)
        backend.run(second, lambda: None)

    with pytest.raises(NotCapturable, match="stream 'b 0' is not joined to the first one"):
        backend.capture(first, issue)


def test_the_host_cannot_wait_within_a_capture():
    backend = FakeStreams()
    stream, event = backend.make_stream(0, "a"), backend.make_event(0)
    with pytest.raises(NotCapturable, match="the host waits for a stream"):
        backend.capture(stream, lambda: backend.synchronize(event))


# -- feeds -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "starve"), [("cpu", None), *(("cuda", name) for name in STARVED)])
def test_the_next_feeds_can_be_given_ahead(kind, starve):
    graph, machine = network(), MachineModel.uniform(2, Device(kind=kind))
    task_graph = lower(graph, random_strategy(graph, machine, 2), machine)
    expected = run(task_graph, feeds(4), FakeStreams() if kind == "cuda" else None)
    backend = FakeStreams(0, starve) if kind == "cuda" else None
    batches = feeds(4)
    with Executor(task_graph, seed=3, backend=backend, record=False) as step:
        values = [
            step(batches[0], prefetch=batches[1]),
            step(prefetch=batches[2]),
            step(prefetch=batches[3]),
            step(),
        ]
        weights = {name: step.read(name) for name in step.persistent}
    laws.assert_equal(
        {f"{n} {k}": v for k, found in enumerate(values) for n, v in found.items()} | weights,
        expected,
    )


class OnDevice:
    """A feed that lies on a device of the fake, where a stream of its own is still to make it."""

    def __init__(self, value):
        self.shape, self.dtype, self._value = value.shape, value.dtype, value

    def __dlpack_device__(self):
        return 2, 0

    def exported(self, backend, stream):
        array, device = np.full_like(self._value, -1), stream.device
        maker, made = backend.make_stream(device, "maker"), backend.make_event(device)
        backend.run(maker, lambda: np.copyto(array, self._value))
        backend.record(maker, made)
        backend.wait(stream, made)
        return array


@pytest.mark.parametrize("starve", [*STARVED, "maker"])
def test_feeds_may_lie_on_a_device(starve):
    graph, machine = network(), MachineModel.uniform(2, Device(kind="cuda"))
    task_graph = lower(graph, random_strategy(graph, machine, 2), machine)
    expected = run(task_graph, feeds(4), FakeStreams())
    batches = [
        {"x": OnDevice(f["x"]), "t": OnDevice(f["t"]) if k % 2 else f["t"]}
        for k, f in enumerate(feeds(4))
    ]
    with Executor(task_graph, seed=3, backend=FakeStreams(0, starve), record=False) as step:
        values = [
            step(batches[0], prefetch=batches[1]),
            step(prefetch=batches[2]),
            step(),
            step(batches[3]),
        ]
        weights = {name: step.read(name) for name in step.persistent}
    laws.assert_equal(
        {f"{n} {k}": v for k, found in enumerate(values) for n, v in found.items()} | weights,
        expected,
    )


def test_a_feed_on_a_gpu_is_for_gpus():
    graph, machine = network(), MachineModel.uniform(1)
    step = Executor(lower(graph, taskflow.single_device(graph, machine), machine))
    with pytest.raises(
        ValueError, match="feed 'x': lies on a GPU; the devices of this machine are none"
    ):
        step({**feeds()[0], "x": OnDevice(feeds()[0]["x"])})
    with pytest.raises(
        ValueError, match=re.escape("feed 'x': has shape (5, 4), the region (6, 4)")
    ):
        step({**feeds()[0], "x": OnDevice(feeds()[0]["x"][:5])})


def test_feeds_are_not_given_twice():
    graph, machine = network(), MachineModel.uniform(1)
    with Executor(lower(graph, taskflow.single_device(graph, machine), machine)) as step:
        step(feeds()[0], prefetch=feeds()[1])
        with pytest.raises(
            ValueError, match="step: its feeds were given to the last step as `prefetch`"
        ):
            step(feeds()[1])


# -- memory ------------------------------------------------------------------------------------------------------------


def test_memory_that_is_short_is_missed_before_the_first_step():
    """Whatever an executor takes first, last or in between: the message has the numbers."""
    graph, machine = network(), MachineModel.uniform(1, Device(kind="cuda"))
    task_graph = lower(graph, taskflow.single_device(graph, machine), machine)
    with Executor(task_graph, backend=FakeStreams()) as step:
        taken = step._streamed.ledger.taken[0]
    need, seen = sum(taken.values()), set()
    for size in range(0, need, 64):
        with pytest.raises(
            ValueError, match=r"device 0: no room for \d+ bytes of .*; this executor holds "
        ) as error:
            Executor(task_graph, backend=FakeStreams(memory_bytes=size))
        assert f"of {size} bytes are free" in str(error.value)
        seen.add(str(error.value).split(" of ", 1)[1].split(";")[0])
    kinds = {purpose for purpose, size in taken.items() if size >= 64}
    assert seen == kinds >= {"instances", "blocks for feeds"}
    Executor(task_graph, backend=FakeStreams(memory_bytes=need + 4096)).close()


def test_feeds_count_before_anything_is_taken():
    graph, machine = network(), MachineModel.uniform(1, Device(kind="cuda", memory_bytes=1500))
    task_graph = lower(graph, taskflow.single_device(graph, machine), machine)
    with pytest.raises(
        ValueError,
        match=r"device 0: .* at the peak of a step, 1152 B for feeds on their way\), the",
    ):
        Executor(task_graph, backend=FakeStreams())


def test_a_trial_leaves_what_another_executor_holds():
    graph, machine = network(), MachineModel.uniform(2, Device(kind="cuda"))
    task_graph, backend = lower(graph, random_strategy(graph, machine, 2), machine), FakeStreams()
    first = Executor(task_graph, seed=3, backend=backend)
    first(feeds()[0])
    before = {name: first.read(name) for name in first.persistent}
    Executor(task_graph, seed=3, share=first, backend=backend)
    laws.assert_equal({name: first.read(name) for name in first.persistent}, before)


# -- profilers ---------------------------------------------------------------------------------------------------------


class ProfiledStreams(FakeStreams):
    """Notes ranges and what is launched."""

    is_profiled = True

    def __init__(self):
        super().__init__()
        self.notes = []

    @contextmanager
    def range(self, name):
        self.notes.append(name)
        yield
        self.notes.append("end")


def test_items_are_issued_in_ranges_of_their_names_when_profiled():
    graph, machine = network(), MachineModel.uniform(1, Device(kind="cuda"))
    backend = ProfiledStreams()
    task_graph = lower(graph, taskflow.single_device(graph, machine), machine)
    with Executor(task_graph, backend=backend, record=False) as step:
        for feed in feeds():
            step(feed)
    assert backend.launches == 0
    assert backend.notes[1::2] == ["end"] * (len(backend.notes) // 2)
    assert {"run fc1[0]", "run x[0]"} <= set(backend.notes)
