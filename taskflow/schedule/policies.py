"""Policies: schedules of pipelines that have a name, each as a rule for one device.

A step is (phase, stage, micro-batch); see `schedule.Place` for what a rule knows. Sources: GPipe (Huang et al., NeurIPS
2019), 1F1B (PipeDream, Narayanan et al., SOSP 2019), interleaved 1F1B (Megatron-LM, Narayanan et al., SC 2021), breadth
first (Lamy-Poirier, MLSys 2023), ZB-H1 and ZB-V (Qi et al., ICLR 2024), Chimera (Li and Hoefler, SC 2021),
interlaced and 3F1B (nnScaler, Lin et al., OSDI 2024).
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache, partial
from itertools import zip_longest

from taskflow.schedule.schedule import Groups, Place, Policy, Step


def backward(place: Place, stage: int, part: int) -> list[Step]:
    """The input gradient first, for which the stage before waits; whole where nobody does, on one device.

    Whole, too, where something is computed again: it would live until the gradients of weights, or be of no use.
    """
    is_whole = place.positions == 1 or stage in place.again
    return [("B", stage, part)] if is_whole else [("I", stage, part), ("W", stage, part)]


@Policy
def gpipe(place: Place) -> list[Step]:
    """All micro-batches forward, then all backward."""
    forward = [("F", stage, part) for part in range(place.parts) for stage in place.stages]
    return forward + [
        step
        for part in range(place.parts)
        for s in reversed(place.stages)
        for step in backward(place, s, part)
    ]


@Policy
def looped_bfs(place: Place) -> list[Step]:
    """All micro-batches through one stage, then through the next of the device."""
    forward = [("F", stage, part) for stage in place.stages for part in range(place.parts)]
    return forward + [
        step
        for s in reversed(place.stages)
        for part in range(place.parts)
        for step in backward(place, s, part)
    ]


@Policy
def one_f_one_b(place: Place) -> list[Step]:
    """Backward as soon as it can be: a device holds no more micro-batches than there are stages from it to the end."""
    warm = min(place.parts, place.positions - place.position)
    steps = [("F", stage, part) for part in range(warm) for stage in place.stages]
    for part in range(place.parts):
        steps += [step for stage in reversed(place.stages) for step in backward(place, stage, part)]
        steps += [("F", stage, warm + part) for stage in place.stages if warm + part < place.parts]
    return steps


@Policy
def interleaved(place: Place) -> list[Step]:
    """1F1B where a device has several stages, far from each other: rounds of micro-batches, a stage at a time."""
    several = len(place.stages)
    group = place.parts // max(1, place.parts // place.positions)
    rounds = [
        range(first, min(first + group, place.parts)) for first in range(0, place.parts, group)
    ]
    forward = [("F", stage, part) for turn in rounds for stage in place.stages for part in turn]
    behind = [(stage, part) for turn in rounds for stage in reversed(place.stages) for part in turn]
    warm = min(len(forward), 2 * (place.positions - place.position - 1) + (several - 1) * group)
    steps = forward[:warm]
    for ahead, (stage, part) in zip_longest(forward[warm:], behind):
        steps += [ahead] * (ahead is not None) + backward(place, stage, part)
    return steps


@Policy
def zb_h1(place: Place) -> list[Step]:
    """1F1B where weight gradients are put off until nothing else is to be done, with no more memory than 1F1B."""
    warm = min(place.parts, place.positions - place.position)
    steps = [("F", stage, part) for part in range(warm) for stage in place.stages]
    for part in range(place.parts):
        steps += [("I", stage, part) for stage in reversed(place.stages)]
        steps += [
            ("W", stage, part - place.position) for stage in place.stages if part >= place.position
        ]
        steps += [("F", stage, warm + part) for stage in place.stages if warm + part < place.parts]
    last = range(max(0, place.parts - place.position), place.parts)
    return steps + [("W", stage, part) for part in last for stage in place.stages]


def v_step(place: Place, device: int, made: Counter[tuple[str, int]]) -> Step | None:
    """What a device of a V does next: the first of these that can be; no forward step while it holds two a device.

    Of its two stages one has its number, on the way down.
    """
    up = place.length - 1 - device
    awaited = {
        ("F", up): ("F", up - 1),
        ("I", device): ("I", device + 1),
        ("I", up): ("I", up + 1),
        ("F", device): ("F", device - 1),
        ("W", device): ("I", device),
        ("W", up): ("I", up),
    }
    held = sum(made["F", stage] - made["W", stage] for stage in (device, up))
    for (phase, stage), before in awaited.items():
        if made[phase, stage] < made[before] and (phase != "F" or held < 2 * place.positions):
            return phase, stage, made[phase, stage]
    return None


def check_v(place: Place) -> None:
    """ValueError: these are not the stages of a device of a V, of which the two at the turn are one."""
    length = 2 * place.positions - 1
    stages = {place.position, length - 1 - place.position}
    if set(place.stages) != stages or place.length != length:
        has = f"a device has stages {list(place.stages)} of {place.length}"
        raise ValueError(
            f"schedule 'zb_v': {has}; in a V of {place.positions} devices it has {sorted(stages)} of {length}"
        )


def there_and_back(groups: Groups, count: int | None = None) -> Groups:
    """Two stages a group: (0,), (1,), (2,), (2,), (1,), (0,)."""
    return [*groups, *reversed(groups)]


@partial(Policy, placement=there_and_back)
def zb_v(place: Place) -> list[Step]:
    """Two stages a device, there and back.

    All devices are played as if all steps took as long, but at the turn twice as long.
    """
    check_v(place)
    return [step for step in played_in_a_v(place.positions, place.parts)[place.position] if step]


@lru_cache(maxsize=1)  # all devices of a pipeline ask for the same
def played_in_a_v(positions: int, parts: int) -> list[tuple[Step | None, ...]]:
    """What every device of a V does in turn, if all of them are played; None: it waits."""
    place = Place(0, positions, (0,), 2 * positions - 1, parts)
    late = None
    played = list[list[Step | None]]()
    made = Counter({("F", -1): parts})
    while any(made["W", stage] < parts for stage in range(place.length)):
        steps = [*(v_step(place, device, made) for device in range(positions - 1)), late]
        late = None if late else v_step(place, positions - 1, made)
        made.update(step[:2] for step in steps if step)
        made["I", place.length] = made["F", place.length - 1]
        played.append(steps)
    return list(zip(*played, strict=True))


def by_moments(place: Place, period: int, backward: int = 1) -> list[Step]:
    """Steps by the moments at which they would begin if forward ones took one, a micro-batch every `period` moments.

    Along every dependence moments grow, so devices never wait for each other in a circle, whatever the placement.
    """
    length = place.length
    several = range(place.parts)
    moments = [
        (stage + period * part, ("F", stage, part)) for stage in place.stages for part in several
    ]
    moments += [
        (length + backward * (length - 1 - stage) + period * part, ("B", stage, part))
        for stage in place.stages
        for part in several
    ]
    return [
        step
        for _, step in sorted(moments, key=lambda pair: (pair[0], pair[1][0] == "F", pair[1][2]))
    ]


def crossed(groups: Groups, count: int | None = None) -> Groups:
    """Stage k is on the k-th group and on the k-th from the end: (0, 3), (1, 2), (2, 1), (3, 0)."""
    return [(*one, *other) for one, other in zip(groups, reversed(groups), strict=True)]


@partial(Policy, placement=crossed)
def chimera(place: Place) -> list[Step]:
    """Two pipelines through the same devices in opposite directions."""
    return by_moments(place, 2)


@Policy
def interlaced(place: Place) -> list[Step]:
    """Stages on one device each, and others on all of them in between (nnScaler: large embeddings of mBART).

    32 micro-batches on the M of four devices take 269 units, 330 in 1F1B+ by hand (`tests/schedule/test_shapes.py`).
    """
    return by_moments(place, 3, 2)


@Policy
def three_f_one_b(place: Place) -> list[Step]:
    """Several passes forward through all devices, of which the last goes back (nnScaler: recycling of AlphaFold)."""
    return by_moments(place, len(place.stages) + 1)


_ALL = (
    gpipe,
    looped_bfs,
    one_f_one_b,
    interleaved,
    zb_h1,
    zb_v,
    chimera,
    interlaced,
    three_f_one_b,
)
POLICIES = {policy.name: policy for policy in _ALL}
