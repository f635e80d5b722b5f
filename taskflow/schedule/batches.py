"""What no schedule of micro-batches can run, told from a graph before it is lowered: statistics of a batch.

An operator that reads, for each of its samples, what is made of all of them and of what is learned awaits the last
micro-batch with its first. `pipeline.check_barriers` finds that in rows, and whatever else there is of the kind.
"""

from __future__ import annotations

from taskflow.graph.graph import Graph, Operator
from taskflow.graph.samples import sample_groups
from taskflow.schedule.orders import named
from taskflow.schedule.plan import Plan
from taskflow.schedule.schedule import Policy


def check_batches(graph: Graph, plan: Plan) -> None:
    """ValueError: the plan has such operators of the graph in micro-batches, one after the other."""
    policy = named(plan.schedule)
    many = (len(config.devices) > len({*config.devices}) for config in plan.strategy.data.values())
    if plan.parts == 1 or not isinstance(policy, Policy) or any(many):
        return
    if (names := _awaiting(graph)) is not None:
        needs = f"'{names[0]}' needs all {plan.parts} micro-batches of '{names[1]}'"
        raise ValueError(f"schedule '{policy.name}': {needs} before its first point")


def _awaiting(graph: Graph) -> tuple[str, str] | None:
    """An operator that needs all samples, and who makes what it needs."""
    samples = sample_groups(graph)
    learned = {op.inputs[k].name for op in graph.operators for k in op.writes}
    made = dict[str, str]()

    def along(op: Operator) -> str | None:
        """The axis of its samples, by which the operator that it follows is in micro-batches, too."""
        axes = samples.get(op.name, ())
        is_alone = len(axes) == 1 and axes == samples.get(op.follows or op.name)
        return axes[0] if is_alone and axes[0] in op.split_axes else None

    for op in graph.operators:
        axis = None if op.is_backward else along(op)
        makers = [made[r.name] for r in op.inputs if r.name in made]
        if axis and makers:
            return op.name, makers[0]
        if op.is_backward or learned.isdisjoint(r.name for r in op.inputs):
            continue
        learned.update(r.name for r in op.outputs)
        for region, term in zip(op.outputs, op.bound.pattern.outputs, strict=True):
            if axis and not any(axis in names for names in term.dims):
                made[region.name] = op.name
    return None
