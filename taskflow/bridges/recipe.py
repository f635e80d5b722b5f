"""Recipes: a job in the words that training systems share, between a plan and the flags or files of one of them.

A recipe is what a grid or a pipeline is made of: degrees of parallelism, which layers stand in which stage,
micro-batches, schedule, what is sharded and what is computed again. It names no operator and no device. Devices are
counted as Megatron-LM and torchtitan count them: tensor parallel ones are neighbours, then come context, data and, as
the slowest, pipeline parallelism.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import groupby

from taskflow.searching.grid_plan import turns

EMBEDDING = "E"
LAYER = "t"
LOSS = "L"
V_SCHEDULES = ("zb_v",)  # stages go down through the groups of devices and up again


@dataclass(frozen=True)
class Recipe:
    """A job in words that systems share.

    Attributes:
        tensor, context, expert, data: degrees of parallelism; `expert` divides `context` times `data`.
        rest: how operators are split that tensor parallelism does not split: one of `taskflow.searching.grids.RESTS`.
        pipeline: groups of devices, with a stage or several each.
        layout: of every stage, in the order of the model, its letters: E the embedding, t a layer, L the loss; empty:
            one stage has them all.
        micro_batches: of a step, on every device.
        schedule: a name that `taskflow.reorder` takes; empty: rows as they are lowered.
        sharding: over data parallel devices: "" nothing, "state" of the optimizer, or "parameters".
        gathers_again: whether sharded parameters are gathered again for the backward pass.
        recomputation: "" none, "layers", "attention" (its core) or "cheap" (all in layers that is no product).
        offload: what is kept in the memory of the host, in the system's words.
    """

    tensor: int = 1
    context: int = 1
    expert: int = 1
    data: int = 1
    rest: str = "replicas"
    pipeline: int = 1
    layout: tuple[str, ...] = ()
    micro_batches: int = 1
    schedule: str = ""
    sharding: str = ""
    gathers_again: bool = True
    recomputation: str = ""
    offload: tuple[str, ...] = ()

    @property
    def group(self) -> int:
        """Devices of a stage."""
        return self.tensor * self.context * self.data

    @property
    def devices(self) -> int:
        """Of the job."""
        return self.group * self.pipeline

    @property
    def per_group(self) -> int:
        """Stages of each group of devices."""
        return max(1, -(-len(self.layout) // self.pipeline))

    @property
    def is_v(self) -> bool:
        """Whether stages go down through the groups and up again."""
        return self.policy in V_SCHEDULES

    @property
    def policy(self) -> str:
        """The schedule, however eager."""
        return self.schedule.partition(":")[0]

    def groups(self) -> list[int]:
        """Of every stage its group of devices."""
        return turns(self.pipeline, len(self.layout), self.is_v)

    def unlike(self, other: Recipe) -> dict[str, tuple[object, object]]:
        """Field -> its value here and there, where they differ."""
        pairs = ((f.name, getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return {name: (here, there) for name, here, there in pairs if here != there}


def even_layout(stages: int, layers: int, first: int = 0, last: int = 0) -> tuple[str, ...]:
    """Stages with as many layers each; the embedding counts as `first` of them in the first stage, the loss as `last`.

    Where they do not divide, the first stages have one more.
    """
    counts = [
        (layers + first + last) // stages + (k < (layers + first + last) % stages)
        for k in range(stages)
    ]
    counts[0] -= first
    counts[-1] -= last
    return with_ends(counts)


def with_ends(counts: list[int]) -> tuple[str, ...]:
    """Stages of so many layers, with the embedding in the first and the loss in the last one."""
    letters = [LAYER * count for count in counts]
    letters[0] = EMBEDDING + letters[0]
    letters[-1] += LOSS
    return tuple(letters)


def check_layout(where: str, layout: tuple[str, ...], layers: int) -> None:
    """ValueError: the letters are not those of a model with so many layers, in order."""
    if not layout:
        return
    wanted = EMBEDDING + LAYER * layers + LOSS
    has = "".join(layout)
    if has != wanted:
        named = "".join(f"{letter}*{len(list(run))}" for letter, run in groupby(has))
        raise ValueError(f"{where}: the layout has {named}; the model has E, {layers} layers and L")
