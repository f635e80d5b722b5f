"""What kernels do on a GPU, without one: a backend that computes with NumPy and notes what CuPy would be asked for.

CUDA kernels are noted and not run, so numbers mean nothing. What counts as what:

* own, expression: launches of kernels of `ops/cuda`, and of kernels made from expressions;
* library: matrix products;
* passes: functions of the array module over whole arrays, each a launch or more of CuPy's;
* allocations: results without `out`, indexing with arrays, casts to new arrays;
* waits: values that the host reads; a graph ends before them.

A kernel that is compiled for CPUs refuses these arrays, as it would CuPy's.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numba.extending import typeof_impl

from taskflow import Executor, Kind, MachineModel, lower, single_device
from taskflow.backend.cuda.cublas import plan_gemm
from tests.fake_gpu.streams import FakeStreams

# Functions that give a view.
VIEWS = {
    "broadcast_to",
    "expand_dims",
    "moveaxis",
    "reshape",
    "squeeze",
    "swapaxes",
    "transpose",
    "ndim",
    "shape",
}
VIEWS |= {
    "flip",
    "result_type",
    "may_share_memory",
    "shares_memory",
    "iscomplexobj",
    "size",
    "broadcast_shapes",
}
MAKERS = (
    "arange",
    "array",
    "asarray",
    "empty",
    "full",
    "ones",
    "zeros",
    "empty_like",
    "zeros_like",
    "ones_like",
)


@dataclass
class Trace:
    """What one kernel asked for."""

    own: Counter = field(default_factory=Counter)
    expression: int = 0
    library: int = 0
    passes: Counter = field(default_factory=Counter)
    allocations: int = 0
    waits: int = 0

    def __add__(self, other):
        return Trace(
            self.own + other.own,
            self.expression + other.expression,
            self.library + other.library,
            self.passes + other.passes,
            self.allocations + other.allocations,
            self.waits + other.waits,
        )


class Recorder:
    """The trace that is being written; `None` between kernels."""

    def __init__(self):
        self.trace = None

    def note(self, name, allocates=False):
        if self.trace is not None:
            self.trace.passes[name] += 1
            self.trace.allocations += allocates

    def wait(self):
        if self.trace is not None:
            self.trace.waits += 1


def plain(value):
    """The same with NumPy's own arrays."""
    if isinstance(value, TracedArray):
        return value.view(np.ndarray)
    if isinstance(value, tuple | list):
        return type(value)(plain(v) for v in value)
    return value


class TracedArray(np.ndarray):
    """An array of the fake device, which tells its recorder what is done with it."""

    __numba_array_subtype_dispatch__ = True  # its type is asked for below

    def __array_finalize__(self, other):
        self.recorder = getattr(other, "recorder", None)

    def _wrap(self, result):
        """Scalars too: on a GPU they are arrays."""
        if isinstance(result, tuple):
            return tuple(map(self._wrap, result))
        if isinstance(result, np.ndarray | np.generic):
            result = np.asarray(result).view(TracedArray)
            result.recorder = self.recorder
        return result

    def _note(self, name, allocates=False):
        if self.recorder is not None:
            self.recorder.note(name, allocates)

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        self._recorded(inputs, out)._note(f"{ufunc.__name__}", out is None)
        if out is not None:
            options["out"] = plain(out)
        if "where" in options:
            options["where"] = plain(options["where"])
        result = getattr(ufunc, method)(*plain(inputs), **options)
        return out[0] if out is not None else self._wrap(result)

    def _recorded(self, *groups):
        """An array with a recorder."""
        arrays = [a for group in groups for a in (group or ()) if isinstance(a, TracedArray)]
        return next((a for a in arrays if a.recorder is not None), self)

    def __array_function__(self, function, types, args, options):
        name, out = function.__name__, options.get("out")
        result = function(*plain(args), **{key: plain(value) for key, value in options.items()})
        if name not in VIEWS:
            self._note(name, out is None and name != "copyto")
        return out if out is not None else self._wrap(result)

    def __getitem__(self, key):
        keys = key if isinstance(key, tuple) else (key,)
        if any(isinstance(k, np.ndarray | list) for k in keys):
            self._note("indexing", True)
        return self._wrap(self.view(np.ndarray)[plain(key)])

    def __setitem__(self, key, value):
        keys = key if isinstance(key, tuple) else (key,)
        self._note("setting", any(isinstance(k, np.ndarray) and k.dtype == bool for k in keys))
        self.view(np.ndarray)[plain(key)] = plain(value)

    def fill(self, value):
        self._note("fill")
        self.view(np.ndarray).fill(value)

    def astype(self, dtype, *args, **options):
        self._note("astype", True)
        return self._wrap(plain(self).astype(dtype, *args, **options))

    def copy(self, *args, **options):
        self._note("copy", True)
        return self._wrap(plain(self).copy(*args, **options))

    def argsort(self, *args, **options):
        self._note("argsort", True)
        return self._wrap(plain(self).argsort(*args, **options))

    def take(self, *args, **options):
        self._note("take", True)
        return self._wrap(plain(self).take(*plain(args), **options))

    def reshape(self, *shape, **options):
        found = plain(self).reshape(*shape, **options)
        if found.size and not np.may_share_memory(found, plain(self)):
            self._note("reshape", True)
        return self._wrap(found)

    def _read(self):
        if self.recorder is not None:
            self.recorder.wait()
        return plain(self)

    def __bool__(self):
        return bool(self._read())

    def __float__(self):
        return float(self._read())

    def __int__(self):
        return int(self._read())

    def __iter__(self) -> Iterator:
        return map(self._wrap, plain(self))

    def item(self, *args):
        return self._read().item(*args)

    def tolist(self):
        return self._read().tolist()


@typeof_impl.register(TracedArray)
def _refuse(array, context):
    raise TypeError("a kernel compiled for CPUs is called with an array of a GPU")


class _Arrays:
    """NumPy on traced arrays."""

    def __init__(self, recorder):
        self._recorder = recorder

    def __getattr__(self, name):
        function = getattr(np, name)
        return self._maker(name, function) if name in MAKERS else function

    def _maker(self, name, function):
        def make(value, *args, **options):
            if name == "asarray" and isinstance(value, TracedArray):
                return value
            self._recorder.note(name, True)
            return self._traced(function(plain(value), *args, **options))

        return make

    def _traced(self, array):
        found = array.view(TracedArray)
        found.recorder = self._recorder
        return found

    def matmul(self, a, b, out=None):
        if self._recorder.trace is not None:
            self._recorder.trace.library += 1
            self._recorder.trace.allocations += out is None or _is_copied(a, b, out)
        if out is None:
            return self._traced(np.matmul(plain(a), plain(b)))
        return out

    def add_product(self, a, b, out):
        self.matmul(a, b, out)

    def product(self, a, b, out, epilogue, bias=None, aux=None):
        self.matmul(a, b, out)
        return True

    def take(self, a, indices, axis=None, out=None, mode="clip"):
        """CuPy's wraps indices around: they are clipped before."""
        self._recorder.note("clip", True)
        self._recorder.note("take", out is None)
        found = np.take(plain(a), plain(indices), axis, mode="clip")
        if out is None:
            return self._traced(found)
        plain(out)[...] = found
        return out


def _is_copied(a, b, out):
    """Whether cuBLAS needs a copy of a matrix; of several matrices each may be a call of its own."""
    matrices = [x[(0,) * (x.ndim - 2)] if x.ndim > 2 and x.size else x for x in (a, b, out)]
    ways = matrices, [m.T for m in (matrices[1], matrices[0], matrices[2])]
    return all(m.ndim == 2 and m.size for m in matrices) and all(
        plan_gemm(*way) is None for way in ways
    )


class TracedStreams(FakeStreams):
    """Fake streams whose operators run what they would on a GPU, as far as NumPy goes."""

    uses_variants = True

    def __init__(self):
        super().__init__()
        self.recorder = Recorder()
        self.xp = _Arrays(self.recorder)

    def zeros(self, device, size_bytes):
        array = super().zeros(device, size_bytes).view(TracedArray)
        array.recorder = self.recorder
        return array

    def kernel(self, source, name):
        def launch(threads, block, args):
            trace = self.recorder.trace
            if trace is not None and name.startswith("generated_"):
                trace.expression += 1
            elif trace is not None:
                trace.own[name] += 1

        return launch


def traces(graph):
    """Operator -> what its kernel asks for at its second call, on one device; or the error that it raises."""
    machine = MachineModel.uniform(1).with_rates(kind="cuda")
    task_graph, backend = lower(graph, single_device(graph, machine), machine), TracedStreams()
    found = {}
    with np.errstate(all="ignore"), Executor(task_graph, backend=backend) as step:
        for item in step._streamed.issue.items:
            row = step._rows[item.row]
            if item.role == "run" and row.kind == Kind.POINT:
                backend.recorder.trace = Trace()
                item.call()
                found[step._rows.launches[int(step._rows.launch[item.row])].name] = (
                    backend.recorder.trace
                )
    backend.recorder.trace = None
    return found
