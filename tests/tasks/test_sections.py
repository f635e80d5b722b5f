"""Sections: what threads do side by side, and where they have to meet."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskflow import Device, Executor, Graph, MachineModel, lower, single_device
from taskflow.execute import divide
from taskflow.tasks.memory import plan_memory
from taskflow.tasks.task_graph import Kind, access
from taskflow.tasks.threads.division import MEETING_SECONDS, best_alone, options
from taskflow.tasks.threads.sections import PlannedBytes, sections
from tests.ops.strategies import operator_graphs
from tests.strategies import examples, graphs, random_strategy

SLOW = Device(
    flops_per_second=1.0, memory_bandwidth=1.0
)  # every point takes long enough to be divided


def copy(ctx, x, y):
    ctx.xp.copyto(y, x)


def task_graph(*patterns, shape=(8, 6), device=SLOW):
    """A chain of operators that read one region and make one."""
    graph = Graph()
    y = graph.input("x", shape, "float64")
    for k, pattern in enumerate(patterns):
        y = graph.launch(f"op{k}", pattern, [y], kernel=copy)
    graph.output("y", y)
    machine = MachineModel.uniform(1, device)
    return lower(graph, single_device(graph, machine), machine)


def planned(graph, memory=None, count=2):
    rows = np.flatnonzero(graph.kind == Kind.POINT).tolist()
    return sections(graph, rows, count, memory or PlannedBytes(graph, plan_memory(graph)))


def axis_of(parts):
    return "".join(a for a in parts[0].intervals if parts[0].intervals[a] != parts[-1].intervals[a])


def axes_of(section):
    return [axis_of(parts) for parts in section.parts]


def test_threads_meet_once_more_for_what_is_divided_alone():
    graph = task_graph("a b -> a b")
    (row,) = np.flatnonzero(graph.kind == Kind.POINT).tolist()
    meeting = {len(each.parts): each.lone_seconds - each.seconds for each in options(graph, row, 2)}
    assert meeting == {1: 0.0, 2: pytest.approx(MEETING_SECONDS)}


def test_a_chain_that_is_split_alike_is_one_section():
    (only,) = planned(task_graph(*["a b -> a b"] * 3))
    assert axes_of(only) == ["a"] * 3


def test_threads_meet_where_one_reads_what_another_wrote():
    found = planned(
        task_graph("a b -> a b", "a b -> a b", "^a ^b -> ^a ^b", "a b -> a b", "a b -> a b")
    )
    assert [axes_of(section) for section in found] == [["a", "a"], [""], ["a", "a"]]


def test_a_worse_way_is_taken_where_it_saves_a_meeting():
    graph = Graph()
    x, w = graph.input("x", (32, 64)), graph.input("w", (96, 64))
    y = graph.launch("product", "b i, o i -> b o", [x, w], kernel=copy)
    graph.output("z", graph.launch("after", "b o -> b o", [y], kernel=copy))
    moved_bytes = 4 * (32 * 64 + 96 * 64 + 32 * 96)
    machine = MachineModel.uniform(
        1, Device(flops_per_second=1e18, memory_bandwidth=moved_bytes / 4e-4)
    )
    found = lower(graph, single_device(graph, machine), machine)
    row = int(np.flatnonzero(found.kind == Kind.POINT)[0])
    alone, other = options(found, row, 2)[:2]
    assert other.seconds < alone.seconds + MEETING_SECONDS
    assert axis_of(alone.parts) == "o"
    assert [axes_of(section) for section in planned(found, Apart())] == [["b", "b"]]


def test_what_is_short_is_left_whole_unless_it_lies_between():
    short = Device(flops_per_second=1e12, memory_bandwidth=1e12)
    (only,) = planned(task_graph("a b -> a b", "a b -> a b", device=short))
    assert [len(parts) for parts in only.parts] == [1, 1]


def test_what_one_thread_does_alone_is_compared_with_nothing():
    """Of a chain of points that cannot be divided that took time that grows with the square of its length."""

    class Unasked:
        def sharing(self, instance):
            raise AssertionError("one thread meets nobody")

    (only,) = planned(task_graph(*["^a ^b -> ^a ^b"] * 5), Unasked())
    assert [len(parts) for parts in only.parts] == [1] * 5
    with pytest.raises(AssertionError, match="meets nobody"):
        planned(task_graph(*["a b -> a b"] * 5), Unasked())


class Apart:
    """Instances that share no bytes."""

    def sharing(self, instance):
        return []


class Crossed:
    """The halves of the last instance lie in those of the first, the other way round."""

    def __init__(self, graph):
        self.first, self.last = 0, len(graph.instance_device) - 1

    def sharing(self, instance):
        return (
            [{self.first: self.last, self.last: self.first}[instance]]
            if instance in (self.first, self.last)
            else []
        )

    def span(self, instance, rect):
        return (
            (rect.lo[0], rect.hi[0]) if instance == self.first else (8 - rect.hi[0], 8 - rect.lo[0])
        )


def test_threads_meet_before_memory_is_used_again():
    graph = task_graph("a ^b -> a ^b", "a ^b -> a ^b", "a ^b -> a ^b")
    assert [len(s.rows) for s in planned(graph)] == [3]
    assert [len(s.rows) for s in planned(graph, Crossed(graph))] == [2, 1]


def test_whole_is_always_an_option():
    graph = task_graph("^a ^b -> ^a ^b")
    row = int(np.flatnonzero(graph.kind == Kind.POINT)[0])
    assert [len(option.parts) for option in options(graph, row, 4)] == [1]
    assert len(best_alone(task_graph("a b -> a b"), row, 4).parts) == 4


def uses(graph, section, views):
    """(thread, view, whether it is written) of all parts."""
    for row, parts in zip(section.rows, section.parts, strict=True):
        args = graph.args(row)
        _, writes = access([privilege for _, _, privilege in args])
        for thread, part in enumerate(parts):
            for (_, whole, _), view, rect, is_written in zip(
                args, views[row], part.rects, writes, strict=True
            ):
                if not rect.is_empty:
                    yield thread, view[rect.relative_to(whole.lo).slices()], is_written


@pytest.mark.parametrize("models", [graphs(), operator_graphs()], ids=["tiny", "operators"])
@examples(50)
@given(data=st.data())
def test_no_thread_writes_what_another_touches_in_a_section(models, data):
    model, machine = data.draw(models), MachineModel.uniform(data.draw(st.integers(1, 2)), SLOW)
    strategy = random_strategy(model.graph, machine, data.draw(st.integers(0, 2**32 - 1)))
    seen, calls = [], divide.section_calls
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "3")
        patch.setattr(
            divide,
            "section_calls",
            lambda *args: seen.append(list(uses(*args[:3]))) or calls(*args),
        )
        Executor(lower(model.graph, strategy, machine)).close()
    assert seen
    for found in seen:
        for (thread, view, writes), (other, seen_by_other, is_written) in itertools.combinations(
            found, 2
        ):
            if thread != other and (writes or is_written):
                assert not np.shares_memory(view, seen_by_other)


def test_an_error_in_a_section_names_its_task_and_the_next_step_runs(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    broken, done = [True], []

    def kernel(ctx, x, y, name):
        if name == "op1" and ctx.rect(0).lo[0] and broken:
            raise ArithmeticError("in the second half")
        np.copyto(y, x)
        done.append(name)

    graph = Graph()
    y = graph.input("x", (8,), "float64")
    for name in ("op0", "op1", "op2"):
        y = graph.launch(
            name, "a -> a", [y], kernel=lambda ctx, x, y, name=name: kernel(ctx, x, y, name)
        )
    graph.output("y", y)
    machine = MachineModel.uniform(1, SLOW)
    with Executor(lower(graph, single_device(graph, machine), machine)) as step:
        with pytest.raises(ArithmeticError, match="in the second half") as caught:
            step({"x": np.arange(8.0)})
        assert "point op1[0]" in caught.value.__notes__[0]
        assert sorted(done) == [
            "op0",
            "op0",
            "op1",
            "op2",
        ]  # what the first thread does; the other stopped
        broken.clear()
        np.testing.assert_array_equal(step({"x": np.arange(8.0)})["y"], np.arange(8.0))
