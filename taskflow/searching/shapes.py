"""Shapes: the rules by which plans of experts are laid out."""

from __future__ import annotations

from typing import NamedTuple

from taskflow.searching.grids import RESTS

WHOLE = ""
SHARDED = ", sharded state"
HOMES = ", sharded parameters"
ONE_STAGE = "one_f_one_b", 1
# Policies, and the stages of each group of devices; in a V the two at its turn are one.
V = "zb_v"
INTERLEAVED = "interleaved"  # of which a group may have any number of stages
SCHEDULES = ONE_STAGE, (V, 2), (INTERLEAVED, 2), ("zb_h1", 1)
PARTS = 2, 1, 4  # with fewer a pipeline is idle at its ends, with more its kernels are short

Turn = tuple[str, bool]  # a field of a rule, and whether its value becomes larger


class PlanShape(NamedTuple):
    """A rule for a plan.

    Attributes:
        tensor: degree of tensor parallelism.
        rest: how what that does not split is split, see `grids.RESTS`.
        state: of optimizers and parameters.
        is_again: whether the inside of layers is computed again.
        groups: of devices.
        parts: micro-batches for each group; 0: a step of several in a row is one.
        schedule: its name, and the stages of each group.
        context: parts of the sequence.
        heads: parts of them that have as many parts of the heads in attention instead.
        is_ring: whether attention goes around a ring of the others (`taskflow.ring`), and does not gather keys.
        is_even: whether axes are cut into parts of equal work, not points, where a table says what that is.
    """

    tensor: int = 1
    rest: str = RESTS[0]
    state: str = WHOLE
    is_again: bool = False
    groups: int = 1
    parts: int = 1
    schedule: tuple[str, int] = ONE_STAGE
    is_even: bool = False
    context: int = 1
    heads: int = 1
    is_ring: bool = False

    @property
    def ring(self) -> int:
        """See `Plan.ring`."""
        return self.context // self.heads if self.is_ring else 1

    @property
    def stages(self) -> int:
        """How many."""
        return self.groups * self.schedule[1] - (self.schedule[0] == V)

    @property
    def name(self) -> str:
        """What tables call it."""
        also = f", context {self.context}, heads {self.heads}" * (self.context > 1)
        also += f", ring of {self.ring}" * self.is_ring
        also += ", even work" * self.is_even + ", computed again" * self.is_again + self.state
        if self.groups == 1 and self.parts < 2:
            return (f"tensor {self.tensor}, {self.rest}" if self.tensor > 1 else "data") + also
        said = f"{self.stages} stages, "
        if self.parts:
            said = f"{self.schedule[0]}, {said}{self.parts * self.groups} micro-batches, "
        return f"{said}tensor {self.tensor}, {self.rest}{also}"
