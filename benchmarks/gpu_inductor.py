"""What torch.compile launches in a training step of the models of `gpu`, and the bytes, counted without a GPU.

Inductor runs as far as its schedule of kernels on tensors without memory that are said to lie on an H200; what it would
write in Triton is not written. Bytes are Inductor's own count of a scheduled kernel: each array once that it reads and
once that it writes, as `gpu_launches` counts ours. The forward pass is traced under autocast for CUDA; what needs no
autocast is traced on the CPU and moved, as are the gradients, for which PyTorch wants CUDA's library. Without a GPU
nothing is tried out: products are not padded, and no kernel is chosen by its time. The fused optimizer, which is not
compiled in `gpu` either, is one kernel that reads and writes each array once.

`python benchmarks/gpu_inductor.py gpt,bfloat16` prints the kernels that move most.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from gpu_models import CASES, Case
from gpu_torch import MODULES
from torch import Tensor, fx, nn
from torch._functorch.aot_autograd import aot_export_joint_simple
from torch._guards import TracingContext, tracing
from torch._inductor import compile_fx, config
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.utils import get_fused_kernel_name
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

H200 = SimpleNamespace(
    name="NVIDIA H200",
    major=9,
    minor=0,
    multi_processor_count=132,
    total_memory=141 << 30,
    warp_size=32,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    gcnArchName="",
    shared_memory_per_block=48 << 10,
    shared_memory_per_block_optin=227 << 10,
    L2_cache_size=50 << 20,
)
PRETENDED = {  # what Inductor asks of CUDA, and of Triton, before it writes kernels
    "torch.cuda.is_available": lambda: True,
    "torch.cuda.device_count": lambda: 1,
    "torch.cuda.current_device": lambda: 0,
    "torch.cuda.get_rng_state": lambda *args: torch.zeros(16, dtype=torch.uint8),
    "torch.cuda.set_rng_state": lambda *args: None,
    "torch.cuda.synchronize": lambda *args: None,
    "torch.cuda.is_bf16_supported": lambda *args: True,
    "torch.cuda.amp.common.amp_definitely_not_available": lambda: False,
    "torch.cuda.get_device_capability": lambda *args: (H200.major, H200.minor),
    "torch.cuda.get_device_properties": lambda *args: H200,
    "torch._dynamo.device_interface.CudaInterface.get_device_properties": lambda *args: H200,
    "torch._inductor.compile_fx.get_cuda_device_context": lambda graph: nullcontext(),
    "torch._inductor.fx_passes.joint_graph.lazy_init": lambda *args: None,
    "torch._inductor.scheduler.has_triton": lambda *args: True,
    "torch.utils._triton.has_triton": lambda *args, **options: True,
    "torch.Tensor.__invert__": lambda tensor: torch.bitwise_not(
        tensor
    ),  # the plain one initialises CUDA
}
MULTIPLIES = ("mm", "bmm", "convolution")  # at the end of the name of a kernel of a library


@dataclass(frozen=True)
class Scheduled:
    """A kernel: generated, a product, or another of a library."""

    kind: str
    name: str
    bytes: int


def compiled(name: str, precision: str) -> list[Scheduled]:
    """The kernels of a step."""
    case = CASES[name]
    net = MODULES[name]()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        forward, backward = _passes(net, _batch(case), precision)
        with _pretended(), V.set_fake_mode(mode), tracing(TracingContext(mode)):
            found = [*_schedule(forward, range(len([*net.parameters()]))), *_schedule(backward, ())]
    return [*found, _optimizer(case, sum(p.numel() for p in net.parameters()))]


def _batch(case: Case) -> dict[str, Tensor]:
    feeds = {
        key: torch.from_numpy(value) for key, value in case.feeds(case.graph("float32")).items()
    }
    return {
        key: value.long() if value.dtype == torch.int32 else value for key, value in feeds.items()
    }


# -- tracing -----------------------------------------------------------------------------------------------------------


def _passes(
    net: nn.Module, batch: dict[str, Tensor], precision: str
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Forward and backward pass as Inductor parts them, for CUDA."""
    weights, feeds = dict(net.named_parameters()), dict(batch)

    def inputs(device: str) -> list[Tensor]:
        given = [*weights.values(), *feeds.values()]
        return [
            torch.empty_like(each, device=device, requires_grad=each.requires_grad)
            for each in given
        ]

    def loss(*values: Tensor) -> Tensor:
        named, fed = dict(zip(weights, values)), dict(zip(feeds, values[len(weights) :]))
        with torch.autocast("cuda", _dtype(precision), enabled=_is_half(precision)):
            result: Tensor = functional_call(net, named, (fed,))
        return result

    with torch.no_grad(), _pretended():
        traced = make_fx(loss)(*inputs("cuda" if _is_half(precision) else "cpu"))
    traced = _moved(traced, "cpu")
    table = select_decomp_table()
    joint = aot_export_joint_simple(
        lambda *v: (traced(*v),), inputs("cpu"), trace_joint=True, decompositions=table
    )
    with torch.no_grad(), config.patch(shape_padding=False):
        parts = compile_fx.partition_fn(joint, [*inputs("cpu"), torch.empty(())], num_fwd_outputs=1)
    forward, backward = (_moved(part, "cuda") for part in parts)
    return forward, backward


def _dtype(precision: str) -> torch.dtype:
    found: torch.dtype = getattr(torch, precision if _is_half(precision) else "bfloat16")
    return found


def _is_half(precision: str) -> bool:
    return precision in ("float16", "bfloat16")


def _moved(graph: fx.GraphModule, device: str) -> fx.GraphModule:
    """The graph, which from now on makes its tensors on this device."""
    for node in graph.graph.nodes:
        if node.kwargs.get("device") is not None:
            node.kwargs = {**node.kwargs, "device": torch.device(device)}
        node.args = tuple(
            torch.device(device) if isinstance(a, torch.device) else a for a in node.args
        )
    graph.recompile()
    return graph


def _attention(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    """That of a GPU, whatever device is at hand."""
    found: Tensor = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, is_causal)[0]
    return found


@contextmanager
def _pretended() -> Iterator[None]:
    """CUDA and Triton are there, as far as a schedule needs them."""
    with ExitStack() as stack:
        for name, value in PRETENDED.items():
            stack.enter_context(mock.patch(name, value))
        stack.enter_context(
            mock.patch("torch.nn.functional.scaled_dot_product_attention", _attention)
        )
        yield


# -- scheduling --------------------------------------------------------------------------------------------------------


class _Scheduled(Exception):
    """Ends a compilation as soon as kernels are scheduled."""


def _schedule(graph: fx.GraphModule, static: Sequence[int]) -> list[Scheduled]:
    """The kernels that Inductor makes of a pass, of which some inputs are always at the same place."""
    found: list[Scheduled] = []

    def codegen(lowering: Any) -> None:
        lowering.init_wrapper_code()
        lowering._update_scheduler()
        found.extend(
            each for node in lowering.scheduler.nodes if (each := _scheduled(node)) is not None
        )
        raise _Scheduled

    values = [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
    inputs = [
        torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device="cuda") for v in values
    ]
    with (
        mock.patch("torch._inductor.graph.GraphLowering.codegen", codegen),
        config.patch(fx_graph_cache=False),
    ):
        try:
            compile_fx.compile_fx_inner(
                graph, inputs, is_backward=not static, static_input_idxs=[*static]
            )
        except Exception as error:
            if not isinstance(error.__cause__, _Scheduled) and not isinstance(
                error.__context__, _Scheduled
            ):
                raise
    return found


def _scheduled(node: Any) -> Scheduled | None:
    """A node of the schedule; None: it launches nothing."""
    kind, size = type(node).__name__, node.get_read_write_buffers_sizes()
    if kind == "NopKernelSchedulerNode" or type(node.node).__name__ == "MultiOutput":
        return None
    name = getattr(node.node, "python_kernel_name", None)
    if name is None:
        return Scheduled("kernel", get_fused_kernel_name(node.get_nodes(), "original_aten"), size)
    short = name.removesuffix(".default").rpartition(".")[2]
    is_product = short.endswith(MULTIPLIES) or short.startswith("convolution")
    return Scheduled("product" if is_product else "library", short, size)


def _optimizer(case: Case, count: int) -> Scheduled:
    """The fused update of so many numbers: it reads the gradient, and reads and writes parameter and state."""
    rates = case.model.rates
    states = 2 if case.model.optimizer.startswith("adam") else int(rates.get("momentum", 0) > 0)
    return Scheduled(
        "kernel", case.model.optimizer, count * torch.float32.itemsize * (1 + 2 * (1 + states))
    )


# -- tables ------------------------------------------------------------------------------------------------------------


def summary(found: list[Scheduled]) -> str:
    """Kernels and products."""
    products = sum(each.kind == "product" for each in found)
    return f"{len(found) - products} + {products}"


def largest(found: list[Scheduled], count: int = 25) -> Iterator[str]:
    """The kernels that move most."""
    total, often = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for each in found:
        total[each.kind, each.name] += each.bytes
        often[each.kind, each.name] += 1
    for key, size in total.most_common(count):
        yield f"  {size / 1e9:8.3f} GB {often[key]:5d} x {' '.join(key)}"


def main(arguments: list[str] | None = None) -> None:
    """Print what a step moves."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "cases", nargs="*", default=["gpt,bfloat16"], help="names and precisions: gpt,bfloat16"
    )
    for case in parser.parse_args(arguments).cases:
        found = compiled(*case.split(","))
        size = sum(each.bytes for each in found)
        print(
            f"{case}: {summary(found)}, {size / 1e9:.2f} GB", *largest(found), sep="\n", flush=True
        )


if __name__ == "__main__":
    main()
