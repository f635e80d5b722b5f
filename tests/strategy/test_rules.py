"""Rules: what they give can be lowered, for every graph; what becomes of a split that a group forbids."""

import ast
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import ops
import taskflow
from benchmarks.rules import MACHINES
from taskflow import CostModel, Graph, MachineModel, ParallelConfig, Strategy, lower
from taskflow.graph.family import families
from taskflow.strategy.partition import partition
from taskflow.strategy.rules import RULES
from tests import laws, tiny
from tests.lowered import matrix
from tests.ops import random_graphs
from tests.ops.cases import CASES
from tests.ops.random_graphs import BUILDERS, random_graph
from tests.strategies import Model, feeds_of

FOUR = MachineModel.uniform(4)
LOWERED, SEARCHED = 12, 2


def family_of(pattern, *shapes, **options):
    """The family of an operator of this pattern."""
    graph = Graph()
    inputs = [graph.input(f"x{k}", shape) for k, shape in enumerate(shapes)]
    graph.launch("op", pattern, inputs, kernel=lambda ctx, *arrays: None, **options)
    return families(graph)[0]


# -- what becomes of a split -------------------------------------------------------------------------------------------


def test_an_axis_that_stands_free_is_split_itself():
    family = family_of("b i, o i -> b o", (8, 6), (3, 6))
    assert [family.along(axis, 4) for axis in ("b", "o", "i")] == [{"b": 4}, {"o": 3}, {"i": 4}]
    assert family.along(None, 4) == family.along("c", 4) == {}


def test_inside_a_group_the_axes_left_of_it_are_split_first():
    family = family_of("(r s b) -> r s b", (24,), sizes={"r": 2, "s": 3})
    assert family.along("b", 2) == {"r": 2}
    assert family.along("b", 5) == {"r": 2, "s": 2}
    assert family.along("b", 24) == {"r": 2, "s": 3, "b": 4}
    assert family.along("s", 4) == {"r": 2, "s": 2}
    assert family.along("r", 4) == {"r": 2}


def test_what_stands_right_of_an_axis_that_is_never_split_is_whole():
    family = family_of("(^s b) -> b", (24,), sizes={"s": 3})
    assert family.along("b", 4) == {} and not family.allows({"b": 2})


def test_two_groups_may_forbid_every_part_of_an_axis():
    family = family_of("(s b) -> (b s)", (24,), sizes={"s": 3})
    assert family.along("b", 4) == family.along("s", 4) == {}
    assert family.along("b", 24) == {"s": 3, "b": 8}


def test_fractions_count_by_their_parts():
    family = family_of("(h d) -> h d", (12,), sizes={"h": 2})
    assert family.allows({"h": (0.5, 0.5), "d": 2}) and not family.allows({"h": (0.1, 0.9), "d": 2})


def test_a_follower_decides_too():
    x = matrix(6, 4)
    graph = x.graph
    with graph.following(tiny.tanh(x, name="leader").name):
        graph.launch("b follower", "b c -> (c b)", [x], kernel=lambda ctx, *arrays: None)
    (family,) = families(graph)
    assert (family.along("b", 2), family.along("c", 2)) == ({"c": 2}, {"c": 2})
    assert [f.along("b", 2) for f in families(graph, named=["b follower"])] == [{"b": 2}, {"c": 2}]


def test_every_operator_may_be_split_as_its_family_says():
    """The rule of patterns against the boxes that lowering finds, for all operators of `ops`."""
    seen = {True: 0, False: 0}
    for case in CASES:
        graph, _ = case.build()
        members = {op.name: [op] for op in graph.operators if op.follows is None}
        for op in graph.operators:
            members[op.follows or op.name].append(op)
        for family in families(graph):
            axes = [axis for axis, most in family.most.items() if most > 1][:3]
            for degrees in product((1, 2, 3), repeat=len(axes)):
                split = {a: min(d, family.most[a]) for a, d in zip(axes, degrees, strict=True)}
                is_legal = is_contiguous(members[family.leader.name], ParallelConfig(split))
                assert family.allows(split) == is_legal, (case.name, family.leader.name, split)
                seen[is_legal] += 1
    assert seen[True] > 1000 and seen[False] > 10


def is_contiguous(members, config):
    try:
        for op in members:
            partition(op, config)
    except ValueError:
        return False
    return True


# -- graphs ------------------------------------------------------------------------------------------------------------


def time_major():
    """(batch, steps, features) -> (steps batch, features): the batch is no leftmost axis any more."""
    graph = Graph()
    x = graph.input("x", (8, 5, 6), "float64")
    h = ops.linear(
        ops.reshape(ops.transpose(x, (1, 0, 2), name="turn"), (40, 6), name="merge"), 3, name="fc"
    )
    ops.sgd(ops.mean_squared_error(h, graph.input("t", (40, 3), "float64"), name="loss"), lr=0.1)
    return graph


def test_a_batch_inside_a_group():
    graph = time_major()
    found = taskflow.data_parallel(graph, FOUR)
    turn, merge, fc, loss = (dict(found[name].degrees) for name in ("turn", "merge", "fc", "loss"))
    assert [list(each.values()) for each in (turn, merge, fc, loss)] == [[4]] * 4
    assert (merge.keys(), graph.operator("merge").pattern) == ({"s"}, "s b c -> (s b) c")
    laws.any_strategy_is_one_device(Model(graph, feeds_of(graph)), FOUR, found)


def test_what_adds_up_in_place_stays_whole():
    graph = Graph()
    x = graph.input("x", (8, 6))
    total = graph.parameter("total", (6,), trainable=False)
    graph.launch(
        "count", "b c, c ->", [x, total], kernel=lambda ctx, x, total: None, writes=[total]
    )
    assert taskflow.data_parallel(graph, FOUR)["count"] == ParallelConfig({}, (0,))
    lower(graph, taskflow.data_parallel(graph, FOUR), FOUR)


def test_a_training_strategy_serves_a_graph_whose_groups_forbid_it():
    def model(heads):
        graph = Graph()
        graph.output(
            "y", ops.reshape(graph.input("x", (6, 4 * heads)), (6, heads, 4), name="heads")
        )
        return graph

    trained, evaluated = model(2), model(3)
    h, d = list(trained.operator("heads").extents)[1:]
    strategy = Strategy.of_graph(trained, {"heads": ParallelConfig({h: 2, d: 2})})
    lower(trained, strategy, FOUR)
    assert strategy.for_graph(evaluated)["heads"] == ParallelConfig({}, (0,))
    lower(evaluated, strategy.for_graph(evaluated), FOUR)


@pytest.mark.parametrize("seed", range(LOWERED))
def test_every_rule_lowers_every_graph(seed):
    """On one machine each: `benchmarks/rules.py` has all of them."""
    graph, machine = random_graph(seed), MACHINES[seed % len(MACHINES)]
    for rule in RULES.values():
        lower(graph, rule(graph, machine), machine)
    for k in range(3):
        lower(graph, taskflow.random_strategy(graph, FOUR, k), FOUR)


@pytest.mark.parametrize("seed", range(SEARCHED))
def test_every_start_of_a_search_is_judged(seed):
    found = taskflow.search(random_graph(seed), FOUR, CostModel.analytic(FOUR), proposals=20)
    assert np.isfinite(list(found.baseline_seconds.values())).all()


def test_the_random_graphs_are_of_all_of_ops():
    source = ast.walk(ast.parse(Path(random_graphs.__file__).read_text()))
    used = {
        n.attr for n in source if isinstance(n, ast.Attribute) and ast.unparse(n.value) == "ops"
    }
    initializers = {n for n in ops.__all__ if getattr(ops, n).__module__ == "ops.initializers"}
    torch = {"from_torch", "from_torch_state", "to_torch", "to_dtensor", "DTensorPlan", "Imported"}
    others = torch | {"RecurrentWeights", "recurrent_weights", "ParameterGroup", "gradients"}
    others |= {"Edges", "graph_order"}  # tables of graphs: tests/models/test_gnn.py
    others |= {"linear_cross_entropy", "repeat_heads"}  # of language models: tests/models
    others |= {"ctc_loss", "expert_rows", "gumbel", "claimed"}  # with laws of their own: tests/ops
    others |= {"ctc_decode", "alibi_slopes", "fake_quantize"}  # of arrays; of a transform
    assert {*ops.__all__} - used - BUILDERS.keys() - initializers - others == set()
