"""Collectives as calls of a library: what NCCL is asked for, decided without it.

Takes a collective row as `Exchange` has it; gives the calls that carry it out among whole groups of devices, or None
where no such calls do (then it is copies and folds, as everywhere else). Sources and targets are arguments by number.

* A sum of which every device holds a partial result and wants all is an all-reduce. Where more want it than hold one,
  it is reduced to a holder and broadcast from there. Pieces that are even slices are a reduce-scatter, others a reduce
  each.
* What every device holds an even slice of and wants whole is an all-gather, what one holds and all want a broadcast;
  all other movement is sends, each from a holder, in turn. What others pass on (a two-level all-to-all) is no call:
  it goes as its messages say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from taskflow.core.geometry import Rect
from taskflow.tasks.exchange import SUMS, Exchange
from taskflow.tasks.turns import new_turns, whose_turn


@dataclass(frozen=True)
class LibraryCall:
    """One call of all devices in `group`.

    Attributes:
        kind: as in `taskflow.backend.ranks.GroupCall`; `send` stands for its receiving end, too, and `copy` for a copy
            within a device.
        group: devices, in the order in which slices are numbered; empty for sends, which are among all devices.
        source_box, target_box: what each device gives and gets, of an argument each.
        sources, targets: device -> argument.
        root: the device that a reduce goes to, or a broadcast or send comes from.
    """

    kind: str
    group: tuple[int, ...]
    sources: Mapping[int, int]
    targets: Mapping[int, int]
    source_box: Mapping[int, Rect]
    target_box: Mapping[int, Rect]
    root: int = -1


@dataclass(frozen=True)
class LibraryPlan:
    """Rounds of calls: those of one round, all of one group, go together, and a round follows the one before."""

    rounds: list[list[LibraryCall]] = field(default_factory=list)

    @property
    def groups(self) -> list[tuple[int, ...]]:
        """The groups of its calls, each once; that of sends is empty."""
        return list(dict.fromkeys(call.group for calls in self.rounds for call in calls))


def plan_library(x: Exchange, order: Sequence[int]) -> LibraryPlan | None:
    """The calls that carry out an exchange; `order` is that of the region's dimensions in memory, slowest first."""
    sources = x.source_at
    targets = {d: k[0] for d, k in x.targets_at.items()}
    is_one_each = len(sources) == x.sources and len(targets) == x.targets  # on a device
    if x.name in SUMS:
        return _plan_sum(x, sources, targets, order) if is_one_each else None
    if x.relays:
        return None
    if is_one_each and (
        call := _gather_slices(x, sources, targets, order) or _broadcast(x, sources, targets)
    ):
        return LibraryPlan([[call]])
    return LibraryPlan([_sends(x)])


# -- sums --------------------------------------------------------------------------------------------------------------


def _plan_sum(
    x: Exchange, sources: Mapping[int, int], targets: Mapping[int, int], order: Sequence[int]
) -> LibraryPlan | None:
    """None where boxes do not fit, or one that wants a piece holds none."""
    boxes = {x.boxes[k] for k in sources.values()}
    if len(boxes) > 1 or next(iter(boxes)).is_empty:
        return None
    (whole,) = boxes
    if all(x.boxes[k] == whole for k in targets.values()):
        return _sum_whole(sources, targets, whole)
    pieces = {d: x.boxes[k] for d, k in targets.items()}
    if not targets.keys() <= sources.keys() or not all(map(whole.covers, pieces.values())):
        return None
    return _sum_pieces(sources, targets, whole, pieces, order)


def _sum_whole(
    sources: Mapping[int, int], targets: Mapping[int, int], box: Rect
) -> LibraryPlan | None:
    group = tuple(sorted(sources))
    boxes = dict.fromkeys({**sources, **targets}, box)
    if sources.keys() == targets.keys():
        return LibraryPlan([[LibraryCall("all_reduce", group, sources, targets, boxes, boxes)]])
    root = min(sources.keys() & targets.keys(), default=None)
    if root is None:
        return None
    held = {root: targets[root]}
    calls = [LibraryCall("reduce", group, sources, held, boxes, boxes, root)]
    if len(targets) > 1:
        others = {d: targets[d] for d in targets if d != root}
        group = tuple(sorted(targets))
        calls.append(LibraryCall("broadcast", group, held, others, boxes, boxes, root))
    return LibraryPlan([[call] for call in calls])


def _sum_pieces(
    sources: Mapping[int, int],
    targets: Mapping[int, int],
    whole: Rect,
    pieces: Mapping[int, Rect],
    order: Sequence[int],
) -> LibraryPlan:
    group = tuple(sorted(sources))
    wholes = dict.fromkeys(sources, whole)
    if sources.keys() == targets.keys() and are_slices([pieces[d] for d in group], whole, order):
        return LibraryPlan(
            [[LibraryCall("reduce_scatter", group, sources, targets, wholes, pieces)]]
        )
    sums = [
        LibraryCall(
            "reduce",
            group,
            sources,
            {d: targets[d]},
            dict.fromkeys(sources, pieces[d]),
            pieces,
            d,
        )
        for d in sorted(targets)
    ]
    return LibraryPlan([sums])


# -- movement ----------------------------------------------------------------------------------------------------------


def _gather_slices(
    x: Exchange, sources: Mapping[int, int], targets: Mapping[int, int], order: Sequence[int]
) -> LibraryCall | None:
    group = tuple(sorted(sources))
    wholes = {x.boxes[k] for k in targets.values()}
    if sources.keys() != targets.keys() or len(wholes) > 1 or len(group) < 2:
        return None
    (whole,) = wholes
    pieces = {d: x.boxes[sources[d]] for d in group}
    if not are_slices([*pieces.values()], whole, order):
        return None
    return LibraryCall("all_gather", group, sources, targets, pieces, dict.fromkeys(group, whole))


def _broadcast(
    x: Exchange, sources: Mapping[int, int], targets: Mapping[int, int]
) -> LibraryCall | None:
    boxes = {x.boxes[k] for k in (*sources.values(), *targets.values())}
    if len(sources) > 1 or len(boxes) > 1:
        return None
    (root,) = sources
    others = {d: k for d, k in targets.items() if x.instances[k] != x.instances[sources[root]]}
    same = dict.fromkeys({root, *others}, boxes.pop())
    return LibraryCall("broadcast", tuple(sorted(same)), sources, others, same, same, root)


def _sends(x: Exchange) -> list[LibraryCall]:
    """Every part of every target from a source that has it, in turn."""
    calls = list[LibraryCall]()
    holders = dict[Rect, list[int]]()
    for s in x.having:
        holders.setdefault(x.boxes[s], []).append(s)
    turns = [new_turns(len(sources)) for sources in holders.values()]
    for k in x.getting:
        device = x.devices[k]
        missing = [x.boxes[k]]
        givers = []
        for sources, turn in zip(holders.values(), turns, strict=True):
            named = [x.devices[s] for s in sources]
            givers.append(sources[whose_turn(x.hosts, named, (0, len(sources)), device, turn)])
        for s in sorted(givers, key=lambda s: x.distance(x.devices[s], device)):
            for box in [p.intersect(x.boxes[s]) for p in missing if p.overlaps(x.boxes[s])]:
                if x.instances[s] != x.instances[k]:
                    calls.append(send(x.devices[s], device, s, k, box))
            missing = [rest for p in missing for rest in p.subtract(x.boxes[s])]
    return calls


def send(source: int, device: int, s: int, k: int, box: Rect) -> LibraryCall:
    """A box from argument `s`, on the device `source`, to argument `k`."""
    kind = "copy" if source == device else "send"
    return LibraryCall(kind, (), {source: s}, {device: k}, {source: box}, {device: box}, source)


def are_slices(boxes: Sequence[Rect], whole: Rect, order: Sequence[int]) -> bool:
    """Whether boxes in this order are equal slices of `whole` along its slowest dimension in memory."""
    if not order or whole.is_empty:
        return False
    slow = order[0]
    is_wide = all(
        b.lo[d] == whole.lo[d] and b.hi[d] == whole.hi[d] for b in boxes for d in order[1:]
    )
    return (
        len({b.shape for b in boxes}) == 1
        and all(b.lo[slow] == whole.lo[slow] + k * b.shape[slow] for k, b in enumerate(boxes))
        and is_wide
        and boxes[-1].hi[slow] == whole.hi[slow]
    )
