"""Phases: which part of a training step an operator belongs to.

Takes operators in program order; gives a phase of each. What `differentiate` appends is backward. A weight gradient is
a backward operator that only updates read, or other weight gradients of the same leader: nobody waits for it before
the update. An update is what reads gradients and is not backward itself, and what brings state for it from the memory
of hosts. All else is forward, and so is all of inference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from enum import IntEnum

from taskflow.graph.crossing import crossing
from taskflow.graph.graph import Operator
from taskflow.machine.hostmemory import BACK


class Phase(IntEnum):
    """A part of a training step."""

    FORWARD = 0
    BACKWARD = 1  # gradients of activations
    WEIGHT = 2  # gradients of parameters
    UPDATE = 3


def phases_of(operators: Sequence[Operator]) -> list[Phase]:
    """The phase of every operator."""
    phases = _by_gradients(operators)
    # of a region: leaders of weight gradients; "": what is waited for
    readers: dict[str, set[str]] = defaultdict(set)
    for number, op in reversed(list(enumerate(operators))):
        leader = op.follows or op.name
        if phases[number] == Phase.BACKWARD:
            others = set[str]().union(*(readers[r.name] for r in op.outputs)) - {leader}
            phases[number] = Phase.BACKWARD if others else Phase.WEIGHT
        for r in op.inputs if phases[number] != Phase.UPDATE else ():
            readers[r.name].add(leader if phases[number] == Phase.WEIGHT else "")
        is_read = any(readers[r.name] for r in op.outputs)
        if crossing(op) == BACK and phases[number] == Phase.FORWARD and not is_read:
            phases[number] = Phase.UPDATE
    return phases


def _by_gradients(operators: Sequence[Operator]) -> list[Phase]:
    """The phases where all gradients count as those of activations, and what is brought for updates as forward."""
    gradients: set[str] = set()
    phases = []
    for op in operators:
        is_late = not op.is_backward and any(r.name in gradients for r in op.inputs)
        phases.append(
            Phase.UPDATE if is_late else Phase.BACKWARD if op.is_backward else Phase.FORWARD
        )
        if phases[-1] != Phase.FORWARD:
            gradients.update(r.name for r in op.written if not r.is_persistent or op.is_backward)
    return phases
