"""A machine at home whose steps take known times: kernels alone as a roofline says, rehearsals as a test says."""

from collections.abc import Callable

import numpy as np

from taskflow import CostModel, Device, Graph, Kind, MachineModel, TaskGraph
from taskflow.cost.model import MeasuredCosts
from taskflow.execute import rehearsal
from tests import tiny

Truth = Callable[[TaskGraph], np.ndarray]  # row -> how many times longer than alone


class FakeCosts(MeasuredCosts):
    """Measured costs that measure nothing."""

    def __init__(self, machine: MachineModel) -> None:
        super().__init__(machine)
        self.alone = CostModel.analytic(machine)

    def _measure_point(self, task_graph, launch, row):
        return float(self.alone.seconds(task_graph)[row])

    def _measure_move(self, task_graph, row):
        return float(self.alone.seconds(task_graph)[row])


def true_seconds(task_graph: TaskGraph, truth: Truth) -> np.ndarray:
    """What every round of a rehearsal finds."""
    return CostModel.analytic(task_graph.machine).seconds(task_graph) * truth(task_graph)


class TrueCosts(CostModel):
    """Costs that know it all."""

    def __init__(self, machine: MachineModel, truth: Truth) -> None:
        super().__init__(machine)
        self.truth = truth

    def seconds(self, task_graph):
        return true_seconds(task_graph, self.truth)

    def source(self, task_graph, row):
        return "true"

    def _points(self, task_graph, rows):
        return self.seconds(task_graph)[rows]


def fake_rehearsals(monkeypatch, truth: Truth) -> list[TaskGraph]:
    """Let rehearsals find the truth; what is rehearsed is noted, as often as it is."""
    made: list[TaskGraph] = []

    class FakeRehearsal:
        def __init__(self, task_graph):
            self.task_graph = task_graph
            made.append(task_graph)

        def time_rows(self, rounds):
            return np.tile(true_seconds(self.task_graph, truth), (rounds, 1))

    monkeypatch.setattr(rehearsal, "Rehearsal", FakeRehearsal)
    return made


def slow_together(task_graph: TaskGraph) -> np.ndarray:
    """Computing takes four times as long where two devices do it, as if they had one memory."""
    is_slow = (task_graph.kind == Kind.POINT) & (len(task_graph.devices_used) > 1)
    return np.where(is_slow, 4.0, 1.0)


def slow_samples(task_graph: TaskGraph) -> np.ndarray:
    """Products of a part of the samples take six times as long, whatever else is done."""
    factors = np.ones(len(task_graph))
    for row in np.flatnonzero(task_graph.kind == Kind.POINT).tolist():
        launch = task_graph.launches[int(task_graph.launch[row])]
        low, high = launch.intervals(int(task_graph.point[row])).get("b", (0, SAMPLES))
        factors[row] = 6.0 if high - low < SAMPLES and "fc" in launch.leader else 1.0
    return factors


SAMPLES = 64


def network() -> Graph:
    """Three layers and a head."""
    graph = Graph()
    h = graph.input("x", (SAMPLES, 16), "float64")
    for k in range(3):
        h = tiny.tanh(tiny.linear(h, 32, name=f"fc{k}"), name=f"tanh{k}")
    tiny.sgd(tiny.mean_square(tiny.linear(h, 4, name="last")), momentum=0)
    return graph


def home(devices: int = 2, **rates: int) -> MachineModel:
    """Slow devices, and links on which it pays to divide a layer."""
    device = Device(kind="cpu", flops_per_second=1e8, memory_bandwidth=1e9)
    return MachineModel.uniform(devices, device, 1e8, latency_seconds=1e-6).with_rates(**rates)
