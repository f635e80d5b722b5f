"""Claimed items: each exactly once, the same bits whoever takes them, and who fails says which."""

import socket
from functools import partial
from itertools import chain
from threading import Thread

import numpy as np
import pytest

import ops
import taskflow
from taskflow import Graph, MachineModel, ParallelConfig
from taskflow.backend.claims import claim_next
from taskflow.comm import claims
from taskflow.core.told import short_digest
from taskflow.cost.points import with_claims


def spin(ctx, item, x, row, number):
    """A row whose cost grows with the item."""
    total = 0.0
    for k in range(item % 7 * 50):
        total += k
    row[...] = x * item + total
    number[...] = -0.0 if item % 2 else item


def graph_of(count=40):
    graph = Graph()
    x = graph.input("x", (3,), "float64")
    outputs = ops.claimed(spin, [x], count, [((3,), "float64"), ((), "float64")], name="join")
    for name, region in zip(("rows", "numbers"), outputs, strict=True):
        graph.output(name, region)
    return graph


def run(graph, degree, steps=3):
    machine = MachineModel.local(devices=degree)
    strategy = taskflow.single_device(graph, machine)
    strategy["join"] = ParallelConfig({"r": degree})
    rows = taskflow.lower(graph, strategy, machine)
    taskflow.check_plan(graph, rows)
    with taskflow.Executor(rows) as step:
        return [step({"x": np.array([0.1, 0.2, 0.3]) + k}) for k in range(steps)]


@pytest.mark.parametrize("degree", [2, 3, 4])
def test_bits_are_those_of_one_device(degree):
    for one, several in zip(run(graph_of(), 1), run(graph_of(), degree), strict=True):
        for name, value in one.items():
            assert value.tobytes() == several[name].tobytes()
        assert (one["numbers"][::2] == np.arange(0, 40, 2)).all()


def test_every_number_goes_to_exactly_one_claimant_in_every_round():
    """Threads without the interpreter's lock between them; each begins its next round when it likes."""
    cells, rounds, count = np.zeros(3, np.int64), 20, 200
    taken: list[list[list[int]]] = [[[] for _ in range(rounds)] for _ in range(4)]

    def work(rank: int) -> None:
        for turn in range(rounds):
            while (item := claim_next(cells, 1, turn + 1, count)) >= 0:
                taken[rank][turn].append(item)

    threads = [Thread(target=work, args=(rank,)) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for turn in range(rounds):
        assert sorted(chain(*(own[turn] for own in taken))) == list(range(count))
    assert not cells[[0, 2]].any()


def test_strangers_keep_no_claimant_waiting(monkeypatch):
    """Of other hosts: one says another token, one nothing."""
    monkeypatch.setattr(claims, "TOKEN_SECONDS", 0.05)
    cells = np.zeros(2, np.int64)
    where = claims.answer_claims(partial(claim_next, cells), 1)
    with socket.create_connection(where[:2]) as liar, socket.create_connection(where[:2]) as mute:
        liar.sendall(bytes(8))
        claim = claims.distant_claims(where)
        assert [claim(1, 1, 3) for _ in range(4)] == [0, 1, 2, -1]
        assert liar.recv(1) == mute.recv(1) == b""  # both were sent away


def test_an_item_that_fails_is_named():
    def fail(ctx, item, row):
        if item == 7:
            raise ArithmeticError("no such number")

    graph = Graph()
    graph.output("y", ops.claimed(fail, [], 9, [((), "float32")], graph=graph, name="join")[0])
    with pytest.raises(ArithmeticError) as error:
        run_alone(graph)
    assert any("in item 7 of 9" in note for note in error.value.__notes__)


def run_alone(graph):
    machine = MachineModel.local(devices=1)
    with taskflow.Executor(
        taskflow.lower(graph, taskflow.single_device(graph, machine), machine)
    ) as step:
        step({})


def test_arrays_of_objects_are_told_without_addresses():
    """Ranks compare what a kernel closes over."""
    one, other = (np.array([float(text), text, None]) for text in ("1.5", "1." + "5"))
    assert one.tobytes() != other.tobytes()
    assert short_digest(one) == short_digest(other)


def test_refused():
    with pytest.raises(
        ValueError, match="claimed 'claimed': there are no inputs, graph= is needed"
    ):
        ops.claimed(spin, [], 3, [])
    with pytest.raises(
        ValueError, match="claimed 'few': seconds of 3 items are needed, all above 0"
    ):
        ops.claimed(
            spin, [], 3, [((), "float32")], seconds=[1.0, 0.0, 2.0], graph=Graph(), name="few"
        )
    graph = Graph()
    x = graph.parameter("x", (3,), dtype="float64")
    y = ops.claimed(spin, [x], 3, [((3,), "float64"), ((), "float64")])[0]
    with pytest.raises(ValueError, match="claimed"):
        ops.sgd(ops.mean(y), lr=0.1)


def test_points_take_their_share_and_what_is_left_of_the_longest_item():
    """By seconds that are given, by flops, and by kernels that are timed, which claim all items."""
    seconds, machine = [1.0, 2.0, 5.0, 2.0], MachineModel.uniform(4)
    for given, whole, longest in ((seconds, 10.0, 0.5), (None, 0.0, 0.25)):
        graph = Graph()
        claimed = ops.claimed(spin, [], 4, [((), "float32")], 12, given, graph=graph, name="join")
        graph.output("y", claimed[0])
        strategy = taskflow.single_device(graph, machine)
        costs = taskflow.CostModel.analytic(machine)
        priced = {}
        for points in (1, 4):
            strategy["join"] = ParallelConfig({"r": points})
            rows = taskflow.lower(graph, strategy, machine)
            joins = np.flatnonzero((rows.kind == taskflow.Kind.POINT) & (rows.flops > 0))
            joins = joins[[rows.name(k) == "join" for k in joins]]
            assert sum(rows.flops[joins]) == pytest.approx(4 if given else 4e6)
            priced[points] = costs.seconds(rows)[joins]
        whole = whole or priced[1][0]
        assert priced[1] == pytest.approx([whole])
        assert priced[4] == pytest.approx(
            [whole * (0.25 + 0.75 * longest)] * 4, rel=0.1
        )  # of launching
    timed = with_claims(lambda rows, points: np.full(len(points), 8.0), rows, np.array(joins), True)
    assert timed == pytest.approx([8 * (0.25 + 0.75 * 0.25)] * 4)
