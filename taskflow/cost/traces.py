"""Traces of PyTorch -> what one step of a job took, by operator: kineto JSON of `torch.profiler`, or a Chakra trace
that is linked with one (ET+ JSON, mlcommons/chakra `chakra_trace_link`).

```
 ProfilerStep#2 |------------------------------------------------|   the fastest step is taken
 aten::linear     |------------|            one sample: what is within it, too
   aten::addmm       |-------|              its products give flops
 AddmmBackward0                  |-------|  the same family, in the backward pass
 gap                           ||         ||| nobody's: between operators
```
Where there are kernels of a GPU, these are counted for the operator that launched them, and nothing of the CPU is.
"""

from __future__ import annotations

import gzip
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from taskflow.core.files import naming
from taskflow.graph.phases import Phase

# Family -> names of operators, without `aten::`, `native_`, `_backward` and leading or trailing underscores.
FAMILIES = {
    "dense": r"linear|add?mm|mm|bmm|baddbmm|matmul|einsum|.*conv(olution|\d?d)?(_overrideable)?",
    "attention": r".*scaled_dot_product.*|.*(flash|efficient)_attention.*",
    "norm": r".*(layer|batch|group|instance|rms)_?norm.*",
    "loss": r".*softmax.*|.*nll_loss.*|cross_entropy.*|.*_loss",
    "recurrent": r"lstm.*|gru.*|rnn.*|.*_rnn.*|.*_lstm.*|.*_gru.*",
    "tables": r"embedding.*|index.*|gather|scatter.*|one_hot",
    "reduce": r".*pool\d?d?.*|sum|mean|max|min|amax|amin|topk|argmax|argmin|sort|cumsum",
    "elementwise": r"add|sub|rsub|mul|div|pow|neg|abs|exp|log|sqrt|rsqrt|erf|sin|cos|tanh|sigmoid|relu|gelu|silu|"
    r"elu|leaky_relu|hard\w+|softplus|clamp.*|where|threshold|.*dropout.*|maximum|minimum|masked_fill",
    "shape": r"cat|copy|clone|contiguous|constant_pad_nd|repeat|stack|to_copy",
}
UPDATE = "optim"  # the family of all that an optimizer does
_PATTERNS = {family: re.compile(f"({names})") for family, names in FAMILIES.items()}
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_COLLECTIVES = {
    "allreduce": "all-reduce",
    "reduce_scatter": "reduce-scatter",
    "reduce": "reduce",
    "allgather": "all-gather",
    "broadcast": "broadcast",
}
_BYTES = {"float": 4, "half": 2, "bfloat16": 2, "double": 8, "int": 4, "long": 8, "byte": 1}


class TracedOperator(NamedTuple):
    """All calls of one operator on equal shapes in a step; `family` is empty where it is of none."""

    name: str
    family: str
    phase: Phase
    shapes: str
    dtype: str
    calls: int
    seconds: float
    flops: float


class TracedCollective(NamedTuple):
    """One collective: see `LibraryTimes`, of which this is a point."""

    collective: str
    devices: int
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Trace:
    """One step.

    Attributes:
        seconds: from its begin to its end.
        operators: longest first.
        collectives: in their order.
        unknown_collectives: name -> seconds of those that no library times are kept of.
    """

    seconds: float
    operators: tuple[TracedOperator, ...]
    collectives: tuple[TracedCollective, ...] = ()
    unknown_collectives: Mapping[str, float] = field(default_factory=dict)

    @property
    def gap_seconds(self) -> float:
        """Of the step, in which no operator of it ran; collectives count as time of the step."""
        return max(self.seconds - sum(op.seconds for op in self.operators), 0.0)


class Details(
    msgspec.Struct,
    rename={
        "number": "External id",
        "dims": "Input Dims",
        "types": "Input type",
        "collective": "Collective name",
        "sent": "In msg nelems",
        "received": "Out msg nelems",
        "devices": "Group size",
    },
):
    """What an event says of itself: numbers of operators, their inputs, and what NCCL's kernels do."""

    number: int | str | None = None
    dims: list[Any] = []
    types: list[Any] = []
    collective: str | None = None
    dtype: str = ""
    sent: int = 0
    received: int = 0
    devices: int = 0


class Event(msgspec.Struct):
    """An event that takes time; microseconds."""

    name: str = ""
    ts: float = 0.0
    dur: float = 0.0
    ph: str = "X"
    cat: str = ""
    tid: int | str = 0
    args: Details = msgspec.field(default_factory=Details)


class ChakraInputs(msgspec.Struct):
    """Of an operator."""

    shapes: list[Any] = []
    types: list[Any] = []


class ChakraNode(msgspec.Struct):
    """A node of an ET+ trace; kernels of a GPU name the operator that launched them by `ctrl_deps`."""

    id: int
    name: str
    ts: float | None = None
    inclusive_dur: float = 0.0
    cat: str = "cpu_op"
    ctrl_deps: int | None = None
    inputs: ChakraInputs = msgspec.field(default_factory=ChakraInputs)
    tid: int = 0


class TraceFile(msgspec.Struct):
    """Kineto's events, or the nodes of Chakra."""

    events: list[Event] | None = msgspec.field(default=None, name="traceEvents")
    nodes: list[ChakraNode] | None = None


def read_trace(path: str | Path) -> Trace:
    """A trace of `torch.profiler` (`record_shapes=True`; .json or .json.gz), or one of Chakra.

    Raises:
        ValueError: there is no such file, it is neither, or no operator took time in it.
    """
    with naming(f"trace '{path}'"):
        try:
            content = Path(path).read_bytes()
            content = gzip.decompress(content) if Path(path).suffix == ".gz" else content
            file = msgspec.json.decode(content, type=TraceFile)
        except (OSError, EOFError, msgspec.MsgspecError) as error:
            raise ValueError(str(error)) from error
        if file.events is not None:
            return trace_of([e for e in file.events if e.ph == "X"])
        if file.nodes is not None:
            return trace_of([_as_event(node) for node in file.nodes])
        raise ValueError("has neither traceEvents (kineto) nor nodes (Chakra)")


def _as_event(node: ChakraNode) -> Event:
    types = [str(t).removeprefix("Tensor(").removesuffix(")") for t in node.inputs.types]
    launcher = node.ctrl_deps if node.cat in _ON_DEVICE else node.id
    details = Details(launcher, node.inputs.shapes, types)
    duration = 0.0 if node.ts is None else node.inclusive_dur
    return Event(node.name, node.ts or 0.0, duration, cat=node.cat, tid=node.tid, args=details)


def trace_of(events: Sequence[Event]) -> Trace:
    """The fastest step of these events: of all, where no `ProfilerStep#` says where one begins."""
    steps = [(e.ts, e.ts + e.dur) for e in events if e.name.startswith("ProfilerStep#")]
    timed = [e for e in events if e.dur > 0 and not e.name.startswith("ProfilerStep#")]
    timed = [e for e in timed if e.cat in ("cpu_op", "user_annotation", *_ON_DEVICE)]
    if not timed:
        raise ValueError("no operator takes time in it")
    whole = min(e.ts for e in timed), max(e.ts + e.dur for e in timed)
    begin, end = min(steps, key=lambda step: step[1] - step[0]) if steps else whole
    return _step([e for e in timed if begin <= e.ts < end], (end - begin) / 1e6)


class _Frame(NamedTuple):
    """An event on the CPU, its operator, its phase, and the event within which it lies, or itself."""

    event: Event
    owner: Event
    family: str
    phase: Phase
    outer: Event


def _step(events: Sequence[Event], seconds: float) -> Trace:
    on_device = [e for e in events if e.cat in _ON_DEVICE]
    frames = list(_frames([e for e in events if e.cat not in _ON_DEVICE]))
    if on_device:
        by_id = {f.event.args.number: f for f in frames if f.event.cat == "cpu_op"}
        kernels = [e for e in on_device if e.args.collective is None]
        spent = [(_launcher(by_id, e), e.dur) for e in kernels]
    else:
        inside: dict[int, float] = defaultdict(float)
        for frame in frames:
            if frame.outer is not frame.event:
                inside[id(frame.outer)] += frame.event.dur
        spent = [(f, f.event.dur - inside[id(f.event)]) for f in frames]
    collectives, unknown = _collectives(on_device)
    operators = _operators(spent, frames)
    return Trace(seconds, tuple(operators), tuple(collectives), unknown)


def _launcher(by_id: Mapping[Any, _Frame], event: Event) -> _Frame:
    return by_id.get(event.args.number) or _whole(event)


def _whole(event: Event) -> _Frame:
    """An event that lies within no other one and is of no family."""
    return _Frame(event, event, "", Phase.FORWARD, event)


def _is_within(event: Event, outer: Event) -> bool:
    return event.tid == outer.tid and event.ts < outer.ts + outer.dur


def _frames(events: Iterable[Event]) -> Iterator[_Frame]:
    """Events of the CPU with their operators: the outermost one that is of a family, else the event itself."""
    stack: list[_Frame] = []
    for event in sorted(events, key=lambda e: (str(e.tid), e.ts, -e.dur)):
        while stack and not _is_within(event, stack[-1].event):
            stack.pop()
        family = family_of(event.name)
        owner = event
        above = stack[-1] if stack else _whole(event)
        phase = above.phase
        if event.name.startswith("Optimizer."):
            family = UPDATE
            phase = Phase.UPDATE
        elif event.name.startswith("autograd::engine::evaluate_function"):
            phase = Phase.BACKWARD
        if above.family:
            family = above.family
            owner = above.owner
        frame = _Frame(event, owner, family, phase, above.event)
        stack.append(frame)
        yield frame


def family_of(name: str) -> str:
    """The family of an operator or of its node of autograd; empty: none is known."""
    name = name.removeprefix("autograd::engine::evaluate_function: ").removeprefix("aten::")
    core = re.sub(r"Backward\d*$", "", name)
    core = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", core).lower().strip("_")
    core = re.sub(r"^native_|_backward(_data)?$|_forward$", "", core).strip("_")
    return next((family for family, names in _PATTERNS.items() if names.fullmatch(core)), "")


def _operators(
    spent: Iterable[tuple[_Frame, float]], frames: Iterable[_Frame]
) -> list[TracedOperator]:
    """Calls with equal names and shapes added up."""
    flops: dict[int, float] = defaultdict(float)
    for frame in frames:
        flops[id(frame.owner)] += product_flops(frame.event)
    seconds: dict[int, float] = defaultdict(float)
    owners: dict[int, _Frame] = {}
    for frame, microseconds in spent:
        seconds[id(frame.owner)] += microseconds / 1e6
        owners.setdefault(id(frame.owner), frame)
    alike: dict[tuple[str, str, Phase, str, str], list[int]] = defaultdict(list)
    for key, frame in owners.items():
        args = frame.owner.args
        dtype = next((t for t in map(str, args.types) if t in _BYTES or t.startswith("c10::")), "")
        shapes = " ".join(str(d).replace(" ", "") for d in args.dims if d)
        alike[frame.owner.name, frame.family, frame.phase, shapes, dtype].append(key)
    made = [
        TracedOperator(
            *labels,
            calls=len(keys),
            seconds=sum(seconds[key] for key in keys),
            flops=sum(flops[key] for key in keys),
        )
        for labels, keys in alike.items()
    ]
    return sorted(made, key=lambda op: -op.seconds)


def product_flops(event: Event) -> float:
    """Of a product of matrices, by the shapes of its inputs; 0: it is none, or none of a known form."""
    name = event.name.removeprefix("aten::")
    dims = event.args.dims
    first = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}.get(name)
    if first is None or len(dims) < first + 2 or not (dims[first] and dims[first + 1]):
        return 0.0
    extents = [*dims[first], dims[first + 1][-1]]
    return 2.0 * prod(extents) if all(isinstance(n, int) for n in extents) else 0.0


def _collectives(events: Iterable[Event]) -> tuple[list[TracedCollective], dict[str, float]]:
    """Kernels of NCCL, which say what they do; bytes are of all that is summed or gathered."""
    collectives: list[TracedCollective] = []
    unknown: dict[str, float] = defaultdict(float)
    for event in events:
        args = event.args
        seconds = event.dur / 1e6
        if args.collective is None:
            continue
        name = args.collective.lower().strip("_")
        kind = next((v for k, v in _COLLECTIVES.items() if name.startswith(k)), None)
        size = _BYTES.get(args.dtype.lower(), 0) * max(args.sent, args.received)
        if kind is None or not size or args.devices < 2:
            unknown[name] += seconds
        else:
            collectives.append(TracedCollective(kind, args.devices, size, seconds))
    return collectives, dict(unknown)
