"""Points divided over the threads of a device: the parts keep apart, and give the numbers of the whole."""

import gc
import threading
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskflow import Device, Executor, Graph, MachineModel, Window, lower, single_device
from taskflow.graph.binding import bind
from taskflow.graph.pattern import Pattern
from taskflow.tasks.threads.crew import Crew, thread_limit
from taskflow.tasks.threads.division import divisions
from tests import laws
from tests.ops.strategies import operator_graphs
from tests.strategies import examples, graphs, random_strategy

SLOW = Device(
    flops_per_second=1.0, memory_bandwidth=1.0
)  # every point takes long enough to be divided


def bound(text, *shapes, sizes=None, windows=None):
    names = [f"x{k}" for k in range(len(shapes))]
    return bind("op", Pattern.parse(text), names, shapes, sizes or {}, windows or {})


def parts(bound, count, written=None, **intervals):
    orders = [range(len(shape)) for shape in bound.shapes]
    is_written = written or [k >= len(bound.pattern.inputs) for k in range(len(bound.terms))]
    whole = {a: intervals.get(a, (0, n)) for a, n in bound.extents.items()}
    return next((way.parts for way in divisions(bound, whole, is_written, orders, count)), [bound])


def axis_of(found):
    first, second = (part.intervals for part in found[:2])
    return next(a for a in first if first[a] != second[a])


@pytest.mark.parametrize(("batch", "width", "axis"), [(256, 8, "b"), (8, 256, "o")])
def test_the_axis_with_the_fewest_elements_to_read_twice(batch, width, axis):
    linear = bound("b i, o i -> b o", (batch, 64), (width, 64))
    assert axis_of(parts(linear, 2)) == axis


def test_a_summed_axis_is_never_divided():
    weights = bound("b o, b i -> o i", (1000, 6), (1000, 2))
    assert axis_of(parts(weights, 2)) == "o"
    assert len(parts(bound("b -> .", (1000,)), 2)) == 1


def test_fixed_axes_and_inner_axes_of_a_group_are_left_whole():
    assert len(parts(bound("^a -> ^a", (8,)), 2)) == 1
    grouped = bound("(h d) -> (h d)", (12,), sizes={"h": 3, "d": 4})
    assert axis_of(parts(grouped, 2)) == "h"
    assert axis_of(parts(grouped, 2, h=(1, 2))) == "d"


def test_parts_read_their_halo():
    first, second = parts(bound("w -> x", (10,), windows={"w": Window("x", size=3, padding=1)}), 2)
    assert [r.lo + r.hi for r in first.rects] == [(0, 6), (0, 5)]
    assert [r.lo + r.hi for r in second.rects] == [(4, 10), (5, 10)]


def test_what_is_updated_in_place_counts_as_an_output():
    update = bound("o i, o i, . ->", (6, 4), (6, 4), ())
    assert axis_of(parts(update, 2, written=[True, False, False])) == "o"
    around = bound("w ->", (10,), windows={"w": Window("x", size=3, padding=1)})
    assert len(parts(around, 2, written=[True])) == 1  # halos overlap


def test_no_more_parts_than_points():
    assert len(parts(bound("a -> a", (3,)), 8)) == 3


@pytest.fixture
def threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")


@pytest.mark.parametrize("models", [graphs(), operator_graphs()], ids=["tiny", "operators"])
@examples(30)
@given(data=st.data())
def test_law_1_on_three_threads(models, data):
    model, machine = data.draw(models), MachineModel.uniform(data.draw(st.integers(1, 3)), SLOW)
    strategy = random_strategy(model.graph, machine, data.draw(st.integers(0, 2**32 - 1)))
    expected = laws.one_device(model, MachineModel.uniform(len(machine.devices)), 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "3")
        found = [laws.run(lower(model.graph, strategy, machine), model.feeds, 2) for _ in range(2)]
    laws.assert_close(found[0], expected)
    laws.assert_equal(*found)


def test_every_thread_has_its_part_and_its_scratch(threads):
    seen = {}

    def kernel(ctx, x, y):
        work = ctx.scratch("work", x.shape, "float64")
        np.multiply(x, 2.0, out=work)
        barrier.wait(10)  # nobody goes on before all have written their scratch memory
        np.copyto(y, work)
        seen[threading.get_ident()] = ctx.rect(0)

    barrier, graph = threading.Barrier(3), Graph()
    x = graph.input("x", (9, 2), "float64")
    graph.output("y", graph.launch("twice", "a b -> a b", [x], kernel=kernel))
    machine = MachineModel.uniform(1, SLOW)
    with Executor(lower(graph, single_device(graph, machine), machine)) as step:
        np.testing.assert_array_equal(
            step({"x": np.arange(18.0).reshape(9, 2)})["y"][:, 0], np.arange(0, 36, 4.0)
        )
    assert sorted(rect.lo for rect in seen.values()) == [(0, 0), (3, 0), (6, 0)]


def test_an_error_on_any_thread_is_raised_when_all_have_ended(threads):
    ended = []

    def kernel(ctx, x, y):
        if ctx.rect(0).lo == (6,):
            raise ArithmeticError("in the last part")
        np.copyto(y, x)
        ended.append(ctx.rect(0).lo)

    graph = Graph()
    graph.output(
        "y", graph.launch("fails", "a -> a", [graph.input("x", (9,), "float64")], kernel=kernel)
    )
    machine = MachineModel.uniform(1, SLOW)
    with Executor(lower(graph, single_device(graph, machine), machine)) as step:
        with pytest.raises(ArithmeticError, match="in the last part") as caught:
            step({"x": np.zeros(9)})
        assert "task 1: point fails[0]" in caught.value.__notes__[0]
    assert sorted(ended) == [(0,), (3,)]


def test_short_points_and_checked_ones_stay_whole(threads):
    seen = []

    def kernel(ctx, x, y):
        seen.append(ctx.rect(0).shape)
        np.copyto(y, x)

    for device, check in ((Device(), False), (SLOW, True)):
        graph, machine = Graph(), MachineModel.uniform(1, device)
        graph.output(
            "y", graph.launch("whole", "a -> a", [graph.input("x", (9,), "float64")], kernel=kernel)
        )
        with Executor(lower(graph, single_device(graph, machine), machine), watch=check) as step:
            step({"x": np.zeros(9)})
    assert seen == [(9,)] * 3  # a check calls a kernel over two patterns


def test_blas_has_one_thread_while_a_crew_works():
    from threadpoolctl import threadpool_info, threadpool_limits

    def counts():
        return {found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"}

    with threadpool_limits(2, "blas"):
        before = counts()
        crew = Crew(2)
        with crew:
            with crew:
                assert counts() == {1}
            assert counts() == {1}
        assert counts() == before


def test_a_crew_that_is_busy_leaves_the_calls_to_who_asks():
    crew, inside, seen = Crew(2), threading.Event(), []

    def call():
        seen.append(threading.get_ident())

    def hold():
        inside.set()
        assert done.wait(10)

    done = threading.Event()
    other = threading.Thread(target=crew.run, args=([hold, int],))
    other.start()
    assert inside.wait(10)
    crew.run([call, call])
    done.set()
    other.join()
    assert seen == [threading.get_ident()] * 2


def test_a_crew_keeps_nothing_of_what_it_did():
    class Call:
        def __call__(self):
            pass

    crew, calls = Crew(2), [Call(), Call()]
    seen = [weakref.ref(call) for call in calls]
    crew.run(calls)
    del calls
    gc.collect()
    assert [call() for call in seen] == [None, None]


def test_the_number_of_threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert thread_limit() == 5
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(8))
    assert thread_limit() == 8
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "3")
    assert thread_limit() == 2
