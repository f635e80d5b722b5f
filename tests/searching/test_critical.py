"""The critical path of a judge: what it is, and that what it rejects is slower."""

import math

import numpy as np
import pytest

import taskflow
from taskflow import CostModel, MachineModel
from taskflow.graph.family import Family
from taskflow.searching import judge as judging
from taskflow.searching.judge import Judge, _Proposal
from taskflow.strategy.rules import leaders, random_config
from tests.lowered import network

MACHINES = {
    "4 equal devices": MachineModel.uniform(4),
    "16 devices, collectives": MachineModel.preset("p100", nodes=4),
    "shared links": MachineModel.preset("k80", nodes=2),
}


@pytest.fixture(params=MACHINES)
def judge(request, monkeypatch):
    """Of a network, data parallel, with the path known."""
    monkeypatch.setattr(judging, "LONG_ROWS", 0)
    graph, machine = network(batch=32, layers=6), MACHINES[request.param]
    judge = Judge(graph, machine, CostModel.analytic(machine))
    judge.start(taskflow.data_parallel(graph, machine))
    return judge


def path_of(judge):
    """Rows of the path and their ends."""
    judge.find_path()
    path = judge.program.path
    return path.row[path.ptr[0] : path.ptr[-1]], path.finish[path.ptr[0] : path.ptr[-1]]


def row_of_ends(tables):
    """Number of an end -> its row, of the current strategy."""
    return {e: a + k for a, b, n, _ in tables.span.tolist() for k, e in enumerate(range(b, b + n))}


def random_changes(judge, generator):
    op = leaders(judge.graph)[int(generator.integers(len(leaders(judge.graph))))]
    return {op.name: random_config(Family.of(op), judge.machine, generator)}


def walk(judge, generator, steps):
    """Accept random changes, most of them slower."""
    for _ in range(steps):
        if math.isfinite(judge.propose_all(random_changes(judge, generator))):
            judge.accept()


@pytest.mark.parametrize("seed", range(3))
def test_every_row_of_the_path_goes_on_when_the_one_before_is_through(judge, seed):
    generator = np.random.default_rng(seed)
    for _ in range(5):
        walk(judge, generator, 4)
        path, end = path_of(judge)
        tables = judge.program.tables
        row_of = row_of_ends(tables)
        seconds = tables.seconds[[row_of[number] for number in path["end"].tolist()]]
        taken = np.diff(np.concatenate([[0.0], end]))
        assert (taken >= 0.0).all() and (taken <= seconds * (1 + 1e-9) + 1e-15).all()
        assert (end <= tables.end[path["end"]]).all() and end[-1] == judge.program.ends.max()
        if len(judge.machine.devices) == 4:  # no link is shared
            np.testing.assert_array_equal(np.concatenate([[0.0], end[:-1]]) + seconds, end)
            np.testing.assert_array_equal(end, tables.end[path["end"]])
        assert (np.diff(judge.program.path.ptr) >= 0).all()


def test_rows_of_the_path_share_a_stream_or_wait_for_each_other(judge):
    walk(judge, np.random.default_rng(0), 5)
    path, _ = path_of(judge)
    ptr, streams, hop_ptr, hop = judge.pool.sets.columns
    rows = row_of_ends(judge.program.tables)
    found = judge.program.tables.row[[rows[number] for number in path["end"].tolist()]]
    more = [streams[ptr[k] : ptr[k + 1] * (k > 0)].tolist() for k in found["set"].tolist()]
    links = [hop["link"][hop_ptr[k] : hop_ptr[k + 1] * (k > 0)].tolist() for k in found["set"].tolist()]
    sets = [{*two, *all_of, *of} for two, all_of, of in zip(found["stream"].tolist(), more, links, strict=True)]
    assert len(sets) > 1
    for before, after, waits in zip(sets, sets[1:], path["waits"][1:], strict=False):
        assert waits or before & after


def rejected_briefly(judge, changes, limit):
    """Whether work and critical path alone reject, once all fragments are made."""
    p = _Proposal(changes, {}, judge._work.copy(), judge._bytes.copy())
    return math.isinf(judge._pass(p, limit, judge.index.changed, True)[0])


@pytest.mark.parametrize("seed", range(3))
def test_it_rejects_only_what_is_slower_and_most_of_that(judge, seed):
    generator, slower, rejected = np.random.default_rng(seed), 0, 0
    walk(judge, generator, 3)
    now = judge.program.ends.max()
    for _ in range(150):
        changes = random_changes(judge, generator)
        seconds = judge.propose_all(changes)
        if not math.isfinite(seconds):
            continue
        judge.propose_all(changes, now)  # finds the path
        judge.propose_all(changes)
        assert not rejected_briefly(judge, changes, seconds * (1 + 1e-12))
        if seconds > now * 1.02:
            slower += 1
            rejected += rejected_briefly(judge, changes, now * 1.01)
    assert slower > 20 and rejected > 0.7 * slower
