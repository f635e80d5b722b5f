"""Jobs: several graphs as one, so that they share a machine. A graph -> graph transformation.

Operators and regions of a job are called `<job>/<name>`, its outputs `<job>.<name>`. First values are those that the
job has alone, and so is all that it computes. Regions that are shared keep their names and are one for all jobs, which
use them in the order in which jobs are given.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

from taskflow.graph.graph import Graph, LogicalRegion
from taskflow.graph.rebuild import copy_into
from taskflow.graph.repeat import repeated


def in_job(name: str, job: str) -> str:
    """What an operator or a region of a job is called beside others."""
    return f"{job}/{name}"


def _output_in_job(job: str, name: str) -> str:
    return f"{job}.{name}"


def _in_step(name: str, step: int) -> str:
    return f"{step}.{name}" if step else name


def in_turn(name: str, job: str, step: int) -> str:
    """What an operator of a job is called beside others in one of its steps."""
    return in_job(_in_step(name, step), job)


def output_in_turn(name: str, job: str, step: int) -> str:
    """What an output of a job is called beside others in one of its steps."""
    return _output_in_job(job, _in_step(name, step))


def beside(
    graphs: Mapping[str, Graph],
    shared: Collection[str] = (),
    steps: Mapping[str, int] | None = None,
) -> Graph:
    """Several graphs as one task graph: of two trainings, copies of a model, training and its evaluation.

    The graphs stay as they are. What was not differentiated yet can be so here. Outputs of a job are fetched by the
    devices that it uses, others hear of them after the step; so its numbers are those that it has alone, to the bit.

    Args:
        graphs: job -> its graph. A step of the graph is one step of every job, the first one's operators first: of a
            training and an evaluation of what it trains, the evaluation sees the weights after the step where it comes
            second, those before the step where it comes first.
        shared: names of parameters, states and inputs that are one for all jobs that have them.
        steps: job -> so many of its steps in one of the graph, where a job is quicker than others. What is of its step
            k is called `<job>/k.<name>` from step 1 on, outputs `<job>.k.<name>`; such a job has its gradients already.

    Raises:
        ValueError: there are no graphs; a job's name is empty or has a `/` or `.` in it; precisions or numbers of steps
            differ; nothing, or a value, has a shared name; shared regions differ in shape, dtype, role or first values;
            steps are of no job, or fewer than one.
    """
    if not graphs:
        raise ValueError("beside: there are no graphs")
    for job in graphs:
        if not job or set("/.") & set(job):
            raise ValueError(f"beside: job '{job}': a name has letters, and no / or .")
    settings = {(graph.precision, graph.repeat) for graph in graphs.values()}
    if len(settings) > 1:
        raise ValueError("beside: graphs have one precision and one number of steps")
    _check_shared(graphs, shared)
    paces = {job: (steps or {}).get(job, 1) for job in graphs}
    for job in steps or {}:
        if job not in graphs:
            raise ValueError(f"beside: steps of '{job}', which is none of the jobs")
    other = Graph()
    ((other.precision, other.repeat),) = settings
    other.differentiations = max(graph.differentiations for graph in graphs.values())

    def region_in(job: str, region: LogicalRegion) -> LogicalRegion:
        if region.name in shared:
            return region
        drawn_as = (region.drawn_as or region.name) if region.is_persistent else ""
        return replace(region, name=in_job(region.name, job), drawn_as=drawn_as)

    for job, graph in graphs.items():
        copy_into(
            other,
            repeated(graph, paces[job], _in_step),
            partial(region_in, job),
            partial(in_job, job=job),
            partial(_output_in_job, job),
            lambda what, name: f"beside: '{name}' is the name of {what} in two jobs",
            pace=paces[job],
            job=job,
        )
    return other


def _check_shared(graphs: Mapping[str, Graph], shared: Collection[str]) -> None:
    if isinstance(shared, str):
        raise TypeError(f"beside: shared are names, not one text '{shared}'")
    for name in shared:
        regions = [g.regions[name] for g in graphs.values() if name in g.regions]
        if not regions or any(r.role == "value" for r in regions):
            raise ValueError(f"beside: shared '{name}': is no parameter, state or input")
        if len({(r.shape, r.dtype, r.role, r.init) for r in regions}) > 1:
            said = ", ".join(f"{r.role} {r.dtype}{list(r.shape)} {r.init}" for r in regions)
            raise ValueError(f"beside: shared '{name}': is one region, not {said}")
