"""What the tests of checkpoints save: a small network with every kind of persistent region, and its feeds."""

import numpy as np

import ops
import taskflow
from taskflow import Graph
from taskflow.core.system import world_size

BATCH, WIDTH = 12, 6


def network(training: bool = True, width: int = 8, dtype: str = "float32") -> Graph:
    """Batch norm's running statistics, dropout's masks by step, Adam's moments and a learning rate."""
    graph = Graph()
    x, t = graph.input("x", (BATCH, WIDTH), dtype), graph.input("t", (BATCH,), "int32")
    h = ops.relu(
        ops.batch_norm(ops.linear(x, width, name="fc1"), training=training, name="norm"),
        name="relu",
    )
    h = ops.dropout(h, 0.3, training=training, name="drop")
    loss = ops.softmax_cross_entropy(ops.linear(h, 3, name="fc2"), t, name="loss")
    graph.output("loss", loss)
    if training:
        ops.adam(loss, 0.01)
    return graph


def feeds(step: int, dtype: str = "float32") -> dict[str, np.ndarray]:
    """The feeds of a step."""
    random = np.random.default_rng([7, step])
    x = random.standard_normal((BATCH, WIDTH)).astype(dtype)
    return {"x": x, "t": random.integers(0, 3, BATCH).astype(np.int32)}


def executor(
    rule=taskflow.single_device, devices: int = 1, seed: int = 3, **options
) -> taskflow.Executor:
    """An executor of the network under a strategy's rule."""
    machine, graph = taskflow.MachineModel.uniform(devices), network(**options)
    return taskflow.Executor(taskflow.lower(graph, rule(graph, machine), machine), seed=seed)


def train(step: taskflow.Executor, until: int) -> list[bytes]:
    """Run steps until so many are done; gives the bits of their losses."""
    return [step(feeds(step.steps))["loss"].tobytes() for _ in range(until - step.steps)]


def bits(step: taskflow.Executor) -> dict[str, bytes]:
    """The bits of all persistent regions."""
    return {name: step.read(name).tobytes() for name in step.persistent}


def batches() -> taskflow.Batches:
    """Five batches an epoch."""
    random = np.random.default_rng(1)
    x = random.standard_normal((5 * BATCH, WIDTH)).astype(np.float32)
    return taskflow.Batches({"x": x, "t": random.integers(0, 3, 5 * BATCH).astype(np.int32)}, BATCH)


def trainer(rule=taskflow.data_parallel, machine=None, **options) -> taskflow.Trainer:
    """A trainer of the network, by default on a device for each rank."""
    machine = machine or taskflow.MachineModel.uniform(world_size())
    costs = taskflow.CostModel.analytic(machine)
    rate = taskflow.rates.cosine(0.02, 20, warmup=3)
    options = {"quiet": True, "seed": 3, "learning_rate": rate} | options
    return taskflow.Trainer(network(), machine=machine, strategy=rule, costs=costs, **options)
