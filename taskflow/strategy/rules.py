"""Strategies by rule: data parallel, model parallel, one weird trick, random, by experts; what an axis is in SOAP.

SOAP is derived, never declared. An axis in a parameter's term is Parameter; the axis that carries the batch, dimension
0 of the inputs, is Sample; any other axis of an output is Attribute, one that is in no output Reduction.

`lower` accepts what a rule gives for any graph: a rule says along which axis it wants to split, `Family.along` what
becomes of that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from taskflow.core.numbers import whole
from taskflow.graph.family import Family, families
from taskflow.graph.graph import Graph, Operator
from taskflow.graph.homes import is_home
from taskflow.graph.samples import sample_axes, sample_groups
from taskflow.machine import MachineModel
from taskflow.strategy.even import cut_evenly
from taskflow.strategy.strategy import (
    REPLICAS,
    Degree,
    ParallelConfig,
    Strategy,
    effective_config,
    parts,
    replicas,
)


def leaders(graph: Graph) -> list[Operator]:
    """The operators that a strategy has to name: those that follow no other."""
    return [op for op in graph.operators if op.follows is None]


def axis_kinds(graph: Graph) -> dict[str, dict[str, str]]:
    """Operator name -> axis -> `sample`, `attribute`, `parameter`, `reduction` or `fixed`."""
    sample = sample_groups(graph)
    return {op.name: _axis_kinds(op, sample.get(op.name, ())) for op in graph.operators}


def _axis_kinds(op: Operator, sample: Sequence[str]) -> dict[str, str]:
    axes = {
        "fixed": op.bound.pattern.fixed,
        "parameter": op.parameter_axes,
        "sample": sample,
        "attribute": frozenset[str]().union(*op.bound.term_axes[len(op.inputs) :]),
        "reduction": op.extents,
    }
    return {axis: next(kind for kind in axes if axis in axes[kind]) for axis in op.extents}


def single_device(graph: Graph, machine: MachineModel, device: int = 0) -> Strategy:
    """Every operator whole on one device."""
    return Strategy.of_graph(
        graph, {op.name: ParallelConfig({}, (device,)) for op in leaders(graph)}
    )


def data_parallel(graph: Graph, machine: MachineModel) -> Strategy:
    """Every operator split along its Sample axis over all devices; one without such an axis runs whole on device 0.

    What is made of numbers alone, such as a perplexity of a loss, runs on all devices.

    What reads samples in another order, as experts do from their slots, is split along the axis of these: so its
    parameters are on all devices, too.
    """
    sample = sample_axes(graph)
    devices = range(len(machine.devices))
    axes = ((f, sample.get(f.leader.name) or _axis_of_slots(f.leader)) for f in families(graph))
    return Strategy.of_graph(graph, {f.leader.name: split(f, devices, axis) for f, axis in axes})


def _axis_of_slots(op: Operator) -> str | None:
    """An axis of what an operator with parameters reads and makes that no parameter has."""
    made = {axis for k in range(len(op.inputs), len(op.args)) for axis in op.bound.term_axes[k]}
    read = op.bound.term_axes[0] if op.parameter_axes else ()
    return next(
        (a for a in read if a in made and a in op.split_axes and a not in op.parameter_axes), None
    )


def proportional(graph: Graph, machine: MachineModel) -> Strategy:
    """Data parallel with parts in proportion to the rates of their devices; on equal devices it is data parallel.

    A gradient is a sum over all samples, so a device counts as much as it has of them, as by the batch weights of Hong
    and Chandra, "DLion: decentralized distributed deep learning in micro-clouds", HPDC 2021.
    """
    return Strategy.of_graph(
        graph, {n: _by_rates(c, machine) for n, c in data_parallel(graph, machine).items()}
    )


def _by_rates(config: ParallelConfig, machine: MachineModel) -> ParallelConfig:
    """A configuration along one axis with parts by the rates of their devices."""
    axes = [axis for axis, _ in config.degrees]
    shares = machine.shares(config.devices) if len(axes) == 1 and axes != [REPLICAS] else None
    return (
        config if shares is None else ParallelConfig({config.degrees[0][0]: shares}, config.devices)
    )


def even_work(graph: Graph, machine: MachineModel, strategy: Strategy | None = None) -> Strategy:
    """A strategy (default: data parallel) whose axes with an `Image` are cut into parts of equal work, not points.

    Axes that are as long and have as many parts are cut alike, so nothing moves between operators that did not before.
    Where no image says what `work` is it is the strategy itself.
    """
    return cut_evenly(graph, machine, strategy or data_parallel(graph, machine))


def fully_sharded(graph: Graph, machine: MachineModel, within: Strategy | None = None) -> Strategy:
    """`within` (default: data parallel) with each home split over all devices of the operator that reads it first.

    It is split along the first axis that has equal parts for all of these, as FSDP2 does: slices of the slowest
    dimension are gathered by one call of a library. Where no axis has, it is split along the largest. Without homes
    (`taskflow.homes`) and casts of parameters it is `within`. FSDP is `fully_sharded(homes(graph), machine)`.
    """
    strategy = data_parallel(graph, machine) if within is None else within.copy()
    for op in filter(is_home, graph.operators):
        devices = tuple(dict.fromkeys(effective_config(op, strategy)[0].devices))
        strategy[op.name] = _over_all(devices, op)
    return strategy


def _over_all(devices: Sequence[int], op: Operator) -> ParallelConfig:
    """The home split into one part for each of the devices; see `fully_sharded`."""
    family = Family.of(op)
    wishes = [split(family, devices, axis) for axis in op.split_axes]
    even = (config for config in wishes if _is_even(op, config, len(devices)))
    largest = sorted(op.split_axes, key=lambda axis: -op.extents[axis])
    return next(even, None) or split(family, devices, *largest)


def _is_even(op: Operator, config: ParallelConfig, count: int) -> bool:
    """Whether there are so many points, and each has as much as any other."""
    shares = (
        axis == REPLICAS or op.extents[axis] % parts(degree) == 0 for axis, degree in config.degrees
    )
    return config.points == count and all(shares)


def model_parallel(graph: Graph, machine: MachineModel) -> Strategy:
    """Operators with parameters split along the output axis of the largest one, the others as their input is."""
    return _by_rule(graph, machine, lambda op: True)


def one_weird_trick(graph: Graph, machine: MachineModel) -> Strategy:
    """Dense layers model parallel, convolutions data parallel, all else as what it reads.

    What has a matrix of weights and no window is dense. A norm, which has a weight a channel, is not: behind a
    convolution it would have to exchange all that it reads.

    Source: Krizhevsky, "One weird trick for parallelizing convolutional neural networks", arXiv 1404.5997, 2014.
    """
    return _by_rule(graph, machine, _is_dense)


def _is_dense(op: Operator) -> bool:
    return not op.windows and any(r.role == "parameter" and r.ndim > 1 for r in op.inputs)


def _by_rule(
    graph: Graph, machine: MachineModel, splits_parameters: Callable[[Operator], bool]
) -> Strategy:
    sample = sample_axes(graph)
    devices = range(len(machine.devices))
    chosen: dict[str, ParallelConfig] = {}
    along: dict[str, str | None] = {}  # region -> the dimension name along which it is split
    for family in families(graph):
        op = family.leader
        weights = [k for k, r in enumerate(op.inputs) if r.role == "parameter"]
        axis = sample.get(op.name)
        if weights and splits_parameters(op):
            axis = _parameter_axis(op, weights) or axis
        elif not (weights and op.windows):
            axis = next((a for r in op.inputs if (a := along.get(r.name)) in op.split_axes), axis)
        config = chosen[op.name] = split(family, devices, axis, sample.get(op.name))
        for region in op.outputs:
            along[region.name] = config.degrees[0][0] if config.points > 1 else None
    return Strategy.of_graph(graph, chosen)


def _parameter_axis(op: Operator, weights: list[int]) -> str | None:
    """The axis of the largest parameter that is in the first output: its output extent."""
    largest = max(weights, key=lambda k: op.inputs[k].size_bytes)
    written = op.bound.term_axes[len(op.inputs)] if op.outputs else frozenset[str]()
    axes = [
        n for d in op.bound.terms[largest].dims for n in d if n in written and n in op.split_axes
    ]
    return axes[0] if axes else None


def split(family: Family, devices: Sequence[int], *axes: str | None) -> ParallelConfig:
    """A family split along the first of `axes` that can be, over as many of `devices` as it has points.

    See `Family.along`; it is whole on the first device where it can be split along none, of numbers alone on all.
    """
    if family.is_of_numbers:
        return replicas(devices)
    degrees = next((along for axis in axes if (along := family.along(axis, len(devices)))), {})
    return ParallelConfig(degrees, devices[: prod(degrees.values())])


def random_strategy(graph: Graph, machine: MachineModel, seed: int) -> Strategy:
    """A strategy drawn at random: any axes, degrees and devices (also repeated), sometimes unequal fractions."""
    generator = np.random.default_rng(whole("random_strategy", "seed", seed, 0))
    chosen = {f.leader.name: random_config(f, machine, generator) for f in families(graph)}
    return Strategy.of_graph(graph, chosen)


def random_config(
    family: Family, machine: MachineModel, generator: np.random.Generator
) -> ParallelConfig:
    """A random configuration that is legal for a family."""
    while not family.allows(dict((config := _draw(family.leader, machine, generator)).degrees)):
        pass
    return config


def _draw(op: Operator, machine: MachineModel, generator: np.random.Generator) -> ParallelConfig:
    count = len(machine.devices)
    degrees: dict[str, Degree] = {}
    points = 1
    for axis in generator.permutation(list(op.split_axes)).tolist():
        most = min(op.extents[axis], max(count // points, 1), 8)
        if most < 2 or generator.random() < 0.4:
            continue
        degree = int(generator.integers(2, most + 1))
        points *= degree
        degrees[axis] = degree
        if generator.random() < 0.2:
            degrees[axis] = _random_shares(degree, generator)
    return ParallelConfig(degrees, random_devices(points, count, generator))


def _random_shares(count: int, generator: np.random.Generator) -> tuple[float, ...]:
    shares = generator.dirichlet(np.full(count, 4.0))
    return tuple((shares / shares.sum()).tolist())


def random_devices(points: int, count: int, generator: np.random.Generator) -> tuple[int, ...]:
    """Devices for `points` points: contiguous, strided, or any (with repetition)."""
    kind = generator.integers(3)
    first = int(generator.integers(count))
    if kind == 0:
        return tuple((first + k) % count for k in range(points))
    if kind == 1:
        stride = int(generator.integers(1, count + 1))
        return tuple((first + k * stride) % count for k in range(points))
    return tuple(generator.integers(count, size=points).tolist())


# -- whole operators, for recurrent networks and for large tables ------------------------------------------------------


def operator_placement(graph: Graph, machine: MachineModel) -> Strategy:
    """Data parallel across hosts; within each host, layers on different devices.

    Operators of one depth share a device: the depths are cut into stages of about equal operations, one per device of a
    host. Encoder and decoder lie beside each other, as in Wu et al., arXiv 1609.08144 (2016); FlexFlow (Jia, Zaharia
    and Aiken, MLSys 2019) compares its recurrent networks with this rule.
    """
    sample = sample_axes(graph)
    middles = _middles(graph)
    chosen: dict[str, ParallelConfig] = {}
    for family in families(graph):
        name = family.leader.name
        devices = [
            host[min(int(middles[name] * len(host)), len(host) - 1)] for host in machine.hosts
        ]
        chosen[name] = split(family, devices, sample.get(name))
    return Strategy.of_graph(graph, chosen)


def placed_tables(graph: Graph, machine: MachineModel) -> Strategy:
    """Data parallel, but each table whole on one device, that with the fewest bytes of tables so far; largest first.

    A table is a parameter of more elements than all operations of its readers: most of it is not even read in a step,
    yet data parallelism would exchange a gradient of all of it.
    """
    strategy = data_parallel(graph, machine)
    held = [0] * len(machine.devices)
    tables = _tables(graph)
    for table in sorted(tables, key=lambda name: -graph.regions[name].size_bytes):
        device = held.index(min(held))
        held[device] += graph.regions[table].size_bytes
        strategy.update({op.name: ParallelConfig({}, (device,)) for op in tables[table]})
    return strategy


def _middles(graph: Graph) -> dict[str, float]:
    """Operator -> where the middle of its depth lies within the operations of a step, from 0 to 1."""
    depths = _depths(graph)
    flops = np.zeros(max(depths.values(), default=0) + 1)
    for op in graph.operators:
        flops[depths[op.follows or op.name]] += op.total_flops
    ends = np.cumsum(flops)
    middles = (ends - flops / 2) / max(ends[-1], 1.0)
    return {name: float(middles[depth]) for name, depth in depths.items()}


def _depths(graph: Graph) -> dict[str, int]:
    """Operator -> how many lie before it, each the first input of the next.

    Successive ones that share a parameter (the steps of a recurrent layer) have one depth: two devices would need it.
    """
    depths: dict[str, int] = {}
    made: dict[str, int] = {}  # region -> depth of the operators that read it first
    held: set[str] = set()
    depth = 0
    for op in graph.operators:
        if op.follows is None:
            parameters = {r.name for r in op.inputs if r.role == "parameter"}
            if not parameters & held:
                depth = made.get(op.inputs[0].name, 0) if op.inputs else 0
                held = set()
            depths[op.name] = depth
            held = held | parameters
        made.update({r.name: depths.get(op.follows or op.name, 0) + 1 for r in op.outputs})
    return depths


def _tables(graph: Graph) -> dict[str, list[Operator]]:
    """Tables (see `placed_tables`) and their readers."""
    readers: dict[str, list[Operator]] = {}
    for op in leaders(graph):
        for region in op.inputs:
            if region.role == "parameter":
                readers.setdefault(region.name, []).append(op)
    return {
        n: ops
        for n, ops in readers.items()
        if sum(op.total_flops for op in ops) < prod(graph.regions[n].shape)
    }


# The rules that have names of their own: what the command line takes, and where a search starts, in this order.
RULES: dict[str, Callable[[Graph, MachineModel], Strategy]] = {
    "single_device": single_device,
    "data_parallel": data_parallel,
    "proportional": proportional,
    "even_work": even_work,
    "fully_sharded": fully_sharded,
    "model_parallel": model_parallel,
    "one_weird_trick": one_weird_trick,
    "operator_placement": operator_placement,
    "placed_tables": placed_tables,
}
