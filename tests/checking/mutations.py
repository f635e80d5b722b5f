"""Mutations: what goes wrong in distributed training (classes of TrainVerify), as changes of a right plan's columns.

Each takes a task graph and a generator of random numbers, and gives a task graph that is wrong for certain, or None
where it finds no place.
"""

from dataclasses import replace

import numpy as np

from taskflow.graph.kernel import Kernel
from taskflow.tasks.task_graph import COLLECTIVES, STREAMS, Kind, Privilege


def pick(generator, places):
    places = list(places)
    return places[int(generator.integers(len(places)))] if places else None


def changed(task_graph, name, index, value):
    column = getattr(task_graph, name).copy()
    column[index] = value
    return replace(task_graph, **{name: column})


def args_of(task_graph, row):
    return range(int(task_graph.arg_ptr[row]), int(task_graph.arg_ptr[row + 1]))


def without_args(task_graph, gone):
    """The same rows with fewer arguments."""
    kept = np.ones(len(task_graph.arg_instance), bool)
    kept[list(gone)] = False
    columns = {
        n: getattr(task_graph, n)[kept] for n in ("arg_instance", "arg_box", "arg_privilege")
    }
    return replace(
        task_graph, arg_ptr=np.concatenate([[0], np.cumsum(kept)])[task_graph.arg_ptr], **columns
    )


def without_dependence(task_graph, edge):
    row = row_of(task_graph, edge)
    ptr = task_graph.dep_ptr.copy()
    ptr[row + 1 :] -= 1
    return replace(task_graph, dep_ptr=ptr, dep_row=np.delete(task_graph.dep_row, edge))


def row_of(task_graph, edge):
    return int(np.searchsorted(task_graph.dep_ptr, edge, side="right")) - 1


def is_implied(task_graph, row, other, but=(), more=()):
    """Whether `row` comes after `other` without its own edge to it; `but`: rows it does not wait for either."""
    devices, last, before = STREAMS * len(task_graph.machine.devices), {}, []
    for k in range(row + 1):
        on = [s for s in task_graph.streams_of(k) if s < devices]
        before.append([last[s] for s in on if s in last])
        last.update(dict.fromkeys(on, k))
    more = more or [[]] * (row + 1)
    todo = [d for d in [*task_graph.deps(row), *more[row]] if d != other and d not in but] + before[
        row
    ]
    seen = set()
    while todo:
        k = todo.pop()
        if k == other:
            return True
        if k > other and k not in seen:
            seen.add(k)
            todo += [*before[k], *task_graph.deps(k), *more[k]]
    return False


def used_by(task_graph, row):
    """The instances that a row really uses: not every scratch memory of a collective is one of its algorithm."""
    args = [instance for instance, _, _ in task_graph.args(row)]
    if task_graph.kind[row] == Kind.COLLECTIVE:
        return {
            args[k] for step in task_graph.exchange(row).steps() for k in (step.target, *step.parts)
        }
    return {instance for instance in args if instance >= 0}


def must_wait(task_graph, row, other, memory=None, more=()):
    """Whether `row` waits for `other` with reason, and by its own edge alone: left out, the plan is wrong.

    Both use an instance, or with a `memory` plan the same bytes. `more`: rows that others wait for, see `is_implied`.
    """
    own, others = (np.array(sorted(used_by(task_graph, k)), np.int64) for k in (row, other))
    shares = (
        own[:, None] == others
        if memory is None
        else memory.share_bytes(task_graph, own[:, None], others)
    )
    return bool(shares.any()) and not is_implied(task_graph, row, other, more=more)


def rows_of(task_graph, kind):
    return np.flatnonzero(task_graph.kind == kind).tolist()


# -- collectives and folds ---------------------------------------------------------------------------------------------


def all_reduce_missing(task_graph, generator):
    """A fold gives its first part for the sum."""
    row = pick(
        generator, [r for r in rows_of(task_graph, Kind.FOLD) if len(args_of(task_graph, r)) > 2]
    )
    return row if row is None else without_args(task_graph, args_of(task_graph, row)[2:])


def part_read_for_the_sum(task_graph, generator):
    """A point reads a part where the sum should be."""
    graph, places = task_graph, []
    partial = np.flatnonzero(
        graph.instance_partial | np.isin(np.arange(len(graph.instance_partial)), _parts(graph))
    )
    for row in rows_of(graph, Kind.POINT):
        for k in args_of(graph, row):
            i = int(graph.arg_instance[k])
            if i >= 0 and graph.arg_privilege[k] == Privilege.READ:
                region = graph.instance_region[i]
                same = partial[(graph.instance_region[partial] == region) & (partial != i)]
                places += [
                    (k, int(j))
                    for j in same
                    if graph.instance_device[j] == graph.instance_device[i]
                ]
    place = pick(generator, [(k, j) for k, j in places if _is_a_part(graph, j)])
    return place and changed(graph, "arg_instance", *place)


def _parts(graph):
    return graph.arg_instance[graph.arg_privilege == Privilege.REDUCE]


def _is_a_part(graph, instance):
    """Whether an instance is never more than a part: nothing but one point writes it."""
    uses = np.flatnonzero(graph.arg_instance == instance)
    return (graph.arg_privilege[uses] == Privilege.REDUCE).sum() == 1 and not np.isin(
        graph.arg_privilege[uses], (Privilege.WRITE, Privilege.READ_WRITE)
    ).any()


def _other_collective(before, after):
    def mutate(task_graph, generator):
        """A collective of another kind."""
        places = []
        for row in rows_of(task_graph, Kind.COLLECTIVE):
            if COLLECTIVES[task_graph.collective[row]] == before:
                bad = changed(task_graph, "collective", row, COLLECTIVES.index(after))
                if _does_other_things(task_graph, bad, row):
                    places.append(bad)
        return pick(generator, places)

    return mutate


def _does_other_things(task_graph, other, row):
    """Whether it leaves other numbers in its targets."""
    try:
        return not all(map(np.array_equal, _left_by(other, row), _left_by(task_graph, row)))
    except (ArithmeticError, LookupError, StopIteration, RuntimeError, RuntimeWarning, ValueError):
        return True


def _left_by(task_graph, row):
    """What the steps of a collective make of random numbers, in every target; negative numbers: nothing wrote there."""
    exchange, args = task_graph.exchange(row), task_graph.args(row)
    shape, random = task_graph.regions[task_graph.region[row]].shape, np.random.default_rng(0)
    memory = {instance: np.full(shape, -(10**9)) for instance, _, _ in args}
    for instance, box, _ in args[: exchange.sources]:
        memory[instance][box.slices()] = random.integers(1, 10**6, box.shape)
    for step in exchange.steps():
        at = step.box.slices()
        memory[args[step.target][0]][at] = sum(memory[args[k][0]][at] for k in step.parts)
    return [
        memory[i][box.slices()]
        for i, box, _ in args[exchange.sources :]
        if not task_graph.instance_partial[i]
    ]


def part_missing(task_graph, generator):
    """One part of a fold is left out."""
    row = pick(
        generator, [r for r in rows_of(task_graph, Kind.FOLD) if len(args_of(task_graph, r)) > 2]
    )
    return (
        row
        if row is None
        else without_args(task_graph, [pick(generator, args_of(task_graph, row)[1:])])
    )


def part_twice(task_graph, generator):
    """A fold adds one part twice and another never."""
    places = [r for r in rows_of(task_graph, Kind.FOLD) if len(args_of(task_graph, r)) > 2]
    row = pick(generator, places)
    if row is None:
        return None
    a, b = generator.choice(args_of(task_graph, row)[1:], 2, replace=False).tolist()
    return changed(task_graph, "arg_instance", a, task_graph.arg_instance[b])


# -- moves -------------------------------------------------------------------------------------------------------------


def wrong_rank(task_graph, generator):
    """A copy comes from another device than its source lies on."""
    row = pick(generator, rows_of(task_graph, Kind.COPY))
    devices = len(task_graph.machine.devices)
    if row is None or devices < 2:
        return None
    return changed(
        task_graph,
        "source",
        row,
        (task_graph.source[row] + generator.integers(1, devices)) % devices,
    )


def wrong_source(task_graph, generator):
    """A copy out of another instance."""
    row = pick(generator, rows_of(task_graph, Kind.COPY))
    return (
        row if row is None else _other_instance(task_graph, generator, int(task_graph.arg_ptr[row]))
    )


def _other_instance(task_graph, generator, k):
    """Another instance of the same device for an argument: one that cannot serve."""
    graph, i = task_graph, int(task_graph.arg_instance[k])
    here = np.flatnonzero(graph.instance_device == graph.instance_device[i]).tolist()
    others = [
        j
        for j in here
        if j != i and not _serves(graph, j, graph.instance_region[i], graph.arg_box[k])
    ]
    other = pick(generator, others)
    return other if other is None else changed(graph, "arg_instance", k, other)


def _serves(graph, instance, region, box):
    held = graph.instance_box[instance]
    return (
        graph.instance_region[instance] == region
        and (held[0] <= box[0]).all()
        and (box[1] <= held[1]).all()
    )


def wrong_sibling(task_graph, generator):
    """A point reads another instance."""
    row = pick(generator, rows_of(task_graph, Kind.POINT))
    reads = [k for k in args_of(task_graph, row) if task_graph.arg_instance[k] >= 0]
    k = pick(generator, [k for k in reads if task_graph.arg_privilege[k] == Privilege.READ])
    return k if k is None else _other_instance(task_graph, generator, k)


def swapped_arguments(task_graph, generator):
    """Two arguments of a point change places."""
    graph, places = task_graph, []
    for row in rows_of(graph, Kind.POINT):
        args = [k for k in args_of(graph, row) if graph.arg_instance[k] >= 0]
        region = graph.instance_region[graph.arg_instance[args]]
        places += [
            (a, b)
            for j, a in enumerate(args)
            for i, b in enumerate(args[:j])
            if region[i] != region[j]
        ]
    place = pick(generator, places)
    return place and changed(
        graph, "arg_instance", list(place), graph.arg_instance[[place[1], place[0]]]
    )


# -- operators ---------------------------------------------------------------------------------------------------------


def wrong_operator(task_graph, generator):
    """One device runs another operator."""
    row = pick(generator, rows_of(task_graph, Kind.POINT))
    others = [k for k in range(len(task_graph.launches)) if k != task_graph.launch[row]]
    return changed(task_graph, "launch", row, pick(generator, others)) if others else None


def wrong_constant(task_graph, generator):
    """All devices run a kernel with another constant."""
    k = int(generator.integers(len(task_graph.launches)))
    launch, launches = task_graph.launches[k], list(task_graph.launches)
    other = Kernel(launch.kernel.function, options={**launch.kernel.options, "constant": 2.0})
    launches[k] = replace(launch, kernel=other)
    return replace(task_graph, launches=tuple(launches))


def _parts_of_points(graph, privilege):
    """Arguments in which a point leaves a part of a sum, with this privilege."""
    for row in rows_of(graph, Kind.POINT):
        bound = graph.launches[graph.launch[row]].bound
        for n, k in enumerate(args_of(graph, row)):
            is_made = n in bound.made and graph.arg_instance[k] >= 0
            if is_made and graph.arg_privilege[k] == privilege:
                yield k


def part_overwritten(task_graph, generator):
    """A point overwrites the parts to which it should add its own."""
    k = pick(generator, _parts_of_points(task_graph, Privilege.READ_WRITE))
    return k if k is None else changed(task_graph, "arg_privilege", k, Privilege.REDUCE)


def part_of_what_was_there(task_graph, generator):
    """The first part of a sum is added to what its memory held before."""
    k = pick(generator, _parts_of_points(task_graph, Privilege.REDUCE))
    return k if k is None else changed(task_graph, "arg_privilege", k, Privilege.READ_WRITE)


def wrong_span(task_graph, generator):
    """A point computes the part of another one."""
    places = []
    for n, launch in enumerate(task_graph.launches):
        spans = launch.spans
        places += [
            (n, p, q)
            for p in range(len(spans))
            for q in range(len(spans))
            if (spans[p] != spans[q]).any()
        ]
    place = pick(generator, places)
    if place is None:
        return None
    n, p, q = place
    launches, spans = list(task_graph.launches), task_graph.launches[n].spans.copy()
    spans[p] = spans[q]
    launches[n] = replace(launches[n], spans=spans)
    return replace(task_graph, launches=tuple(launches))


# -- orders ------------------------------------------------------------------------------------------------------------


def _edges(task_graph, generator, fits, most=20):
    """Dependences that nothing else implies, of rows that fit, in random order."""
    for edge in generator.permutation(len(task_graph.dep_row))[:most].tolist():
        row, other = row_of(task_graph, edge), int(task_graph.dep_row[edge])
        if fits(row, other) and not is_implied(task_graph, row, other):
            yield edge


def dependence_missing(task_graph, generator):
    """Nothing makes a row wait for one that it needs."""
    edge = next(_edges(task_graph, generator, lambda row, other: True), None)
    return edge if edge is None else without_dependence(task_graph, edge)


def _is_update(task_graph, row):
    return any(
        task_graph.arg_privilege[k] == Privilege.READ_WRITE for k in args_of(task_graph, row)
    )


def update_too_early(task_graph, generator):
    """An update does not wait for the gradient, or for who reads what it overwrites."""
    points = task_graph.kind == Kind.POINT
    fits = lambda row, other: points[row] and _is_update(task_graph, row)
    edge = next(_edges(task_graph, generator, fits, 200), None)
    return edge if edge is None else without_dependence(task_graph, edge)


def sum_too_early(task_graph, generator):
    """A fold or collective does not wait for one of its parts."""
    sums = np.isin(task_graph.kind, (Kind.FOLD, Kind.COLLECTIVE))
    edge = next(_edges(task_graph, generator, lambda row, other: sums[row], 200), None)
    return edge if edge is None else without_dependence(task_graph, edge)


def row_too_early(task_graph, generator):
    """A row is issued before one that it needs."""
    edge = next(_edges(task_graph, generator, lambda row, other: True), None)
    if edge is None:
        return None
    row, other = row_of(task_graph, edge), int(task_graph.dep_row[edge])
    bad = task_graph
    for k in reversed(range(int(task_graph.dep_ptr[row]), int(task_graph.dep_ptr[row + 1]))):
        if task_graph.dep_row[k] >= other:
            bad = without_dependence(bad, k)
    order = np.concatenate(
        [np.arange(other), [row], np.delete(np.arange(other, len(bad)), row - other)]
    )
    return bad.reordered(order)


CLASSES = {
    "all-reduce missing": all_reduce_missing,
    "part read for the sum": part_read_for_the_sum,
    "all-reduce is all-gather": _other_collective("all-reduce", "all-gather"),
    "all-gather is all-reduce": _other_collective("all-gather", "all-reduce"),
    "all-reduce is reduce-scatter": _other_collective("all-reduce", "reduce-scatter"),
    "part missing": part_missing,
    "part twice": part_twice,
    "wrong rank": wrong_rank,
    "wrong source": wrong_source,
    "wrong sibling": wrong_sibling,
    "swapped arguments": swapped_arguments,
    "wrong operator": wrong_operator,
    "wrong constant": wrong_constant,
    "part overwritten": part_overwritten,
    "part of what was there": part_of_what_was_there,
    "wrong span": wrong_span,
    "sum too early": sum_too_early,
    "update too early": update_too_early,
    "row too early": row_too_early,
    "dependence missing": dependence_missing,
}
