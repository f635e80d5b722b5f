"""Explanations: the whole text for a small network, and each reason against strategies judged one by one."""

import math

import pytest

from taskflow import (
    CostModel,
    Device,
    Graph,
    MachineModel,
    ParallelConfig,
    Plan,
    data_parallel,
    explain,
    lower,
    model_parallel,
    random_strategy,
    recompute,
    scale_machine,
    simulate,
    stages,
)
from taskflow.report.describe import describe_bytes, describe_seconds
from taskflow.report.explaining import candidates
from taskflow.report.explanation import (
    comparison_table,
    explanation_parts,
    operator_table,
    path_table,
)
from taskflow.report.plan import plan_headline
from taskflow.schedule import Schedule, one_f_one_b
from tests import tiny
from tests.refusals import assert_refused
from tests.schedule.cells import CellCosts, chain
from tests.simple_costs import SimpleCosts

TWO = MachineModel.uniform(2, Device("emulated"), name="pair")


def network(batch=8):
    graph = Graph()
    x = graph.input("x", (batch, 6))
    tiny.sgd(tiny.mean_square(tiny.tanh(tiny.linear(x, 4))))
    return graph


def explained(graph, strategy, machine=TWO, **options):
    return explain(graph, strategy, machine, SimpleCosts(machine), **options)


def seconds_of(graph, strategy, machine=TWO):
    return simulate(lower(graph, strategy, machine), SimpleCosts(machine)).seconds


TEXT = """\
541 µs a step on machine 'pair' (2 devices), 1.08x as fast as data parallelism

Next: the order critical_path makes a step 0.939x as long.

a step                         strategy  data parallelism  change
time                           541 µs    585 µs            -7.52 %
compute, busiest device        477 µs    489 µs            -2.45 %
communication, busiest device  68.0 µs   100 µs            -32 %
exposed communication          64.0 µs   96.0 µs           -33.3 %
bytes moved                    136 B     200 B             -32 %
memory, fullest device         768 B     832 B             -7.69 %

operator  SOAP  split       compute  (data p.)  communication  (data p.)  moved  (data p.)
fc        P     o:2 on 0,1  396 µs   408 µs     32.0 µs        96.0 µs    64 B   192 B
tanh      S     b:2 on 0,1  32.0 µs  32.0 µs    32.0 µs        0          64 B   0
loss      S     b:2 on 0,1  49.0 µs  49.0 µs    4.00 µs        4.00 µs    8 B    8 B

fc: Parameter axis o in 2 on devices 0,1; moves fc (all-to-all, 64 B); data parallelism for it alone (b:2 on
  0,1) makes a step 1.08x as long (on the critical path communication +32.0 µs, compute +12.0 µs).
tanh: as in data parallelism, Sample axis b in 2 on devices 0,1; moves tanh.dx (all-to-all, 64 B); the best of
  2 alternatives (o:2 on 0,1) makes a step just as long.
loss: as in data parallelism, Sample axis b in 2 (partial sums) on devices 0,1; moves loss (all-reduce, 8 B);
  the best of 2 alternatives (o:2 on 0,1) makes a step 1.12x as long (on the critical path communication
  +64.0 µs).

critical path: 477 µs compute (88%), 64.0 µs communication (12%)

critical path  compute  communication  feed  of the step
fc             396 µs   32.0 µs        0     79.1%
tanh           32.0 µs  32.0 µs        0     11.8%
loss           49.0 µs  0              0     9.1%
(fed)          0        0              0     0.0%
"""


def test_text():
    graph = network()
    strategy = data_parallel(graph, TWO)
    strategy["fc"] = ParallelConfig({"o": 2})
    assert str(explained(graph, strategy)) + "\n" == TEXT


def test_advice_is_the_change_and_the_rate_that_shorten_a_step_most():
    graph, slow = network(batch=64), MachineModel.uniform(2, Device("emulated"), 1e5)
    strategy, costs = data_parallel(graph, slow), CostModel.analytic(slow)
    found = explain(graph, strategy, slow, costs)
    ordered = Plan(strategy, schedule="critical_path").predict(graph, slow, costs).seconds
    best = min([ordered, *(each.alternative.seconds for each in found.operators)])
    fast = scale_machine(slow, {"links": 2})
    halved = simulate(lower(graph, strategy, fast), CostModel.analytic(fast)).seconds
    assert f"makes a step {best / found.step.seconds:.3g}x as long" in found.advice
    assert found.advice.endswith(f"hosts would make it {halved / found.step.seconds:.3g}x.")
    assert best < found.step.seconds and halved < found.step.seconds
    assert not explain(graph, strategy, slow, costs, alternatives=0).advice


def test_advice_on_what_does_not_fit_is_what_makes_it_fit():
    graph = Graph()
    x = graph.input("x", (512, 8))
    for _ in range(6):
        x = tiny.tanh(tiny.linear(x, 8))
    tiny.sgd(tiny.mean_square(x))
    one = MachineModel.uniform(1, Device("emulated"))
    strategy = data_parallel(graph, one)
    peaks = [
        int(simulate(lower(g, strategy, one), SimpleCosts(one)).peak_bytes.max())
        for g in (graph, recompute(graph))
    ]
    small = one.with_rates(memory_bytes=sum(peaks) // 2)
    advice = explained(graph, strategy, small).advice
    assert peaks[1] < peaks[0] and advice.endswith(" makes it fit.")
    assert "micro-batches" in advice or "again" in advice


def test_fields():
    graph = network()
    found = explained(graph, model_parallel(graph, TWO))
    fc = found.operators[0]
    assert (fc.name, fc.soap, fc.is_data_parallel, fc.config) == (
        "fc",
        "P",
        False,
        ParallelConfig({"o": 2}),
    )
    assert fc.alternative.config == data_parallel(graph, TWO)["fc"]
    assert found.step.seconds == seconds_of(graph, model_parallel(graph, TWO))
    assert found.baseline.seconds == seconds_of(graph, data_parallel(graph, TWO))
    assert found.baseline.exposed_seconds == pytest.approx(96e-6)
    assert explained(graph, data_parallel(graph, TWO)).step == found.baseline


@pytest.mark.parametrize("seed", range(6))
def test_alternatives_are_strategies_that_differ_in_one_operator(seed):
    graph, machine = network(), MachineModel.uniform(3, Device("emulated"))
    strategy = random_strategy(graph, machine, seed) if seed else data_parallel(graph, machine)
    for entry in explained(graph, strategy, machine).operators:
        op, base = graph.operator(entry.name), data_parallel(graph, machine)[entry.name]
        others = [c for c in candidates(op, 3) if c != base] if entry.config == base else [base]
        seconds = {}
        for config in others:
            changed = strategy.copy()
            changed[op.name] = config
            seconds[config] = seconds_of(graph, changed, machine)
        found, step = entry.alternative, seconds_of(graph, strategy, machine)
        assert (found.seconds, found.tried) == (min(seconds.values()), len(others))
        assert seconds[found.config] == found.seconds
        assert found.compute_seconds + found.communication_seconds == pytest.approx(
            found.seconds - step, abs=1e-12
        )


def test_candidates():
    graph = network()
    fc, four = (
        graph.operators[0],
        [ParallelConfig({a: n}) for a, n in (("b", 4), ("b", 2), ("i", 4), ("i", 2))],
    )
    assert candidates(fc, 4)[:4] == four
    assert candidates(fc, 4)[-1] == candidates(fc, 1)[-1] == ParallelConfig({}, (0,))
    assert [str(c) for c in candidates(fc, 2)] == [
        "b:2 on 0,1",
        "i:2 on 0,1",
        "o:2 on 0,1",
        "whole on 0",
    ]
    tiny.centre(graph.input("y", (8, 6)))
    assert [str(c) for c in candidates(graph.operators[-1], 2)] == ["b:2 on 0,1", "whole on 0"]


def test_an_entry_of_an_update_may_follow_its_operator_again():
    graph = network()
    strategy = data_parallel(graph, TWO)
    strategy["fc.weight.update"] = ParallelConfig({"o": 2})
    entries = {entry.name: entry for entry in explained(graph, strategy).operators}
    update = entries["fc.weight.update"]
    assert list(entries) == ["fc", "tanh", "loss", "fc.weight.update"]
    assert (update.soap, update.is_data_parallel) == ("P", False)
    assert update.alternative.config == strategy["fc"]
    assert update.alternative.seconds == seconds_of(graph, data_parallel(graph, TWO))
    assert update.baseline.compute_seconds == pytest.approx(
        24e-6
    )  # every device updates all 24 weights


def test_what_does_not_fit_is_said():
    graph = network(batch=64)
    machine = MachineModel.uniform(2, Device("emulated", memory_bytes=3000), name="small")
    found = explained(graph, data_parallel(graph, machine), machine)
    assert max(found.step.peak_bytes) <= 3000
    reasons = [entry.alternative for entry in found.operators if entry.alternative.config is None]
    assert all(math.isinf(reason.seconds) for reason in reasons)
    assert reasons and "the device has 3000 B" in str(found)


def test_only_the_longest_operators_are_tried_and_shown():
    graph, calls = network(), []
    found = explained(
        graph, data_parallel(graph, TWO), alternatives=2, progress=lambda *call: calls.append(call)
    )
    assert [entry.name for entry in found.operators if entry.alternative] == ["fc", "loss"]
    assert calls == [(1, 2), (2, 2)]
    assert "tanh" not in str(list(explanation_parts(found, most=2)))


def test_operators_of_which_the_same_is_said_share_a_line():
    graph = Graph()
    tiny.sgd(tiny.mean_square(tiny.tanh(tiny.tanh(tiny.linear(graph.input("x", (8, 6)), 4)))))
    text = str(explained(graph, data_parallel(graph, TWO), alternatives=0))
    assert (
        "tanh, tanh_2: as in data parallelism, Sample axis b in 2 on devices 0,1; moves nothing.\n"
        in text
    )


def test_layers_that_do_the_same_are_a_row_and_one_of_them_is_tried():
    graph = Graph()
    x = graph.input("x", (8, 4))
    for k in range(3):
        x = tiny.linear(x, 4, name=f"layer{k}")
    tiny.sgd(tiny.mean_square(x))
    found = explained(graph, data_parallel(graph, TWO), alternatives=1)
    assert [entry.label for entry in found.operators] == ["layer0-2"] * 3 + ["loss"]
    assert [entry.name for entry in found.operators if entry.alternative] == ["layer2"]
    rows = {row[0]: row for row in operator_table(found, 30)[1:]}
    shares = [entry.share for entry in found.operators[:3]]
    assert list(rows) == ["layer0-2 (3)", "loss"]
    assert rows["layer0-2 (3)"][3] == describe_seconds(
        sum(share.compute_seconds for share in shares)
    )
    assert rows["layer0-2 (3)"][7] == describe_bytes(sum(share.bytes_moved for share in shares))
    assert {row[0] for row in path_table(found, 30)[1:]} == {"layer0-2", "loss", "(fed)"}
    assert "layer0-2 (3): as in data parallelism, Sample axis b in 2" in str(found)


def test_one_device_has_no_alternatives():
    graph, one = network(), MachineModel.uniform(1)
    found = explained(graph, data_parallel(graph, one), one)
    assert not any(entry.alternative for entry in found.operators)
    assert [entry.soap for entry in found.operators] == ["", "", ""]
    assert str(found).startswith(
        "953 µs a step on machine 'uniform' (1 device), 1.00x as fast as data parallelism"
    )


def test_memory_that_is_too_small_has_a_row():
    graph = network()
    machine = MachineModel.uniform(2, Device("emulated", memory_bytes=650))
    rows = comparison_table(explained(graph, data_parallel(graph, machine), machine))
    assert rows[-2:] == [
        ("device 0 has 650 B, needs", "704 B", "704 B", "the same"),
        ("device 1 has 650 B, needs", "704 B", "704 B", "the same"),
    ]


def test_a_plan_in_time():
    """To the unit and the byte: 12 of 18 or 15 units are busy; an activation of a micro-batch has 32 bytes."""
    graph, machine, costs = chain(4, 4), MachineModel.uniform(4), CellCosts()
    strategy = stages(graph, machine, cuts=["cell1", "cell2", "cell3"], parts=4)
    held = {
        "gpipe": 4 + 1,
        "one_f_one_b": 3 + 1,
    }  # of device 1: its inputs, and a gradient for that of the weight
    for order, units in (("gpipe", 18), (one_f_one_b, 18), ("zb_h1", 15)):
        found = explain(graph, strategy, machine, costs, order=order)
        plan = found.plan
        assert (found.step.seconds, plan.idle) == (units, pytest.approx((1 - 12 / units,) * 4))
        assert plan.held_bytes[1] == 32 * held.get(plan.schedule, plan.held_bytes[1] // 32)
        assert all(entry.alternative is None for entry in found.operators)
    assert (plan.schedule, plan.parts, plan.recomputed) == ("zb_h1", 4, ())
    assert plan.stages == (("shift", "cell0"), ("cell1",), ("cell2",), ("cell3", "loss"))
    assert plan.devices == ((0,), (1,), (2,), (3,))
    assert PLAN in str(found)
    assert_refused(
        "schedule 'short': device 0 never does F of stage 0 for micro-batch 0; 48 of 48 blocks are in no list",
        lambda: explain(graph, strategy, machine, costs, order=Schedule({}, "short")),
    )


PLAN = """
schedule zb_h1: 4 micro-batches, 4 stages

stage  devices  forward operators
0      0        shift, cell0
1      1        cell1
2      2        cell2
3      3        cell3, loss

device  idle (bubble)  held by micro-batches
0       20.0%          192 B
1       20.0%          192 B
2       20.0%          224 B
3       20.0%          300 B

operator """


def test_what_is_computed_again():
    graph, machine = recompute(chain(4, 4), ["cell1", "cell2"]), MachineModel.uniform(2)
    found = explain(graph, data_parallel(graph, machine), machine, CostModel.analytic(machine))
    assert found.plan.recomputed == ("cell1", "cell2")
    assert (
        plan_headline(found.plan)
        == "schedule program: 1 micro-batch, 1 stage; computed again: cell1, cell2"
    )
    assert any(entry.alternative for entry in found.operators)  # it is a strategy still
    plain = chain(4, 4)
    assert (
        explain(plain, data_parallel(plain, machine), machine, CostModel.analytic(machine)).plan
        is None
    )
