"""Jobs as they are: slow devices, loaded links, jitter of kernels; and what a straggler costs."""

from dataclasses import replace

import numpy as np
import pytest

from taskflow import CostModel, MachineModel, Plan, lower, scale_machine, simulate, stages
from taskflow.cli import main
from taskflow.report.stragglers import stragglers
from taskflow.schedule import one_f_one_b
from taskflow.strategy.rules import data_parallel
from tests.models.tiny import build

MACHINE = MachineModel.preset("v100").take(4)
GRAPH = build("mlp", inputs=256, hidden=(512, 512, 512, 64), batch=64)
COSTS = CostModel.analytic(MACHINE)
PIPELINE = Plan(stages(GRAPH, MACHINE, 4, 4), schedule=one_f_one_b)
PLANS = {"data parallel": Plan(data_parallel(GRAPH, MACHINE)), "1f1b": PIPELINE}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("slower", [1.1, 1.5])
def test_a_slow_device_costs_what_the_critical_path_says(name: str, slower: float) -> None:
    """About at least, since what is slow overlaps otherwise; to 1 % of a step where most of the path is."""
    plan = PLANS[name]
    base = plan.predict(GRAPH, MACHINE, COSTS).seconds
    slow = stragglers(GRAPH, plan, MACHINE, COSTS, slower)
    assert slow[0].seconds > 1.01 * base
    for one in slow:
        assert one.seconds - base >= (slower - 1) * (one.path_seconds - 0.05 * base)
    most = max(slow, key=lambda one: one.path_seconds)
    if slower == 1.1:
        by_path = (slower - 1) * most.path_seconds
        assert by_path > 0.01 * base
        assert abs(most.seconds - base - by_path) <= 0.01 * base


def test_all_that_a_slow_device_does_takes_longer() -> None:
    rows = lower(GRAPH, data_parallel(GRAPH, MACHINE), MACHINE)
    slow = scale_machine(MACHINE, {"device:2": 1.25})
    ratio = COSTS.on(slow).seconds(rows) / COSTS.seconds(rows)
    here = ~rows.is_communication
    assert ratio[here] == pytest.approx(np.where(rows.device[here] == 2, 1.25, 1.0))
    assert ratio[~here] == pytest.approx(1.0)


def test_a_loaded_link_is_one_of_less_bandwidth() -> None:
    machine = MachineModel.uniform(3)
    loaded = scale_machine(machine, {"link:2-0": 0.7})
    ratio = loaded.bandwidth / machine.bandwidth
    assert ratio[0, 2] == ratio[2, 0] == pytest.approx(0.7)
    assert ratio[0, 1] == ratio[1, 2] == 1.0


FILE = """
jitter = [[0.0, 1.0], [0.9, 1.0], [1.0, 3.0]]
[[device]]
count = 2
rates = { float64 = 2e9 }
[[device]]
slowdown = 2.0
rates = { float64 = 2e9 }
[[link]]
ends = [[0, 1, 2], "switch"]
bandwidth = 1e9
load = 0.25
"""


def test_a_machine_file_says_what_is_slow(tmp_path) -> None:
    (tmp_path / "machine.toml").write_text(FILE)
    machine = MachineModel.load(tmp_path / "machine.toml")
    first, _, slow = machine.devices
    assert slow.flops_per_second == first.flops_per_second / 2
    assert slow.rate("float64") == 1e9 and slow.overhead_seconds == 2 * first.overhead_seconds
    assert {link.bandwidth for link in machine.links} == {0.75e9}
    machine.save(tmp_path / "saved.toml")
    assert MachineModel.load(tmp_path / "saved.toml") == machine
    assert machine.jitter == ((0.0, 1.0), (0.9, 1.0), (1.0, 3.0))


def test_the_command_draws_the_jitter_of_a_file(tmp_path, capsys) -> None:
    (tmp_path / "machine.toml").write_text(FILE)
    job = ["simulate", "ops.models.mlp:build", "--arg", "batch=8", "--arg", "hidden=(64,)"]
    assert main([*job, "--machine", str(tmp_path / "machine.toml"), "--jitter", "4"]) == 0
    assert "a step with jitter, 4 draws" in capsys.readouterr().out
    assert main([*job, "--jitter", "4"]) == 2
    assert "--jitter: machine 'uniform' has none in its file" in capsys.readouterr().err


def test_jitter_has_its_quantiles_and_makes_steps_longer() -> None:
    quantiles = ((0.0, 0.5), (0.5, 1.0), (1.0, 2.0))
    machine = replace(MACHINE, jitter=quantiles)
    plan, costs = PLANS["data parallel"], CostModel.analytic(machine)
    rows = lower(GRAPH, plan.strategy, machine)
    here = ~rows.is_communication
    factors = np.concatenate(
        [(costs.with_jitter(s).seconds(rows) / costs.seconds(rows))[here] for s in range(40)]
    )
    for share, factor in quantiles:
        assert np.quantile(factors, share) == pytest.approx(factor, rel=0.05)
    assert (costs.with_jitter(3).seconds(rows) == costs.with_jitter(3).seconds(rows)).all()
    drawn = {simulate(rows, costs.with_jitter(seed)).seconds for seed in range(5)}
    assert len(drawn) == 5 and np.mean(list(drawn)) > simulate(rows, costs).seconds


@pytest.mark.parametrize("name", ["device:4", "link:0-9", "host:1"])
def test_what_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"scale '{name}': machine .* has no such device or link"):
        scale_machine(MACHINE, {name: 2.0})


@pytest.mark.parametrize("jitter", [((0.5, 2.0), (0.4, 3.0)), ((1.5, 1.0),), ((0.0, -1.0),)])
def test_jitter_is_quantiles(jitter) -> None:
    with pytest.raises(ValueError, match="jitter is pairs of a share"):
        MachineModel(MACHINE.devices, MACHINE.links, jitter=jitter)
