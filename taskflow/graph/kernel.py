"""Kernels: the function that an operator runs on the tiles of one point, and what else there is to know of it.

`Graph.launch` takes a plain function or a `Kernel`. What a Kernel says decides how the function is called: on which
arrays, when it is compiled, how often it is entered, what stands for it on a GPU, and with what it may become one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from taskflow.backend import Array, Context, in_float32, is_uniform, note_calls
from taskflow.core.told import short_digest

Function = Callable[..., None]
Call = Callable[[], object]
Points = Sequence[Sequence[Array]]
Join = Callable[[Any, int, Any, bool], "Kernel | None"]  # of two operators
Absorb = Callable[[Any, Any], "Kernel | None"]  # likewise
Ring = Callable[[Any, int], "Sequence[Any] | None"]  # of an operator


@dataclass(frozen=True)
class Items:
    """What the points of an operator claim while they run.

    Attributes:
        flops: floating point operations of all items, those of all points.
        longest: the longest item's share of all.
        seconds: of all items on one device, where they are known; 0: as flops say, or a kernel that is timed.
    """

    flops: float
    longest: float
    seconds: float = 0.0


@dataclass(frozen=True)
class Pointwise:
    """What a kernel computes in every element of its one output, from one element of each input.

    Attributes:
        text: an expression of `names` and `numbers` in the syntax of Python, such as `"n * x + exp(y)"`.
        names: of the inputs, in order.
        numbers: name -> number.
    """

    text: str
    names: tuple[str, ...]
    numbers: Mapping[str, float] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, repr=False)
class Kernel:
    """A function on the tiles of one point, and what else there is to know of it.

    As a decorator: `@Kernel`, or with fields `@partial(Kernel, is_captured=True)`.

    Attributes:
        function: `function(ctx, *inputs, *outputs, **options)` gets arrays and writes every output fully. It is
            written for NumPy, with `ctx.xp` for the array module, and runs on CuPy as it is.
        options: keyword arguments of every call; see `bind`.
        is_compiled: it is compiled when it first runs, by numba say. So an executor runs it once before the first
            step, on made-up values (numbers between 0.1 and 1, indices of 0) in memory that nobody else uses.
        is_captured: it does the same in every step, since its calls depend on shapes and strides, never on values. All
            that it does with values are calls of `ctx.xp` that write into `out`, `ctx.xp.copyto`, and what it calls
            through `ctx.call`, or `ctx.each_step` where it depends on the step's number. So a CPU enters it once and
            repeats these calls. Beware of what copies values unseen: `reshape` of what has gaps, and `fill`.
        accumulates: it can add to its outputs: to output k where `ctx.adds_to(k)`, which holds a part of a sum then.
            So parts of one device need no memory of their own.
        takes_half: it takes arrays of float16 and bfloat16 as they are, where all its floating arrays are of half size.
            Else, and without it, it gets float32 copies of them, and what it writes is rounded once.
        takes_mixed: it takes arrays of half size beside wider ones, too, whichever they are: a feed and a parameter
            stay float32 under `taskflow.precision`.
        takes_mixed_on_cuda: it `takes_mixed` on a GPU, where there is no variant for it.
        cuda: the variant for GPUs, of the same arguments and options; it may call `ctx.launch`.
        together: of a variant for GPUs: `together(ctx, points, **options)` gives a call that does the work of several
            points of a device. `points` are their arrays, without gaps; scalars are equal in all of them. It is made
            before the first step, and may keep arrays on the device (`ctx.constant`).
        float32_outputs: numbers of the outputs that are float32 where the others are float16 or bfloat16 (see
            `taskflow.precision`). None: scalars, and what is summed over axes of one input alone.
        expression: what it computes in every element, if that is all that it does.
        join: what `taskflow.fuse` asks for the kernel of two operators, of which `inner` makes input `k` of `outer`:
            `join(outer, k, inner, is_kept)`, where one of the two has this kernel. The joined one gives the same bits,
            but in half precision, where it rounds once, at its end; its inputs are those of `outer`, with those of
            `inner` in the place of input `k`, and its outputs those of `outer` and, where it `is_kept`, that of
            `inner`. None: there is no such kernel.
        absorb: what `taskflow.fuse` asks for the kernel of two operators, of which `outer`, with this kernel, comes
            later, and one reads what the other does: `absorb(outer, inner)`. The one of both gives the same bits. Its
            inputs are those of `inner` and then what else `outer` reads, its outputs those of `inner` that `outer` does
            not read and then those of `outer`. None: there is no such kernel.
        picks: number of an argument -> those of the arguments that index its first dimension, if it touches no more of
            it than a row for every index; its work is priced by that.
        window: of a convolution with square windows of stride 1, their size: GPUs save flops of small ones in float32.
        narrows: a precision casts its inputs to half as those of products, though it makes statistics alone, which stay
            float32.
        work: what a device may have a rate of its own for: "attention", forward, or "attention gradients".
        apart: what a user asks for so that micro-batches need not wait for each other here, `{parts}` in the place of
            their number: `ops.batch_norm(..., parts={parts})`; for messages.
        claims: the items that its points share while they run, by `ctx.claim`; on CPUs.
        ring: what `taskflow.ring` asks for the outputs of operators, several in turn, that do the work of one with this
            kernel in rounds: `ring(op, count)` launches them on the inputs of `op`. None: it cannot be cut so.

    Raises:
        TypeError: a field is of another type, or `function` is a partial Kernel: `bind` gives one its options.
        ValueError: there is a variant for GPUs, which says itself what it takes, and `takes_mixed_on_cuda`; or one that
            does not accumulate, of a kernel that does.
    """

    function: Function
    _: KW_ONLY
    options: Mapping[str, object] = field(default_factory=dict, hash=False)
    is_compiled: bool = False
    is_captured: bool = False
    accumulates: bool = False
    takes_half: bool = False
    takes_mixed: bool = False
    takes_mixed_on_cuda: bool = False
    cuda: Kernel | None = None
    together: Callable[..., Call] | None = None
    float32_outputs: tuple[int, ...] | None = None
    expression: Pointwise | None = None
    join: Join | None = None
    absorb: Absorb | None = None
    picks: Mapping[int, Sequence[int]] = field(default_factory=dict, hash=False)
    window: int = 0
    narrows: bool = False
    work: str = ""
    apart: str = ""
    claims: Items | None = None
    ring: Ring | None = None
    takes_half_on_cuda: InitVar[bool] = False  # deprecated

    def __post_init__(self, takes_half_on_cuda: bool) -> None:
        if takes_half_on_cuda:
            what = "Kernel(takes_half_on_cuda=) is of an older release: use takes_mixed_on_cuda="
            warnings.warn(what, FutureWarning, stacklevel=3)
            object.__setattr__(self, "takes_mixed_on_cuda", True)
        if not callable(self.function) or isinstance(self.function, Kernel):
            raise TypeError(f"kernel: a function is needed, not a {type(self.function).__name__}")
        if isinstance(self.function, partial) and isinstance(self.function.func, Kernel):
            raise TypeError(
                f"kernel '{self.function.func.name}': `bind` gives a Kernel its options, not `partial`"
            )
        for key, needed in (
            ("claims", Items),
            ("cuda", Kernel),
            ("expression", Pointwise),
            ("float32_outputs", tuple),
        ):
            if not isinstance(value := getattr(self, key), needed | None):
                raise TypeError(
                    f"kernel '{self.name}': {key} is a {type(value).__name__}, not a {needed.__name__}"
                )
        if self.cuda and self.takes_mixed_on_cuda:
            raise ValueError(
                f"kernel '{self.name}': its variant for GPUs says itself whether it takes half precision"
            )

        if self.cuda and self.accumulates and not self.cuda.accumulates:
            raise ValueError(
                f"kernel '{self.name}': it accumulates, so its variant for GPUs does, too"
            )

    def __call__(self, ctx: Context, *arrays: Array, **options: object) -> None:
        """Call the function with its options and more."""
        self.function(ctx, *arrays, **self.options, **options)

    def __repr__(self) -> str:
        return f"<Kernel {self.name}>"

    def bind(self, **options: object) -> Kernel:
        """The kernel with these options, besides those that it has.

        Numbers of NumPy become Python's: float64 of NumPy is wide where it meets an array of float32, a float is not.
        """
        plain = {
            key: value.item() if isinstance(value, np.generic) else value
            for key, value in options.items()
        }
        return replace(self, options={**self.options, **plain})

    @property
    def is_addition(self) -> bool:
        """Whether it computes the sum of its inputs and nothing else."""
        made = self.expression
        return made is not None and len(made.names) > 1 and made.text == " + ".join(made.names)

    @property
    def name(self) -> str:
        """Module, qualified name and options; equal from run to run."""
        return _name(self.function, self.options)

    @cached_property
    def digest(self) -> str:
        """Tells it from others of its name: of its code and that of its variant, what they close over, its options."""
        return short_digest((self.function, self.options, self.cuda)).hex()

    def from_zero(self, numbers: Sequence[int]) -> Kernel:
        """The kernel that sets the arguments of these numbers to zero before it does its work."""
        if not numbers:
            return self
        return replace(
            self,
            function=partial(_from_zero, self.function, numbers),
            together=None,
            expression=None,
            join=None,
            absorb=None,
        )

    @property
    def on_cuda(self) -> Kernel:
        """What runs on a GPU: the variant, if there is one, or itself."""
        if self.cuda:
            return self.cuda.bind(**self.options)
        return replace(self, takes_mixed=True) if self.takes_mixed_on_cuda else self

    @property
    def for_points(self) -> Callable[[Context, Points], Call] | None:
        """What makes one call of several points on a GPU, if the variant declares that."""
        make = self.cuda.together if self.cuda else None
        return partial(make, **self.options) if make else None

    def for_dtypes(
        self, arrays: Sequence[Array], is_read: Sequence[bool], is_written: Sequence[bool]
    ) -> Kernel:
        """What runs on these arrays: itself, or itself between casts of those of half size."""
        if self.takes_mixed or (self.takes_half and is_uniform(arrays)):
            return self
        function = in_float32(self.function, arrays, is_read, is_written)
        return self if function is self.function else Kernel(function, options=self.options)

    def call(self, context: Context, arrays: Sequence[Array]) -> Call:
        """The call of every step on these arrays; of a captured kernel on a CPU, what it calls.

        Raises:
            TypeError: a captured kernel calls what cannot be noted.
        """
        function = partial(self.function, **self.options) if self.options else self.function
        if self.is_captured and type(context) is Context:  # a GPU captures streams
            return note_calls(function, context, arrays)
        return partial(function, context, *arrays)


def as_kernel(where: str, kernel: Kernel | Function) -> Kernel:
    """A Kernel of a plain function.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(kernel, Kernel):
        return kernel
    if not callable(kernel):
        raise TypeError(
            f"{where}: kernel is a {type(kernel).__name__}, a function or a taskflow.Kernel is needed"
        )
    return Kernel(kernel)


def _from_zero(
    function: Function, numbers: Sequence[int], ctx: Context, *arrays: Array, **options: object
) -> None:
    for k in numbers:
        ctx.xp.copyto(arrays[k], 0)
    function(ctx, *arrays, **options)


def _name(function: Function, options: Mapping[str, object]) -> str:
    positional: tuple[object, ...] = ()
    inner: object = function
    if isinstance(inner, partial):
        function = inner.func
        positional = inner.args
        options = {**inner.keywords, **options}
    bound = positional, sorted((key, _text(value)) for key, value in options.items())
    return f"{function.__module__}.{function.__qualname__}{bound if any(bound) else ''}"


def _text(value: object) -> object:
    """A kernel or function by its name, since its text has an address of memory."""
    if isinstance(value, Kernel):
        return value.name
    return _name(value, {}) if callable(value) else value
