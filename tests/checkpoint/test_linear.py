"""Checkpoints of many regions: all their names are asked for a number of times that does not grow with them."""

import numpy as np
import pytest

from taskflow import Executor, Graph, MachineModel, checkpoint, lower, single_device
from taskflow.execute.persistent import PersistentRegions

ONE = MachineModel.uniform(1)


def asked(count, tmp_path, monkeypatch):
    """How often names are asked for by saving and loading."""
    graph, times = Graph(), []
    regions = [graph.parameter(f"w{k}", (2,), trainable=False) for k in range(count)]
    graph.output(
        "y",
        graph.launch("copy", "a -> a", regions[:1], kernel=lambda ctx, x, y: ctx.xp.copyto(y, x)),
    )
    names = PersistentRegions.names.fget
    with Executor(lower(graph, single_device(graph, ONE), ONE)) as step:
        monkeypatch.setattr(
            PersistentRegions, "names", property(lambda self: times.append(1) or names(self))
        )
        step.write("w0", np.ones(2))
        for act in (checkpoint.save, checkpoint.load):
            act(step, tmp_path / f"{count}")
    return len(times), len(names(step.regions))


@pytest.mark.parametrize("count", [3, 50])
def test_names_are_asked_for_a_few_times(count, tmp_path, monkeypatch):
    times, regions = asked(count, tmp_path, monkeypatch)
    assert times <= 8 and regions <= count
