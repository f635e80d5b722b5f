"""`grid`: the plan that an expert writes by degrees, of the grids that a search begins with, for any machine.

graph + degrees -> Plan. Data parallelism is over what is left of the devices; tensor parallel devices are neighbours,
stages are contiguous. What each degree splits follows from patterns alone (see `grids`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from taskflow.graph.graph import Graph
from taskflow.machine import MachineModel
from taskflow.schedule.plan import Plan
from taskflow.searching.grids import RESTS, Grids
from taskflow.strategy.sharded import shard_state
from taskflow.strategy.stages import stages as staged
from taskflow.strategy.strategy import Strategy

Sharded = Literal["", "state", "parameters"]


def turns(groups: int, stages: int, is_v: bool = False) -> list[int]:
    """Of every stage its group of devices: one after the other, or in a V down through them and up again."""
    if is_v:
        return [k if k < groups else stages - 1 - k for k in range(stages)]
    return [k % groups for k in range(stages)]


def on_groups(
    graph: Graph,
    machine: MachineModel,
    within: Strategy,
    size: int,
    groups: Sequence[int],
    cuts: Sequence[str] | None = None,
) -> Strategy:
    """A grid of `size` devices for each of several stages, on the groups that have them; of one, the grid as it is.

    Args:
        cuts: as of `taskflow.stages`; default: stages of about equal work.
    """
    if len(groups) < 2:
        return within
    devices = [range(k * size, (k + 1) * size) for k in groups]
    return staged(graph, machine, cuts=cuts, within=within, devices=devices)


def grid(
    graph: Graph,
    machine: MachineModel,
    *,
    tensor: int = 1,
    stages: int | Sequence[int] = 1,
    parts: int = 1,
    rest: str = "replicas",
    sharded: Sharded = "",
    recomputed: Iterable[str] = (),
    schedule: str | None = None,
    gathers_again: bool = True,
    within_hosts: bool = False,
    bucket_bytes: int | None = None,
) -> Plan:
    """The plan of data x tensor x pipeline parallelism on all devices of a machine.

    Args:
        graph: with its optimizer.
        machine: devices / (tensor * stages) of its devices are data parallel.
        tensor: degree of tensor parallelism, of neighbours (Megatron-LM).
        stages: of a pipeline, with about equal work each; stage k has the k-th part of the devices. Or a pair: such
            parts, and how many stages each of them has in turn (interleaved).
        parts: micro-batches.
        rest: how operators that tensor parallelism does not split are split: "replicas", along "samples", or along the
            "sequence" (sequence parallelism).
        sharded: "state": the optimizer's state over what is data parallel (ZeRO-1 and 2); "parameters": these too
            (ZeRO-3, FSDP).
        recomputed: names of forward operators that are computed again.
        schedule: a name; default: "one_f_one_b" for several stages, "interleaved" where each part of the devices has
            several, "by_ordinal" for several micro-batches, else none.
        gathers_again: whether the backward pass gathers sharded parameters again.
        within_hosts: what is sharded is split within each host alone (see `shard_state`).
        bucket_bytes: of collectives that are one call (see `taskflow.lower`).

    Raises:
        ValueError: devices do not divide so, or the graph cannot be split so.
    """
    devices = len(machine.devices)
    groups, in_turn = (stages, 1) if isinstance(stages, int) else stages
    where = f"grid: tensor {tensor} x {groups} stages on {devices} devices"
    if min(tensor, groups, in_turn) < 1 or devices % (tensor * groups):
        raise ValueError(f"{where}: they do not divide the devices")
    if rest not in RESTS:
        raise ValueError(f"grid: rest is '{rest}', it is one of {', '.join(RESTS)}")
    if sharded not in ("", "state", "parameters"):
        raise ValueError(f"grid: sharded is '{sharded}', it is state, parameters or nothing")
    homes = tuple(r.name for r in graph.parameters) if sharded == "parameters" else ()
    if schedule is None and parts > 1:
        pipelined = "interleaved" if in_turn > 1 else "one_f_one_b"
        schedule = pipelined if groups > 1 else "by_ordinal"
    plan = Plan(Strategy({}), parts, schedule, tuple(recomputed), homes, gathers_again)
    work = plan.transform(graph)
    size = devices // groups
    strategy = Grids(work).strategy(range(size), tensor, rest)
    if strategy is None:
        raise ValueError(f"{where}: nothing of the graph can be split so")
    strategy = on_groups(work, machine, strategy, size, turns(groups, groups * in_turn))
    if sharded:
        strategy = shard_state(work, strategy, machine if within_hosts else None)
    return replace(plan, strategy=strategy, bucket_bytes=bucket_bytes)
