"""Graphs: operators in program order, and the regions between them. Nothing here knows a device.

The three types know each other: a region remembers its graph, so that `x.graph.launch(...)` can go on from it, an
operator has regions, and a graph has both. Forward, backward and update are all operators of one graph.

* A logical region says what a value is (shape, dtype, how it starts, whether it outlives a step), never where it lies.
* An operator is what `Graph.launch` makes of a kernel, a pattern and regions: a value, not a class to inherit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from taskflow.core.arrays import as_array, cast_array
from taskflow.core.dtypes import is_floating, known_dtype
from taskflow.core.geometry import Rect
from taskflow.core.random import Constant, Distribution, Values, as_distribution
from taskflow.core.text import contents, listed
from taskflow.graph.binding import Bindings, check_arguments, positions_of, whole_numbers, work_of
from taskflow.graph.dtypes import Precision, output_dtypes
from taskflow.graph.kernel import Function, Kernel, as_kernel
from taskflow.graph.pattern import BoundPattern, parse_orders
from taskflow.graph.program_order import Numbers, ProgramOrder
from taskflow.graph.window import AnyWindow, Image

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Backward = Callable[..., Any]
Init = float | Distribution | Callable[[tuple[int, ...]], Distribution]

_DEFAULT_AXES = {1: ("b",), 2: ("b", "c"), 3: ("b", "s", "c"), 4: ("n", "c", "h", "w")}
_ZERO = Constant(0.0)
ROLES = ("input", "parameter", "state", "value")


@dataclass(frozen=True, slots=True)
class LogicalRegion:
    """A named n-dimensional array without storage.

    Attributes:
        name: unique in its graph; a parameter is `<operator>.weight`, the output of an operator has its name.
        shape: extents in points.
        dtype: NumPy dtype name.
        role: `input` (fed each step), `parameter` (persistent, trained), `state` (persistent, not trained) or
            `value` (made by an operator within a step).
        init: the distribution of the first values of a persistent region.
        axes: names of the dimensions as the making operator calls them; elementwise operators take them over.
        drawn_as: the name by which its first values are drawn; empty: its own.
        is_on_host: whether it lies in the memory of the host of each device that has a part of it (see `offload`).
        graph: the graph that it belongs to.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: str
    axes: tuple[str, ...]
    init: Distribution = _ZERO
    drawn_as: str = ""
    is_on_host: bool = False
    graph: Graph = field(repr=False, compare=False, hash=False, default=None)  # type: ignore[assignment]

    @property
    def is_persistent(self) -> bool:
        """True when the region keeps its value from one step to the next."""
        return self.role in ("parameter", "state")

    @property
    def is_constant(self) -> bool:
        """True when nothing updates it, see `Graph.constant`."""
        return isinstance(self.init, Values)

    @property
    def is_floating(self) -> bool:
        """Whether its elements are of floating point."""
        return is_floating(self.dtype)

    @property
    def rect(self) -> Rect:
        """The box of all its points."""
        return Rect.of_shape(self.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return np.dtype(self.dtype).itemsize

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole region."""
        return prod(self.shape) * self.itemsize

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"region '{self.name}' has no attribute '{name}': a region is not an array; use ops.*"
        )


@dataclass(frozen=True)
class Operator:
    """A kernel over named axes.

    Attributes:
        name: unique in its graph.
        kernel: called with arrays of one point's tiles; writes the outputs.
        bound: the pattern with its extents.
        inputs, outputs: regions, in the order of the pattern's terms.
        writes: positions of the inputs that are updated in place; the pattern says to which of them it only adds.
        backward: `backward(op, *output_gradients)` gives a region or None per input.
        flops: floating point operations of one point of the iteration space.
        follows: name of the operator whose ParallelConfig it uses unless it is named in the strategy itself.
        orders: the memory order that the kernel asks for, per argument; empty: any (see `lowering.orders`).
        members: the operators that were fused into it, in program order, itself last (see `taskflow.fuse`).
        step: in which of several steps it runs (see `graph.repeat`).
        pace: of how many steps of its job in one step of the graph (see `graph.beside`).
        job: of which of several graphs it is (see `graph.beside`); `a/b`: of b among those that were joined as a.
        is_backward: whether `differentiate` appended it (see `graph.phases`).
        beside: the region that it is elementwise with, where what does so may be split on its own (see `completed`).
        work: dimension with an image -> flops of a point of it and of every axis but the one that it follows.
        gathers: so often what it makes is brought to those who read it, once for each micro-batch (see `homes`).
        passes: positions of the inputs that later readers get from those who read them here (see `ring`).
    """

    name: str
    kernel: Kernel
    bound: BoundPattern
    inputs: tuple[LogicalRegion, ...]
    outputs: tuple[LogicalRegion, ...]
    writes: tuple[int, ...] = ()
    backward: Backward | None = field(default=None, compare=False)
    flops: float = 1.0
    follows: str | None = None
    orders: tuple[tuple[int, ...], ...] = ()
    members: tuple[str, ...] = ()
    step: int = 0
    pace: int = 1
    job: str = ""
    is_backward: bool = False
    beside: str | None = None
    work: tuple[tuple[str, float], ...] = ()
    gathers: int = 1
    passes: tuple[int, ...] = ()

    @property
    def total_flops(self) -> float:
        """Floating point operations of all points."""
        points = prod(self.extents.values())
        return self.flops * points + sum(self.image_flops(name) for name, _ in self.work)

    def image_flops(self, name: str) -> float:
        """Those that `work` says of a dimension with an image."""
        image: Image = self.windows[name]
        points = prod(self.extents.values())
        extent = self.extents[image.axis]
        return dict(self.work)[name] * (image.work((0, extent)) * (points // extent))

    @property
    def pattern(self) -> str:
        """The pattern as text."""
        return self.bound.pattern.text

    @property
    def extents(self) -> Mapping[str, int]:
        """Axis -> number of points."""
        return self.bound.extents

    @property
    def windows(self) -> Mapping[str, Any]:
        """Dimension name -> Window or Image."""
        return self.bound.windows

    @property
    def args(self) -> tuple[LogicalRegion, ...]:
        """Regions of all terms: inputs then outputs."""
        return self.inputs + self.outputs

    @property
    def written(self) -> tuple[LogicalRegion, ...]:
        """Regions of which it makes a version: outputs, then the inputs that it updates."""
        return (*self.outputs, *(self.inputs[k] for k in self.writes))

    @cached_property
    def split_axes(self) -> tuple[str, ...]:
        """The axes that may be split, in order: no fixed one, and none that an input lacks that it overwrites."""
        axes = (a for a in self.extents if a not in self.bound.pattern.fixed)
        return tuple(a for a in axes if all(a in self.bound.term_axes[k] for k in self.overwrites))

    @property
    def adds(self) -> tuple[int, ...]:
        """Positions of the inputs that it adds to."""
        return self.bound.pattern.adds

    @property
    def overwrites(self) -> tuple[int, ...]:
        """Positions of the inputs that it updates in any other way than adding to them."""
        return tuple(k for k in self.writes if k not in self.adds)

    @cached_property
    def parameter_axes(self) -> frozenset[str]:
        """The axes that stand in a parameter's term: splitting one of them splits a parameter."""
        axes = [self.bound.term_axes[k] for k, r in enumerate(self.inputs) if r.role == "parameter"]
        return frozenset[str]().union(*axes)

    def __str__(self) -> str:
        return f"{self.name}: {self.pattern}{contents(self.members)}"


class Graph:
    """Operators in program order over logical regions."""

    def __init__(self) -> None:
        self.operators: ProgramOrder[Operator] = ProgramOrder()
        self.regions: dict[str, LogicalRegion] = {}
        self.outputs: dict[str, LogicalRegion] = {}
        self.precision = Precision()
        self.differentiations = 0
        self.repeat = 1  # so many steps
        # what backward functions leave to later ones of the same call
        self.pending: dict[object, list[Any]] = {}
        self.names: set[str] = set()  # of operators, also of those that were removed again
        # region -> the operator that makes it where somebody wants it
        self._aside: dict[str, Operator] = {}
        self._bound = Bindings()
        self._numbers = Numbers()
        self._follows: str | None = None

    def __repr__(self) -> str:
        """The first operators, one a line: name, pattern and outputs."""
        made = (
            (op, ", ".join(f"{r.dtype}{list(r.shape)}" for r in op.outputs))
            for op in self.operators
        )
        title = f"Graph of {len(self.operators)} operators and {len(self.regions)} regions"
        return listed(title, [f"{op}  {regions}".rstrip() for op, regions in made])

    # -- regions ---------------------------------------------------------------------------------------------------

    def input(self, name: str, shape: Sequence[int], dtype: str = "float32") -> LogicalRegion:
        """A region that is fed at every step.

        Args:
            name: the key in the feeds.
            shape: extents; dimension 0 is the batch.
            dtype: NumPy dtype name.

        Raises:
            ValueError: the name is taken or an extent is not positive.
        """
        return self._region(name, shape, dtype, "input")

    def parameter(
        self,
        name: str,
        shape: Sequence[int],
        init: Init = 0.0,
        dtype: str = "float32",
        trainable: bool = True,
    ) -> LogicalRegion:
        """A region that persists across steps: a trained parameter, or (`trainable=False`) a state.

        Args:
            name: `<operator>.weight` and the like.
            shape: extents.
            init: a number, a distribution (`Constant`, `Uniform`, `Normal`) or a function shape -> distribution. The
                first values depend only on (seed, name, global index).
            dtype: NumPy dtype name.
            trainable: whether optimizers update it.

        Raises:
            ValueError: the name is taken or an extent is not positive.
        """
        where = f"region '{name}'"
        init = init(whole_numbers(f"{where}: shape", shape)) if callable(init) else init
        distribution = as_distribution(where, init, known_dtype(where, dtype))
        return self._region(
            name, shape, dtype, "parameter" if trainable else "state", init=distribution
        )

    def constant(self, name: str, values: ArrayLike, dtype: str | None = None) -> LogicalRegion:
        """A state of given first values that nothing updates: edges of a graph, positions of tokens.

        It lies on every device that reads it, so that nothing moves in a step. A checkpoint has its digest alone.

        Args:
            name: of the region.
            values: of any shape.
            dtype: NumPy dtype name; default: that of `values`.

        Raises:
            ValueError: the name is taken, there are no values, or the dtype cannot hold one.
        """
        where = f"constant '{name}'"
        array = as_array(where, values)
        array = cast_array(where, array, known_dtype(where, dtype or array.dtype.name))
        return self._region(name, array.shape, array.dtype.name, "state", init=Values(array.copy()))

    def _region(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str,
        role: str,
        axes: tuple[str, ...] | None = None,
        init: Distribution = Constant(0.0),  # noqa: B008 (a frozen value)
    ) -> LogicalRegion:
        shape = whole_numbers(f"region '{name}': shape", shape)
        if not isinstance(name, str):
            raise TypeError(f"the name of a region or operator is {name!r}, a string is needed")
        if name in self.regions:
            raise ValueError(f"region '{name}': the graph has a region of this name already")
        if any(n < 1 for n in shape):
            raise ValueError(f"region '{name}': extents are positive, not {shape}")
        axes = axes or _DEFAULT_AXES.get(len(shape), tuple(f"a{k}" for k in range(len(shape))))
        region = LogicalRegion(
            name, shape, known_dtype(f"region '{name}'", dtype), role, axes, init, graph=self
        )
        return self.regions.setdefault(name, region)

    @property
    def inputs(self) -> list[LogicalRegion]:
        """The regions that are fed at every step."""
        return [r for r in self.regions.values() if r.role == "input"]

    @property
    def parameters(self) -> list[LogicalRegion]:
        """The trained regions."""
        return [r for r in self.regions.values() if r.role == "parameter"]

    def output(self, name: str, region: LogicalRegion) -> LogicalRegion:
        """Fetch `region` at every step under `name`; gives the region back.

        Raises:
            ValueError: the name is in use or the region belongs to another graph.
        """
        self._check_ours(f"output '{name}'", region)
        if self.outputs.setdefault(name, region) is not region:
            raise ValueError(f"output '{name}': is '{self.outputs[name].name}' already")
        return region

    # -- operators -------------------------------------------------------------------------------------------------

    def launch(
        self,
        name: str,
        pattern: str,
        inputs: Sequence[LogicalRegion],
        *,
        kernel: Kernel | Function,
        sizes: Mapping[str, int] | None = None,
        windows: Mapping[str, AnyWindow] | None = None,
        writes: Sequence[LogicalRegion | int] = (),
        adds: Sequence[LogicalRegion | int] = (),
        backward: Backward | None = None,
        flops: float | Mapping[str, float] | None = None,
        dtype: str | Sequence[str] | None = None,
        layout: str | None = None,
    ) -> LogicalRegion | tuple[LogicalRegion, ...]:
        """Append an operator; its outputs are new regions.

        Args:
            name: of the operator; a number is added when it is taken.
            pattern: one term per input, `->`, one term per output (see `taskflow.graph.pattern`).
            inputs: regions of this graph, one per input term.
            kernel: a function, or a `taskflow.Kernel` that says more about one. `kernel(ctx, *inputs, *outputs)` gets
                arrays of one point's tiles and writes every output tile fully; `ctx` is a `taskflow.Context`.
            sizes: extents of axes that no input gives.
            windows: dimension name -> Window for halo, stride and offset, Image for what a table says.
            writes: inputs (regions or positions) that the kernel updates in place.
            adds: inputs that the kernel adds to, and does not look at: a split of an axis that one lacks makes parts,
                which are added to it in their order. `add[...]` around its term says the same.
            backward: `backward(op, *output_gradients)`, a region or None per input, built from operators.
            flops: floating point operations per point of all axes; default 2 where an axis is reduced, else 1. Or
                dimension with an Image -> those per point of it and of all axes but the one that it follows.
            dtype: of the outputs (one, or one each); default: that of the first floating input.
            layout: the pattern again, each term's dimensions in the order in which the kernel is fast when they lie so
                in memory, slowest first. A wish: another operator may have decided; the arrays are views either way.

        Returns:
            The output region; a tuple for several; an empty tuple for none.

        Raises:
            ValueError: extents disagree, an axis has no extent, an input cannot be updated in place, `flops` is no
                finite number from 0 or names no Image, or `layout` is no reordering of the pattern.
            TypeError: an input is not a region, `kernel` is no function, or kernels take no such dtype.
        """
        where = f"'{name}'"
        kernel, inputs = as_kernel(where, kernel), tuple(inputs)
        check_arguments(where, pattern, sizes or {}, windows or {}, backward)
        for k, region in enumerate(inputs):
            self._check_ours(f"{where}: input {k}", region)
        names = [r.name for r in inputs]
        added = positions_of(where, "adds", adds, inputs)
        bound = self._bound.bind(
            where, pattern, added, names, [r.shape for r in inputs], sizes or {}, windows or {}
        )
        positions = (*positions_of(where, "writes", writes, inputs), *bound.pattern.adds)
        bound.check_writes(where, positions, names)
        for k in positions:
            if inputs[k].is_constant:
                raise ValueError(f"{where}: '{names[k]}' is a constant, which nothing updates")
        per_point, work = work_of(where, flops, bound)
        orders = parse_orders(where, layout, bound.pattern) if layout else ()
        self.names.add(name := self.unique_name(name))
        dtypes = output_dtypes(where, dtype, [r.dtype for r in inputs], bound, kernel)
        outputs = self._outputs(name, dtypes, bound, inputs)
        self.operators.append(
            Operator(
                name,
                kernel,
                bound,
                inputs,
                outputs,
                positions,
                backward,
                per_point,
                self._follows,
                orders,
                work=work,
            )
        )
        return outputs[0] if len(outputs) == 1 else outputs

    def _outputs(
        self,
        name: str,
        dtypes: Sequence[str],
        bound: BoundPattern,
        inputs: Sequence[LogicalRegion],
    ) -> tuple[LogicalRegion, ...]:
        """The new regions of operator `name`: it, or `<name>.0`, `<name>.1`, ..."""

        names = [name] if len(dtypes) == 1 else [f"{name}.{k}" for k in range(len(dtypes))]
        axes = bound.axis_names([region.axes for region in inputs])
        shapes = bound.shapes[len(inputs) :]
        return tuple(map(self._region, names, shapes, dtypes, repeat("value"), axes))

    @contextmanager
    def following(self, name: str) -> Iterator[None]:
        """Operators launched inside use the ParallelConfig of operator `name` unless they are named themselves."""
        outer, self._follows = self._follows, self._follows or name
        try:
            yield
        finally:
            self._follows = outer

    def unique_name(self, base: str, *parts: str) -> str:
        """`base`, or `base_2`, `base_3`, ... if operators or regions of that name exist, or of `<name>.<part>`."""
        return self._numbers.unique(base, parts, (self.names, self.regions))

    def operator(self, name: str) -> Operator:
        """The operator of that name.

        Raises:
            ValueError: there is none.
        """
        if (op := self.operators.called(name)) is None:
            raise ValueError(f"operator '{name}': the graph has no operator of this name")
        return op

    def producer(self, region: LogicalRegion) -> Operator | None:
        """The operator that makes `region`; None for inputs, parameters and states."""
        return self.operators.maker(region)

    def set_aside(self, regions: Iterable[LogicalRegion]) -> None:
        """Take out the operators that make `regions`, one each, until somebody reads one or names it an output."""
        makers = {region.name: self.producer(region) for region in regions}
        self.operators[:] = [
            op for op in self.operators if not (op.outputs and op.outputs[0].name in makers)
        ]
        for name, maker in makers.items():
            assert maker, "an operator makes it"
            self._aside[self.regions.pop(name).name] = maker

    def _check_ours(self, where: str, region: LogicalRegion) -> None:
        if not isinstance(region, LogicalRegion):
            raise TypeError(f"{where} is a {type(region).__name__}, not a region")
        if region.graph is not self:
            raise ValueError(f"{where}: region '{region.name}' belongs to another graph")
        if (maker := self._aside.pop(region.name, None)) is not None:
            for read in maker.inputs:
                self._check_ours(where, read)
            self.regions[region.name] = region
            self.operators.append(maker)
