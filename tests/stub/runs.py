"""Steps of a graph on the stub, and what must hold for them: no fault, one graph, and nothing is taken when warm."""

import logging
from dataclasses import dataclass

import ops
import taskflow
from taskflow import Executor, Graph, MachineModel, lower
from taskflow.backend.cuda.device import CudaStreams
from tests.shim import refuse_unconverted
from tests.strategies import Model, feeds_of, random_strategy
from tests.stub import stub


class HeldStreams(CudaStreams):
    """GPUs of the stub, which look at what is passed to kernels."""

    def kernel(self, source, name):
        plain, signature = super().kernel(source, name), source.signature(name)

        def launch(blocks, block, args):
            refuse_unconverted(signature, args)
            plain(blocks, block, args)

        return launch


GPUS = 2  # in the environment of the tests
PRECISIONS = ("float32", "float16", "bfloat16", "tf32")


@dataclass(frozen=True)
class Setting:
    """How a case runs: on one device of one GPU, or on two or four of both."""

    precision: str
    captures: bool
    devices: int

    def __str__(self):
        return f"{self.precision}, {'captured' if self.captures else 'issued'}, on {self.devices}"


SETTINGS = [Setting(p, c, d) for p in PRECISIONS for c in (True, False) for d in (1, 4)]


def in_precision(case, precision, monkeypatch):
    """The model of a case with gradients and an optimizer; what it feeds in float64 is float32."""
    narrow = lambda graph, name, shape, dtype="float32": plain(
        graph, name, shape, "float32" if dtype == "float64" else dtype
    )
    plain = Graph.input
    with monkeypatch.context() as patch:
        patch.setattr(Graph, "input", narrow)
        graph, y = case.build()
        graph.output("y", y)
        graph = taskflow.precision(graph, precision, None)
        if case.is_differentiable:
            y = graph.outputs["y"]
            ops.sgd(
                ops.mean_squared_error(y, graph.input("wanted", y.shape, y.dtype)),
                lr=0.01,
                momentum=0.9,
            )
    return Model(graph, feeds_of(graph, classes=min(case.high, 3)))


def strategy_of(graph, machine, seed=0):
    """One device, or a random strategy on several."""
    if len(machine.devices) == 1:
        return taskflow.single_device(graph, machine)
    return random_strategy(graph, machine, seed)


def run(model, devices=1, captures=True, strategy=None, **options):
    """Two steps, and a third that takes nothing and waits for nothing but its end; lines of its trace."""
    machine = MachineModel.uniform(devices)
    strategy = strategy or strategy_of(model.graph, machine)
    task_graph = lower(model.graph, strategy, machine.with_rates(kind="cuda"))
    return run_rows(task_graph, model.feeds, captures, **options)


def run_rows(task_graph, feeds, captures=True, **options):
    """See `run`."""
    stub.take_faults()
    lines = []
    options = {"backend": HeldStreams(), "record": False, **options}
    with Executor(task_graph, allow_nan=True, capture=captures, **options) as step:
        step(feeds)
        step(feeds)
        waits = stub.count("the host waits for an event")
        with stub.warm_steps(), stub.traced(lines):
            step(feeds)
        assert stub.count("the host waits for an event") == waits + 1
        kinds = [part.is_captured for part in step._streamed.replay.segments]
    faults = stub.take_faults()
    assert not faults, faults[:10]
    assert kinds == [captures] and lines
    return lines


class Lines(logging.Handler):
    """What a logger says."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())
