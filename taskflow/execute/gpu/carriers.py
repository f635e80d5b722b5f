"""Carriers: how bytes get from one rank's GPU to another's, chosen before a step from what every rank says of its GPU.

Three carriers. `shared`: the receiver reads the sender's memory, mapped by CUDA IPC; flags say when. `nccl`: calls of
the library. `messages`: through pinned memory of the hosts and MPI. The choice is a function of the facts alone, so
that all ranks and all runs choose alike:

* a pair of ranks: `shared` where they are on one host and the receiver's GPU reaches the sender's, or is the same one;
  else `nccl` where it can be; else `messages`;
* a collective: `nccl` where it can be, and its plan exists (`library`); else it is copies and folds, pair by pair. On
  a machine whose collectives it moves, or with measurements of it, only those for which it was chosen are its calls;
* NCCL can be where every rank has the library and a GPU of its own.

Whoever asks for one carrier gets it for all, or is refused with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from taskflow.backend import RankGpu
from taskflow.backend.ranks import SUMMED, why_no_library
from taskflow.execute.gpu.library import LibraryPlan, plan_library
from taskflow.tasks.calls import is_by_library
from taskflow.tasks.exchange import SUMS
from taskflow.tasks.task_graph import COLLECTIVES, Array, Kind, TaskGraph


@dataclass(frozen=True)
class Carriers:
    """What was chosen.

    Attributes:
        pairs: (source, device) -> carrier, for all pairs of ranks that exchange something.
        plans: collective rows that are calls of the library.
    """

    pairs: Mapping[tuple[int, int], str] = field(default_factory=dict)
    plans: Mapping[int, LibraryPlan] = field(default_factory=dict)

    @property
    def shares(self) -> bool:
        """Whether any rank reads another's memory."""
        return "shared" in self.pairs.values()

    def of_rows(self, origin: Array) -> Carriers:
        """The same for a graph in which the rows of some collectives are spelled out; `origin`: its rows' old ones."""
        now = {int(old): new for new, old in enumerate(origin.tolist()) if old in self.plans}
        return replace(self, plans={now[row]: plan for row, plan in self.plans.items()})

    def describe(self) -> str:
        """A line for the log."""
        counts = Counter(self.pairs.values())
        parts = [f"{count} pairs of ranks by {name}" for name, count in sorted(counts.items())]
        return ", ".join([*parts, f"{len(self.plans)} collectives by nccl"])


def choose_carriers(
    task_graph: TaskGraph, gpus: Sequence[RankGpu], carrier: str, why_not: str = ""
) -> Carriers:
    """Carriers of all transfers and collectives among ranks with these `gpus`; `why_not`: why memory cannot be mapped.

    Raises:
        ValueError: the carrier that `carrier` asks for is not possible, and why.
    """
    if len(gpus) < 2:
        return Carriers()
    if carrier != "auto":
        _check_possible(gpus, carrier, why_not)
    has_library = carrier in ("auto", "nccl") and not why_no_library(gpus, carrier == "nccl")
    plans = _plan_collectives(task_graph) if has_library else {}
    pairs = {
        pair: _carrier(gpus, pair, carrier, not why_not, has_library)
        for pair in _pairs(task_graph, plans)
    }
    return Carriers(pairs, plans)


def why_not_shared(gpus: Sequence[RankGpu], source: int, device: int) -> str:
    """Why a rank cannot read another one's memory; empty where it can."""
    if gpus[source].host != gpus[device].host:
        return f"ranks {source} and {device} are on different hosts"
    is_reached = gpus[source].gpu in gpus[device].reaches
    return "" if is_reached else f"the GPU of rank {device} does not reach that of rank {source}"


def _check_possible(gpus: Sequence[RankGpu], carrier: str, why_not: str) -> None:
    ranks = range(len(gpus))
    why = ""
    if carrier == "shared":
        reasons = (why_not_shared(gpus, s, d) for s in ranks for d in ranks if s != d)
        why = why_not or next(filter(None, reasons), "")
    elif carrier == "nccl":
        why = why_no_library(gpus, True)
    if why:
        raise ValueError(f"executor: transport='{carrier}' is not possible: {why}")


def _carrier(
    gpus: Sequence[RankGpu], pair: tuple[int, int], carrier: str, can_share: bool, has_library: bool
) -> str:
    if carrier != "auto":
        return carrier
    if can_share and not why_not_shared(gpus, *pair):
        return "shared"
    return "nccl" if has_library else "messages"


def _pairs(task_graph: TaskGraph, plans: Mapping[int, LibraryPlan]) -> list[tuple[int, int]]:
    """All pairs that rows exchange something between, but for the collectives that have a plan; sorted."""
    row, source, device, _ = task_graph.hops()
    keep = ~np.isin(row, list(plans))
    return sorted(set(zip(source[keep].tolist(), device[keep].tolist(), strict=True)))


def _plan_collectives(task_graph: TaskGraph) -> dict[int, LibraryPlan]:
    plans = {}
    rows = (
        is_by_library(task_graph)
        if task_graph.machine.library or task_graph.machine.has_library
        else task_graph.kind == Kind.COLLECTIVE
    )
    for row in np.flatnonzero(rows).tolist():
        region = int(task_graph.region[row])
        name = COLLECTIVES[int(task_graph.collective[row])]
        if name not in SUMS or task_graph.regions[region].dtype in SUMMED:
            plan = plan_library(task_graph.exchange(row), task_graph.order(region))
            if plan is not None:
                plans[row] = plan
    return plans
