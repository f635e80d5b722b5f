"""What words of other systems mean depends on the job: how many layers there are, samples, words, devices.

A `System` is what a bridge to one system is made of; `Told` is what its reader found in a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from taskflow.bridges.recipe import Recipe

ACCUMULATING = "by_ordinal"  # micro-batches one after the other, without a pipeline
PER_HOST = 8  # devices of a host, where a file does not say


@dataclass(frozen=True)
class JobFacts:
    """Of a graph and a machine.

    Attributes:
        layers: of the model.
        samples, length: the batch of a step, and words of a sample (1: samples have no other dimension).
        devices: of the machine.
    """

    layers: int
    samples: int
    length: int
    devices: int


@dataclass
class Told:
    """A file of another system.

    Attributes:
        words: what it says, in the shape that its reader needs.
        sizes: of the model, by the usual names of arguments: layers, hidden, heads, batch, sequence, dtype, ...
        devices: of the job; None: the file does not say.
        unread: what has no meaning here, and may cost or save seconds or memory.
    """

    words: Mapping[str, Any]
    sizes: dict[str, Any] = field(default_factory=dict)
    devices: int | None = None
    unread: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class System:
    """A bridge to one system.

    Attributes:
        name: on the command line.
        tell: a file, and what its caller sets in it, as `Told`.
        read: what it was told, and the facts, as a recipe; adds to `unread`.
        said: the nearest recipe that the system can say.
        write: the text of such a recipe.
        suffixes: of the names of its files, by which these are told from those of others.
    """

    name: str
    tell: Callable[[Path, str, Mapping[str, str]], Told]
    read: Callable[[Told, JobFacts], Recipe]
    said: Callable[[Recipe, JobFacts], Recipe]
    write: Callable[[Recipe, JobFacts], str]
    suffixes: tuple[str, ...] = ()


def divided(where: str, whole: int, parts: int, of: str) -> int:
    """The quotient; ValueError: there is a rest."""
    if parts < 1 or whole < parts or whole % parts:
        raise ValueError(f"{where}: {whole} {of} do not divide into {parts}")
    return whole // parts


def micro_batches(
    where: str, facts: JobFacts, data: int, batch: int | None, micro: int | None
) -> int:
    """How many there are on every device, from the batch of a step and the samples of one; either may not be said.

    Raises:
        ValueError: the model has another batch, or it does not divide.
    """
    if batch is not None and batch != facts.samples:
        raise ValueError(
            f"{where}: the batch of a step is {batch}, the model has {facts.samples}; build it with {batch}"
        )
    samples = divided(where, facts.samples, data, "samples of a step")
    return 1 if micro is None else divided(where, samples, micro, "samples of a device")


def in_whole_samples(recipe: Recipe, facts: JobFacts) -> Recipe:
    """With as many micro-batches, or the next fewer, as the samples of a device divide into."""
    samples = max(1, facts.samples // recipe.data)
    parts = next(k for k in range(min(recipe.micro_batches, samples), 0, -1) if samples % k == 0)
    return replace(recipe, micro_batches=parts)
