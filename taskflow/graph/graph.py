"""The graph: operators in program order, and the regions between them.

Forward, backward and update are all operators of one graph; `differentiate` appends the backward ones. Nothing here
knows a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from taskflow.core.dtypes import HALF, known_dtype
from taskflow.core.random import Constant, Distribution
from taskflow.graph.differentiate import differentiate
from taskflow.graph.kernel import Function, Kernel, as_kernel
from taskflow.graph.layout import parse_orders
from taskflow.graph.operator import Backward, Operator, term_sizes, term_text
from taskflow.graph.pattern import BoundPattern, Pattern, bind
from taskflow.graph.precision import Precision, float32_outputs
from taskflow.graph.region import LogicalRegion
from taskflow.graph.window import Window
from taskflow.machine.device import check_not_negative

Init = float | Distribution | Callable[[tuple[int, ...]], Distribution]

_DEFAULT_AXES = {1: ("b",), 2: ("b", "c"), 3: ("b", "s", "c"), 4: ("n", "c", "h", "w")}


class Graph:
    """Operators in program order over logical regions."""

    def __init__(self) -> None:
        self.operators: list[Operator] = []
        self.regions: dict[str, LogicalRegion] = {}
        self.outputs: dict[str, LogicalRegion] = {}
        self.precision = Precision()
        self.differentiations = 0  # so that backward functions can tell one call of `differentiate` from another
        self._names: set[str] = set()
        self._bounds: dict[object, BoundPattern] = {}  # equal layers share one, and what is derived from it
        self._follows: str | None = None

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
        self, name: str, shape: Sequence[int], init: Init = 0.0, dtype: str = "float32", trainable: bool = True
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
        shape = tuple(int(n) for n in shape)
        if callable(init):
            init = init(shape)
        distribution = Constant(float(init)) if isinstance(init, int | float) else init
        return self._region(name, shape, dtype, "parameter" if trainable else "state", init=distribution)

    def _region(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str,
        role: str,
        axes: tuple[str, ...] | None = None,
        init: Distribution = Constant(0.0),  # noqa: B008 (a frozen value)
    ) -> LogicalRegion:
        shape = tuple(int(n) for n in shape)
        if name in self.regions:
            raise ValueError(f"region '{name}': the graph has a region of this name already")
        if any(n < 1 for n in shape):
            raise ValueError(f"region '{name}': extents are positive, not {shape}")
        if axes is None:
            axes = _DEFAULT_AXES.get(len(shape), tuple(f"a{k}" for k in range(len(shape))))
        region = LogicalRegion(name, shape, known_dtype(dtype), role, axes, init, self)
        self.regions[name] = region
        return region

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
        windows: Mapping[str, Window] | None = None,
        writes: Sequence[LogicalRegion | int] = (),
        backward: Backward | None = None,
        flops: float | None = None,
        dtype: str | Sequence[str] | None = None,
        layout: str | None = None,
    ) -> LogicalRegion | tuple[LogicalRegion, ...]:
        """Append an operator; its outputs are new regions.

        Args:
            name: of the operator; a number is added when it is taken.
            pattern: one term per input, `->`, one term per output (see `taskflow.graph.pattern`).
            inputs: regions of this graph, one per input term.
            kernel: a function, or a `taskflow.Kernel` that says more about one. `kernel(ctx, *inputs, *outputs)` gets
                arrays of one point's tiles and writes every output tile fully. `ctx.rect(k)` is the box of argument k
                in global coordinates, `ctx.interval(axis)` an axis's `(lo, hi)`, `ctx.xp` numpy or cupy, `ctx.step` the
                number of finished steps, `ctx.scratch(...)` memory for the call, `ctx.uniform(...)` random numbers that
                no split changes.
            sizes: extents of axes that no input gives.
            windows: dimension name -> Window for halo, stride and offset.
            writes: inputs (regions or positions) that the kernel updates in place.
            backward: `backward(op, *output_gradients)`, a region or None per input, built from operators.
            flops: floating point operations per point of the iteration space (the product of all axes); default 2
                where an axis is reduced, else 1.
            dtype: of the outputs (one, or one each); default: that of the first floating input.
            layout: the pattern again, each term's dimensions in the order in which the kernel is fast when they lie so
                in memory, slowest first. A wish: another operator may have decided; the arrays are views either way.

        Returns:
            The output region; a tuple for several; an empty tuple for none.

        Raises:
            ValueError: extents disagree, an axis has no extent, an in-place input is not whole along an axis, `flops`
                is no finite number from 0, or `layout` is no reordering of the pattern.
            TypeError: an input is not a region, or `kernel` is no function.
        """
        kernel, inputs = as_kernel(f"'{name}'", kernel), tuple(inputs)
        for k, region in enumerate(inputs):
            if not isinstance(region, LogicalRegion):
                raise TypeError(f"'{name}': input {k} is a {type(region).__name__}, not a region")
            self._check_ours(f"'{name}': input {k}", region)
        # somebody may hold a region from before the graph got its precision
        inputs = tuple(r if (now := self.regions[r.name]).dtype == r.dtype else now for r in inputs)
        bound = bind(
            f"'{name}'",
            Pattern.parse(pattern),
            [r.name for r in inputs],
            [r.shape for r in inputs],
            sizes or {},
            windows or {},
        )
        key = pattern, bound.shapes, tuple(bound.extents.items()), tuple(bound.windows.items())
        bound = self._bounds.setdefault(key, bound)
        positions = tuple(_position(name, w, inputs) for w in writes)
        for k in positions:
            if sum(r.name == inputs[k].name for r in inputs) > 1:  # a gradient may come under other axis names
                raise ValueError(f"'{name}': '{inputs[k].name}' is updated in place and read again by another term")
            if any(n in bound.windows for d in bound.terms[k].dims for n in d):
                raise ValueError(f"'{name}': '{inputs[k].name}' is updated in place, so its term has no window")
        if flops is not None:
            check_not_negative(f"'{name}'", "flops", flops)
        orders = parse_orders(f"'{name}'", layout, bound.pattern) if layout else ()
        unique = self._unique(name)
        dtypes = _output_dtypes(name, dtype, inputs, bound, kernel)
        outputs = tuple(
            self._region(
                unique if len(dtypes) == 1 else f"{unique}.{k}",
                bound.shapes[len(inputs) + k],
                dtypes[k],
                "value",
                _axis_names(bound.pattern.outputs[k].dims),
            )
            for k in range(len(dtypes))
        )
        if flops is None:
            flops = 2.0 if any(bound.reduced_axes(k) for k in range(len(outputs))) else 1.0
        self.operators.append(
            Operator(unique, kernel, bound, inputs, outputs, positions, backward, flops, self._follows, orders)
        )
        return outputs[0] if len(outputs) == 1 else outputs

    def update(
        self,
        name: str,
        region: LogicalRegion,
        inputs: Sequence[LogicalRegion],
        *,
        kernel: Kernel | Function,
        scalars: Sequence[LogicalRegion] = (),
        writes: Sequence[LogicalRegion] = (),
        values: int = 0,
        sums: int = 0,
        flops: float | None = None,
    ) -> tuple[LogicalRegion, ...]:
        """Append an elementwise operator that is split as the first operator that reads `region` splits it.

        The kernel gets `inputs` (all of the region's shape: itself, its gradient, momenta, ...), `scalars` (regions of
        shape `()`) and its outputs: `values` regions of that shape, then `sums` regions of shape `()`, to which every
        task adds its part. It updates `writes`, some of the inputs, in place.

        Returns:
            The outputs.

        Raises:
            ValueError: no operator reads `region`, or another region has another shape.
        """
        found = next(
            ((op, k) for op in self.operators for k, r in enumerate(op.inputs) if r is region and not op.writes), None
        )
        if found is None:
            raise ValueError(f"update '{name}': no operator reads '{region.name}'")
        leader, k = found
        term = term_text(leader, k)
        read, made = [term] * len(inputs) + ["."] * len(scalars), [term] * values + ["."] * sums
        with self.following(leader.follows or leader.name):
            outputs = self.launch(
                name,
                f"{', '.join(read)} -> {', '.join(made)}",
                [*inputs, *scalars],
                kernel=kernel,
                sizes=term_sizes(leader, k),
                writes=writes,
                flops=flops,
            )
        return outputs if isinstance(outputs, tuple) else (outputs,)

    @contextmanager
    def following(self, name: str) -> Iterator[None]:
        """Operators launched inside use the ParallelConfig of operator `name` unless they are named themselves."""
        outer, self._follows = self._follows, self._follows or name
        try:
            yield
        finally:
            self._follows = outer

    def with_operators(self, operators: Sequence[Operator]) -> Graph:
        """A graph of these operators on copies of the regions that they use, and of all that are not made by any."""
        other = Graph()
        used = {r.name for op in operators for r in op.args}
        kept = [r for r in self.regions.values() if r.role != "value" or r.name in used]
        other.regions = {r.name: replace(r, graph=other) for r in kept}

        def own(regions: Sequence[LogicalRegion]) -> tuple[LogicalRegion, ...]:
            return tuple(other.regions[r.name] for r in regions)

        other.operators = [replace(op, inputs=own(op.inputs), outputs=own(op.outputs)) for op in operators]
        other.outputs = {name: other.regions[r.name] for name, r in self.outputs.items()}
        other._names = set(self._names)
        other.differentiations, other.precision = self.differentiations, self.precision
        return other

    def unique_name(self, base: str) -> str:
        """`base`, or `base_2`, `base_3`, ... if operators of that name exist."""
        if base not in self._names:
            return base
        return next(n for k in range(2, len(self._names) + 3) if (n := f"{base}_{k}") not in self._names)

    def operator(self, name: str) -> Operator:
        """The operator of that name.

        Raises:
            ValueError: there is none.
        """
        for op in self.operators:
            if op.name == name:
                return op
        raise ValueError(f"operator '{name}': the graph has no operator of this name")

    def producer(self, region: LogicalRegion) -> Operator | None:
        """The operator that makes `region`; None for inputs, parameters and states."""
        return next((op for op in self.operators if any(r is region for r in op.outputs)), None)

    def differentiate(
        self, loss: LogicalRegion, regions: Sequence[LogicalRegion], scale: LogicalRegion | None = None
    ) -> dict[LogicalRegion, LogicalRegion]:
        """Append the operators of d loss / d region for each of `regions`; gives the gradient regions.

        Reverse accumulation in program order; a region that several operators read gets the sum of their gradients.
        With `scale`, a region of shape (), the gradients are those of the loss times its value.

        Raises:
            ValueError: `loss` is not a scalar, or an operator on the way has no backward.
        """
        self.differentiations += 1
        return differentiate(self, loss, regions, scale)

    def _unique(self, base: str) -> str:
        name = self.unique_name(base)
        self._names.add(name)
        return name

    def _check_ours(self, where: str, region: LogicalRegion) -> None:
        if region.graph is not self:
            raise ValueError(f"{where}: region '{region.name}' belongs to another graph")


def _position(name: str, region: LogicalRegion | int, inputs: Sequence[LogicalRegion]) -> int:
    if isinstance(region, int):
        if not 0 <= region < len(inputs):
            raise ValueError(f"'{name}': writes names input {region} of {len(inputs)}")
        return region
    for k, candidate in enumerate(inputs):
        if candidate is region:
            return k
    raise ValueError(f"'{name}': writes names '{region.name}', which is not an input")


def _output_dtypes(
    name: str, dtype: str | Sequence[str] | None, inputs: Sequence[LogicalRegion], bound: BoundPattern, kernel: Kernel
) -> list[str]:
    count = len(bound.pattern.outputs)
    if kernel.float32_outputs and not all(0 <= k < count for k in kernel.float32_outputs):
        raise ValueError(
            f"'{name}': float32_outputs of its kernel are {kernel.float32_outputs}, it has {count} outputs"
        )
    if dtype is None:
        floating = [r.dtype for r in inputs if r.is_floating] or [r.dtype for r in inputs]
        if count and not floating:
            raise ValueError(f"'{name}': an operator without inputs names the dtype of its output")
        wide = float32_outputs(bound, kernel.float32_outputs) if floating and floating[0] in HALF else ()
        return ["float32" if k in wide else floating[0] for k in range(count)]
    dtypes = [dtype] * count if isinstance(dtype, str) else list(dtype)
    if len(dtypes) != count:
        raise ValueError(f"'{name}': {len(dtypes)} dtypes were given for {count} outputs")
    return dtypes


def _axis_names(dims: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Axis names of an output's dimensions; a group gets its joined name, a dimension of one point a number."""
    return tuple(d[0] if len(d) == 1 else "".join(d) if d else f"one{k}" for k, d in enumerate(dims))
