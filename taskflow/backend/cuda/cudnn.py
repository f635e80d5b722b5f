"""Convolution and attention by cuDNN, through the graphs of nvidia-cudnn-frontend (>= 1.32), where that is installed.

A plan is made once for an operation, its options and the layouts of its arrays, before anything is captured. It tells
how much workspace it takes, which whoever runs it brings along; to run it neither allocates nor waits. A handle belongs
to a stream and is made with it: to set the stream of a handle costs microseconds. What cuDNN refuses is remembered,
with a line in the log, and is left to others.

Only algorithms that give the same bits in every run are taken, and float32 stays float32 unless TF32 is asked for.
Sources: docs/operations of github.com/NVIDIA/cudnn-frontend, and the signatures of its module (1.32.0).

Tests run it on a stand-in that computes with NumPy, and give every graph to the frontend's own
validation, which needs no GPU.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from taskflow.backend.context import Array
from taskflow.core.numbers import MIB

_ALIGNMENT = 16  # bytes, of every pointer: the frontend tells cuDNN so
_MOST_WORKSPACE = 512 * MIB
_TYPES = {"float16": "HALF", "bfloat16": "BFLOAT16", "float32": "FLOAT"}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TensorLayout:
    """What a plan knows of an array; strides in elements, at least 1."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    @staticmethod
    def of(array: Array) -> TensorLayout:
        """That of an array."""
        return TensorLayout(
            array.shape, tuple(s // array.itemsize or 1 for s in array.strides), array.dtype.name
        )


@dataclass(frozen=True)
class CudnnRequest:
    """An operation of OPERATIONS with its options, and the layouts of its arrays."""

    operation: str
    inputs: tuple[TensorLayout, ...]
    outputs: tuple[TensorLayout, ...]
    options: tuple[tuple[str, Any], ...]
    uses_tf32: bool
    is_aligned: bool


@dataclass(frozen=True)
class CudnnPlan:
    """What `Cudnn.plan` gives: `launch(workspace)` has the stream do it, with so many bytes at that address."""

    request: CudnnRequest
    workspace_bytes: int
    launch: Callable[[int], None]


class Cudnn:
    """Plans of one device, and a handle for each of its streams; `release` it when a stream ends.

    Args:
        library: the module `cudnn`, or a stand-in.
        pointer: gives the address of an array.
    """

    def __init__(self, library: ModuleType, pointer: Callable[[Array], int]) -> None:
        self._library = library
        self._pointer = pointer
        self._handles: dict[int, Any] = {}
        self._graphs: dict[CudnnRequest, tuple[Any, int] | None] = {}

    def plan(
        self,
        stream: int,
        operation: str,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        options: Mapping[str, Any],
        uses_tf32: bool = False,
        may_plan: bool = True,
    ) -> CudnnPlan | None:
        """What does an operation on a stream, None where cuDNN refuses.

        Args:
            stream: its pointer.
            operation: a key of OPERATIONS, which say what `inputs`, `outputs` and `options` are.
            uses_tf32: see `StreamBackend`.
            may_plan: False while a graph is captured.

        Raises:
            RuntimeError: it is not planned yet, and may not be now.
        """
        addresses = [self._pointer(a) for a in (*inputs, *outputs)]
        request = CudnnRequest(
            operation,
            tuple(map(TensorLayout.of, inputs)),
            tuple(map(TensorLayout.of, outputs)),
            tuple(sorted(options.items())),
            uses_tf32,
            not any(address % _ALIGNMENT for address in addresses),
        )
        if request not in self._graphs:
            if not may_plan:
                raise RuntimeError(f"cuDNN plans {operation}")
            self._graphs[request] = self._try(request, self._handle(stream))
        planned = self._graphs[request]
        if planned is None:
            return None
        graph, workspace_bytes = planned
        pack, handle = dict(enumerate(addresses, 1)), self._handle(stream)
        return CudnnPlan(
            request,
            workspace_bytes,
            lambda workspace: graph.execute(pack, workspace, handle=handle),
        )

    def release(self, stream: int) -> None:
        """Destroy the handle of a stream, if there is one."""
        if stream in self._handles:
            self._library.destroy_handle(self._handles.pop(stream))

    def _handle(self, stream: int) -> Any:
        if stream not in self._handles:
            handle = self._library.create_handle()
            self._library.set_stream(handle=handle, stream=stream)
            self._handles[stream] = handle
        return self._handles[stream]

    def _try(self, request: CudnnRequest, handle: Any) -> tuple[Any, int] | None:
        try:
            return self._make(request, handle)
        except (
            Exception
        ) as error:  # whatever a library raises that cannot make a plan, there is another way
            reason = (str(error).splitlines() or [""])[0]
            shapes = " ".join(
                f"{x.dtype}{list(x.shape)}" for x in (*request.inputs, *request.outputs)
            )
            _log.warning(
                "cuDNN refuses %s of %s: %s: %s",
                request.operation,
                shapes,
                type(error).__name__,
                reason,
            )
            return None

    def _make(self, request: CudnnRequest, handle: Any) -> tuple[Any, int]:
        """The graph with its plan, and the bytes of workspace."""
        library = self._library
        graph = describe(library, request, handle=handle)
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([library.heur_mode.A, library.heur_mode.FALLBACK])
        notes = (
            library.numerical_note
        )  # of algorithms whose results change, or have fewer digits than their operands
        refused = [notes.NONDETERMINISTIC, notes.REDUCED_PRECISION_REDUCTION]
        if request.inputs[0].dtype == "float32" and not request.uses_tf32:
            refused += [notes.TENSOR_CORE, notes.DOWN_CONVERT_INPUTS]
        graph.deselect_numeric_notes(refused)
        graph.deselect_workspace_greater_than(_MOST_WORKSPACE)
        graph.check_support()
        graph.build_plans()
        return graph, int(graph.get_workspace_size())


def find_cudnn(pointer: Callable[[Array], int]) -> Cudnn | None:
    """Plans of the current device; None where the extra `cudnn` is not installed, or does not load."""
    if find_spec("cudnn") is None:
        return None
    try:
        import cudnn

        cudnn.destroy_handle(cudnn.create_handle())
    except (ImportError, OSError, RuntimeError) as error:
        _log.warning("cuDNN does not load: %s", error)
        return None
    return Cudnn(cudnn, pointer)


def describe(library: ModuleType, request: CudnnRequest, **settings: Any) -> Any:
    """The graph of a request: inputs and then outputs are numbered from 1.

    Raises:
        ValueError: cuDNN has no such type, or an array is not aligned.
    """
    if not request.is_aligned:
        raise ValueError(f"an array does not begin at a multiple of {_ALIGNMENT} bytes")
    types = _types(library, (*request.inputs, *request.outputs))
    graph = library.pygraph(
        io_data_type=types[request.inputs[0]],
        intermediate_data_type=library.data_type.FLOAT,
        compute_data_type=library.data_type.FLOAT,
        **settings,
    )
    given = [
        graph.tensor(
            dim=list(x.shape),
            stride=list(x.strides),
            data_type=types[x],
            uid=uid,
            name=f"input{uid}",
        )
        for uid, x in enumerate(request.inputs, 1)
    ]
    made = OPERATIONS[request.operation](library, graph, given, **dict(request.options))
    for uid, (tensor, x) in enumerate(zip(made, request.outputs, strict=True), 1 + len(given)):
        tensor.set_output(True).set_data_type(types[x]).set_dim(list(x.shape)).set_stride(
            list(x.strides)
        ).set_uid(uid)
    return graph


def _types(library: ModuleType, layouts: Sequence[TensorLayout]) -> dict[TensorLayout, Any]:
    for layout in layouts:
        if layout.dtype not in _TYPES:
            raise ValueError(f"there is no plan for {layout.dtype}")
    return {layout: getattr(library.data_type, _TYPES[layout.dtype]) for layout in layouts}


# -- operations --------------------------------------------------------------------------------------------------------
#
# Images are (images, channels, height, width), weights (out channels, channels of a group, height, width), in any
# memory order; `before` and `after` are the zeros around an image. Heads are (batch, heads, points, features), the
# statistics (batch, heads, points, 1) in float32: the logarithm of the sum of exponentials of the scores of a query.


def _convolution(
    library: ModuleType, graph: Any, given: Sequence[Any], **windows: Any
) -> list[Any]:
    """Image, weight and perhaps a bias (1, out channels, 1, 1) to image."""
    image, weight, *bias = given
    y = graph.conv_fprop(image=image, weight=weight, **_windows(**windows))
    return [graph.bias(input=y, bias=bias[0]) if bias else y]


def _convolution_gradient_x(
    library: ModuleType, graph: Any, given: Sequence[Any], **windows: Any
) -> list[Any]:
    """Gradient of the result, and weight, to that of the image."""
    loss, weight = given
    return [graph.conv_dgrad(loss=loss, filter=weight, **_windows(**windows))]


def _convolution_gradient_weight(
    library: ModuleType, graph: Any, given: Sequence[Any], **windows: Any
) -> list[Any]:
    """Gradient of the result, and image, to that of the weight."""
    loss, image = given
    return [graph.conv_wgrad(image=image, loss=loss, **_windows(**windows))]


def _windows(
    before: Sequence[int], after: Sequence[int], **others: Sequence[int]
) -> dict[str, list[int]]:
    """The stride and the dilation have the frontend's names already."""
    return {
        name: list(n)
        for name, n in {"pre_padding": before, "post_padding": after, **others}.items()
    }


def _attention(
    library: ModuleType, graph: Any, given: Sequence[Any], *, scale: float, mask: str
) -> list[Any]:
    """Queries, keys and values to result and statistics."""
    q, k, v = given
    return list(
        graph.sdpa(q=q, k=k, v=v, attn_scale=scale, generate_stats=True, **_mask(library, mask))
    )


def _attention_gradient(
    library: ModuleType, graph: Any, given: Sequence[Any], *, scale: float, mask: str
) -> list[Any]:
    """Gradient of the result, result, statistics, queries, keys and values to the gradients of the last three."""
    operands = dict(zip(("dO", "o", "stats", "q", "k", "v"), given, strict=True))
    settings = {"attn_scale": scale, "use_deterministic_algorithm": True, **_mask(library, mask)}
    return list(graph.sdpa_backward(**operands, **settings))


def _mask(library: ModuleType, mask: str) -> dict[str, Any]:
    """What a query sees: "" all keys; "first" the keys up to its number; "last" those that are left if the last query
    sees all of them, and each one before it one less.
    """
    if not mask:
        return {}
    alignments = {
        "first": library.diagonal_alignment.TOP_LEFT,
        "last": library.diagonal_alignment.BOTTOM_RIGHT,
    }
    return {"diagonal_alignment": alignments[mask], "diagonal_band_right_bound": 0}


OPERATIONS: Mapping[str, Callable[..., Sequence[Any]]] = {
    "convolution": _convolution,
    "convolution_gradient_x": _convolution_gradient_x,
    "convolution_gradient_weight": _convolution_gradient_weight,
    "attention": _attention,
    "attention_gradient": _attention_gradient,
}
