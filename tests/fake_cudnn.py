"""A module `cudnn` that computes with NumPy what it is asked for, by the names of nvidia-cudnn-frontend 1.32.

It keeps to the order of the calls, and to what cuDNN can do: half operands in attention, keys in place. Arrays of the
host are found by their addresses.
"""

import ctypes
from math import prod
from types import SimpleNamespace

import numpy as np

from tests.shim import ShimStreams

ORDER = (
    "validate",
    "build_operation_graph",
    "create_execution_plans",
    "deselect_numeric_notes",
    "deselect_workspace_greater_than",
    "check_support",
    "build_plans",
    "get_workspace_size",
)
WORKSPACE = 1000


class MisuseError(BaseException):
    """Not an exception that means a refusal."""


def check(is_right, what=""):
    if not is_right:
        raise MisuseError(what)


class cudnnGraphNotSupportedError(RuntimeError):
    pass


class Tensor:
    def __init__(self, value, dim=None, stride=None, data_type=None, uid=None):
        self.value, self.dim, self.stride, self.data_type, self.uid = (
            value,
            dim,
            stride,
            data_type,
            uid,
        )
        self.is_output = False

    def _set(self, **fields):
        self.__dict__.update(fields)
        return self

    def set_output(self, value):
        return self._set(is_output=value)

    def set_data_type(self, value):
        return self._set(data_type=value)

    def set_dim(self, value):
        return self._set(dim=value)

    def set_stride(self, value):
        return self._set(stride=value)

    def set_uid(self, value):
        return self._set(uid=value)

    def array(self, address):
        """The memory that it stands for."""
        check(address % 16 == 0)
        dtype = np.dtype(self.data_type)
        reach = 1 + sum((n - 1) * s for n, s in zip(self.dim, self.stride)) if prod(self.dim) else 0
        memory = np.frombuffer(
            (ctypes.c_char * (reach * dtype.itemsize)).from_address(address), dtype
        )
        return np.lib.stride_tricks.as_strided(
            memory, self.dim, [s * dtype.itemsize for s in self.stride]
        )


class Graph:
    """`pygraph`: what is asked for becomes functions of the arrays by number."""

    def __init__(self, library, io_data_type, intermediate_data_type, compute_data_type, handle):
        check(
            intermediate_data_type == compute_data_type == library.data_type.FLOAT
            and handle in library.streams
        )
        self.library, self.tensors, self.calls, self.kind = library, [], [], ""
        self.type = io_data_type

    def tensor(self, dim, stride, data_type, uid, name):
        check(all(s > 0 for s in stride) and len(dim) == len(stride))
        self.tensors.append(Tensor(lambda given: given[uid], dim, stride, data_type, uid))
        return self.tensors[-1]

    def _made(self, kind, count, value):
        self.kind = kind
        made = [Tensor(lambda given, k=k: value(given)[k]) for k in range(count)]
        self.tensors += made
        return made if count > 1 else made[0]

    def conv_fprop(self, image, weight, pre_padding, post_padding, stride, dilation):
        windows = pre_padding, post_padding, stride, dilation
        self._check_images(image)
        return self._made(
            "conv", 1, lambda given: [convolve(image.value(given), weight.value(given), *windows)]
        )

    def bias(self, input, bias):
        self.tensors.remove(input)
        return self._made("conv bias", 1, lambda given: [input.value(given) + bias.value(given)])

    def conv_dgrad(self, loss, filter, pre_padding, post_padding, stride, dilation):
        windows, made = (pre_padding, post_padding, stride, dilation), []
        self._check_images(loss)

        def value(given):
            return [spread(loss.value(given), filter.value(given), made[0].dim, *windows)]

        made.append(self._made("dgrad", 1, value))
        return made[0]

    def conv_wgrad(self, image, loss, pre_padding, post_padding, stride, dilation):
        windows, made = (pre_padding, post_padding, stride, dilation), []
        self._check_images(image)

        def value(given):
            return [gather(loss.value(given), image.value(given), made[0].dim, *windows)]

        made.append(self._made("wgrad", 1, value))
        return made[0]

    def sdpa(self, q, k, v, attn_scale, generate_stats, **mask):
        check(generate_stats is True)
        return self._made(
            "sdpa",
            2,
            lambda given: attend(*(x.value(given) for x in (q, k, v)), attn_scale, **mask),
        )

    def sdpa_backward(self, q, k, v, o, dO, stats, attn_scale, use_deterministic_algorithm, **mask):
        check(use_deterministic_algorithm is True)
        inputs = q, k, v, o, dO, stats
        return self._made(
            "sdpa", 3, lambda given: slopes(*(x.value(given) for x in inputs), attn_scale, **mask)
        )

    @staticmethod
    def _check_images(tensor):
        check(tensor.stride[1] == 1, "channels lie last")

    def __getattr__(self, name):
        if name not in ORDER:
            raise AttributeError(name)
        return lambda *args: self._call(name, *args)

    def _call(self, name, *args):
        check(name == ORDER[len(self.calls)], f"{name} after {self.calls}")
        self.calls.append(name)
        if name == "deselect_numeric_notes":
            self.notes = args[0]
        if name == "check_support":
            is_wide = self.kind == "sdpa" and self.type == "float32"
            if is_wide or any(word == self.kind for word in self.library.refused):
                raise self.library.cudnnGraphNotSupportedError("no engine\nand more lines")
            self.library.plans.append(self)
        return WORKSPACE if name == "get_workspace_size" else None

    def execute(self, pack, workspace, handle):
        check(tuple(self.calls) == ORDER and all(type(x) is int for x in pack.values()))
        check(workspace and handle in self.library.streams)
        ctypes.memset(workspace, 0xA5, WORKSPACE)  # it is ours
        self.library.executed.append((self.kind, self.library.streams[handle]))
        arrays = {t.uid: t.array(pack[t.uid]) for t in self.tensors if t.uid}
        given = {uid: wide(a) for uid, a in arrays.items()}
        for tensor in [t for t in self.tensors if t.is_output]:
            value = tensor.value(given)
            check(list(value.shape) == list(tensor.dim))
            arrays[tensor.uid][...] = value


def wide(array):
    return array.astype(np.float64) if array.dtype == np.float64 else array.astype(np.float32)


class Library(SimpleNamespace):
    """The module; `refused` are kinds of graphs that no engine takes."""

    def __init__(self, refused=()):
        super().__init__(refused=refused, streams={}, plans=[], executed=[])
        self.cudnnGraphNotSupportedError = cudnnGraphNotSupportedError
        self.data_type = SimpleNamespace(FLOAT="float32", HALF="float16", BFLOAT16="bfloat16")
        self.heur_mode = SimpleNamespace(A="A", FALLBACK="FALLBACK")
        names = [
            "TENSOR_CORE",
            "DOWN_CONVERT_INPUTS",
            "NONDETERMINISTIC",
            "REDUCED_PRECISION_REDUCTION",
        ]
        self.numerical_note = SimpleNamespace(**{n: n for n in names})
        self.diagonal_alignment = SimpleNamespace(TOP_LEFT="TOP_LEFT", BOTTOM_RIGHT="BOTTOM_RIGHT")

    def create_handle(self):
        handle = f"handle {len(self.streams)}"
        self.streams[handle] = None
        return handle

    def set_stream(self, handle, stream):
        self.streams[handle] = stream

    def pygraph(self, **options):
        return Graph(self, **options)


class CudnnStreams(ShimStreams):
    """Fake streams with CUDA kernels as C++ and this cuDNN; `refused` as of `Library`."""

    def __init__(self, *args, refused=(), **options):
        from taskflow.backend.cuda.cudnn import Cudnn

        super().__init__(*args, **options)
        self.cudnn = Library(refused)
        self._plans = Cudnn(self.cudnn, lambda a: a.ctypes.data)

    def find_plan(self, operation, inputs, outputs, options):
        return self._plans.plan(7, operation, inputs, outputs, options) if self.uses_cudnn else None


# -- what the operations are -------------------------------------------------------------------------------------------


def padded(image, before, after):
    return np.pad(image, ((0, 0), (0, 0), *zip(before, after)))


def views(image, weight_shape, before, after, stride, dilation):
    """Of every place in a window: where it is, and the points that it has in all windows, of a padded image."""
    _, _, *sizes = weight_shape
    height, width = (
        (n + b + a - (k - 1) * d - 1) // s + 1
        for n, b, a, k, s, d in zip(image.shape[2:], before, after, sizes, stride, dilation)
    )
    whole = padded(image, before, after)
    for i in range(sizes[0]):
        for j in range(sizes[1]):
            top, left = i * dilation[0], j * dilation[1]
            rows = slice(top, top + (height - 1) * stride[0] + 1, stride[0])
            yield (
                i,
                j,
                whole,
                (..., rows, slice(left, left + (width - 1) * stride[1] + 1, stride[1])),
            )


def grouped(a, groups, dim):
    return a.reshape(*a.shape[:dim], groups, a.shape[dim] // groups, *a.shape[dim + 1 :])


def convolve(image, weight, *windows):
    groups = image.shape[1] // weight.shape[1]
    y = 0
    for i, j, whole, where in views(image, weight.shape, *windows):
        y = y + np.einsum(
            "ngchw,goc->ngohw",
            grouped(whole[where], groups, 1),
            grouped(weight[:, :, i, j], groups, 0),
        )
    return y.reshape(y.shape[0], -1, *y.shape[3:])


def spread(loss, weight, shape, *windows):
    groups = shape[1] // weight.shape[1]
    before, after = windows[:2]
    total = np.zeros(
        [*shape[:2], *(n + b + a for n, b, a in zip(shape[2:], before, after))], loss.dtype
    )
    for i, j, _, where in views(np.zeros(shape, loss.dtype), weight.shape, *windows):
        part = np.einsum(
            "ngohw,goc->ngchw", grouped(loss, groups, 1), grouped(weight[:, :, i, j], groups, 0)
        )
        total[where] += part.reshape(part.shape[0], -1, *part.shape[3:])
    return total[:, :, before[0] : before[0] + shape[2], before[1] : before[1] + shape[3]]


def gather(loss, image, shape, *windows):
    groups = image.shape[1] // shape[1]
    total = np.zeros(shape, loss.dtype)
    for i, j, whole, where in views(image, shape, *windows):
        part = np.einsum(
            "ngohw,ngchw->goc", grouped(loss, groups, 1), grouped(whole[where], groups, 1)
        )
        total[:, :, i, j] = part.reshape(-1, shape[1])
    return total


def scores_of(q, k, scale, diagonal_alignment=None, diagonal_band_right_bound=None):
    scores = np.einsum("bhsd,bhtd->bhst", q, k) * scale
    if diagonal_alignment is None:
        return scores
    check(diagonal_band_right_bound == 0)
    queries, keys = scores.shape[2:]
    check(keys >= queries or diagonal_alignment == "TOP_LEFT")
    behind = keys - queries if diagonal_alignment == "BOTTOM_RIGHT" else 0
    return np.where(np.arange(keys) > np.arange(queries)[:, None] + behind, -np.inf, scores)


def attend(q, k, v, scale, **mask):
    scores = scores_of(q, k, scale, **mask)
    most = scores.max(axis=3, keepdims=True)
    total = np.exp(scores - most).sum(axis=3, keepdims=True)
    return np.einsum("bhst,bhte->bhse", np.exp(scores - most) / total, v), most + np.log(total)


def slopes(q, k, v, y, g, statistics, scale, **mask):
    weights = np.exp(scores_of(q, k, scale, **mask) - statistics)
    inner = np.einsum("bhse,bhte->bhst", g, v) - (g * y).sum(axis=3, keepdims=True)
    inner = weights * inner * scale
    gradients = np.einsum("bhst,bhtd->bhsd", inner, k), np.einsum("bhst,bhsd->bhtd", inner, q)
    return *gradients, np.einsum("bhst,bhse->bhte", weights, g)
