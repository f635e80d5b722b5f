"""How torch's modules, functions and methods are written with our operators.

A module's rule takes (module, name, *inputs), a call's rule takes what the function or method takes; both are found by
name. Functions of `torch`, of `torch.nn.functional`, of `operator` and methods of tensors that have one name are one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ops.attention.attention import multihead_attention, scaled_dot_product_attention
from ops.dense.convolution import conv2d
from ops.dense.convolution1d import conv1d
from ops.dense.linear import linear
from ops.dense.product import batch_matmul, einsum, matmul
from ops.elementwise import activation, arithmetic
from ops.elementwise.activation import cos, elu, exp, gelu, leaky_relu, log, relu, rsqrt, sigmoid, silu, sin, sqrt, tanh
from ops.elementwise.arithmetic import add, divide, multiply, subtract
from ops.elementwise.dropout import dropout
from ops.loss.softmax import log_softmax, softmax
from ops.norm.batch_norm import batch_norm
from ops.norm.norms import group_norm, layer_norm
from ops.recurrent.lstm import lstm
from ops.reduce import reductions
from ops.reduce.adaptive_pooling import adaptive_avg_pool2d
from ops.reduce.pooling import avg_pool2d, max_pool2d
from ops.reduce.reductions import mean
from ops.shape import sections
from ops.shape.expand import cast, squeeze, unsqueeze
from ops.shape.rearrange import concat, flatten, reshape, transpose
from ops.tables.embedding import embedding, embedding_bag
from taskflow import LogicalRegion

Rule = Callable[..., Any]
Region = LogicalRegion


class Unsupported(Exception):
    """Arguments that the operators do not cover."""


@dataclass(frozen=True)
class Missing:
    """A result that torch gives and we do not; an error where it is used."""

    what: str

    def __getitem__(self, key: object) -> Missing:
        return self


def module_rule(module: Any) -> Rule | None:
    """The rule for a module of torch.nn."""
    return MODULES.get(type(module).__name__) if type(module).__module__.startswith("torch.nn") else None


def call_rule(target: Any) -> Rule | None:
    """The rule for a function, or for a method's name."""
    return CALLS.get(target if isinstance(target, str) else getattr(target, "__name__", ""))


def _need(fact: bool, what: str) -> None:
    if not fact:
        raise Unsupported(f"{what} is not supported")


# -- modules -----------------------------------------------------------------------------------------------------------


def _convolution(function: Rule, m: Any, name: str, x: Region) -> Region:
    _need(m.padding_mode == "zeros" and not isinstance(m.padding, str), f"padding {m.padding} of {m.padding_mode}")
    sizes = (m.kernel_size, m.stride, m.padding, m.dilation)
    if len(m.kernel_size) == 1:
        sizes = tuple(size[0] for size in sizes)
    made: Region = function(x, m.out_channels, *sizes, m.groups, m.bias is not None, name=name)
    return made


def _batch_norm(m: Any, name: str, x: Region) -> Region:
    _need(m.affine and m.track_running_stats and m.momentum is not None, "batch norm without weights or statistics")
    return batch_norm(x, m.training, m.momentum, m.eps, name=name)


def _layer_norm(m: Any, name: str, x: Region) -> Region:
    is_plain = len(m.normalized_shape) == 1 and m.elementwise_affine and m.bias is not None
    _need(is_plain, "layer norm of several dimensions or without weights")
    return layer_norm(x, m.eps, name=name)


def _embedding(m: Any, name: str, indices: Region) -> Region:
    is_plain = m.padding_idx is None and m.max_norm is None and not m.scale_grad_by_freq
    _need(is_plain, "an embedding with padding_idx, max_norm or scale_grad_by_freq")
    return embedding(indices, m.num_embeddings, m.embedding_dim, name, dtype=dtype_of(m.weight))


def _embedding_bag(m: Any, name: str, indices: Region) -> Region:
    is_plain = m.mode in ("sum", "mean") and m.padding_idx is None and m.max_norm is None
    _need(is_plain and not m.scale_grad_by_freq, "an embedding bag with padding_idx, max_norm, frequencies or mode max")
    return embedding_bag(indices, m.num_embeddings, m.embedding_dim, name, mode=m.mode, dtype=dtype_of(m.weight))


def dtype_of(tensor: Any) -> str:
    """The NumPy name of a tensor's dtype."""
    return str(tensor.dtype).removeprefix("torch.")


def _max_pool(m: Any, name: str, x: Region) -> Region:
    _need(m.dilation == 1 and not m.ceil_mode and not m.return_indices, "max pooling with dilation or indices")
    return max_pool2d(x, m.kernel_size, m.stride, m.padding, name=name)


def _avg_pool(m: Any, name: str, x: Region) -> Region:
    is_plain = not m.ceil_mode and m.count_include_pad and m.divisor_override is None
    _need(is_plain, "average pooling that rounds up or counts otherwise")
    return avg_pool2d(x, m.kernel_size, m.stride, m.padding, name=name)


def _lstm(m: Any, name: str, x: Region) -> tuple[Region, Missing]:
    _need(m.batch_first and not m.bidirectional and not m.proj_size, "an LSTM without batch_first, or two-way")
    y, _ = lstm(x, m.hidden_size, m.num_layers, None, m.bias, m.dropout, m.training, name=name)
    return y, Missing("the last state of an LSTM")


def _attention(
    m: Any,
    name: str,
    query: Region,
    key: Region,
    value: Region,
    key_padding_mask: None = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Region, Missing]:
    is_plain = m.batch_first and key is value and m.in_proj_weight is not None
    _need(is_plain, "attention without batch_first, or key ≠ value")
    _need(key_padding_mask is None and (attn_mask is None or is_causal), "a mask other than a causal one")
    _need(m.bias_k is None and not m.add_zero_attn, "attention with added keys")
    memory = None if key is query else key
    has_bias = m.in_proj_bias is not None
    y = multihead_attention(query, m.num_heads, memory, is_causal, m.dropout, has_bias, m.training, name)
    return y, Missing("the weights of an attention")


MODULES: dict[str, Rule] = {
    "AdaptiveAvgPool2d": lambda m, name, x: adaptive_avg_pool2d(x, m.output_size, name=name),
    "AvgPool2d": _avg_pool,
    "BatchNorm1d": _batch_norm,
    "BatchNorm2d": _batch_norm,
    "Conv1d": lambda m, name, x: _convolution(conv1d, m, name, x),
    "Conv2d": lambda m, name, x: _convolution(conv2d, m, name, x),
    "Dropout": lambda m, name, x: dropout(x, m.p, m.training, name),
    "ELU": lambda m, name, x: elu(x, m.alpha, name),
    "Embedding": _embedding,
    "EmbeddingBag": _embedding_bag,
    "Flatten": lambda m, name, x: flatten(x, m.start_dim, m.end_dim, name),
    "GELU": lambda m, name, x: gelu(x, m.approximate, name),
    "GroupNorm": lambda m, name, x: group_norm(x, m.num_groups, m.eps, name),
    "Identity": lambda m, name, x: x,
    "LSTM": _lstm,
    "LayerNorm": _layer_norm,
    "LeakyReLU": lambda m, name, x: leaky_relu(x, m.negative_slope, name),
    "Linear": lambda m, name, x: linear(x, m.out_features, m.bias is not None, name),
    "LogSoftmax": lambda m, name, x: log_softmax(x, m.dim, name),
    "MaxPool2d": _max_pool,
    "MultiheadAttention": _attention,
    "ReLU": lambda m, name, x: relu(x, name),
    "SiLU": lambda m, name, x: silu(x, name),
    "Sigmoid": lambda m, name, x: sigmoid(x, name),
    "Softmax": lambda m, name, x: softmax(x, m.dim, name),
    "Tanh": lambda m, name, x: tanh(x, name),
}


# -- calls -------------------------------------------------------------------------------------------------------------


def _binary(function: Rule) -> Rule:
    """An operation on regions and numbers; regions of other dtypes are cast to the widest of floating point."""

    def rule(x: Any, y: Any) -> Any:
        dtypes = {r.dtype for r in (x, y) if isinstance(r, LogicalRegion)}
        if len(dtypes) > 1 and (floating := [d for d in dtypes if "float" in d]):
            wide = str(np.result_type(*floating))
            x, y = (cast(r, wide) if isinstance(r, LogicalRegion) else r for r in (x, y))
        return function(x, y)

    return rule


def _shape(x: Region, *shape: Any) -> tuple[int, ...]:
    """The sizes of view and reshape, given one by one or as one tuple."""
    return tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], tuple) else tuple(shape)


def _attribute(x: Any, name: str) -> Any:
    if isinstance(x, LogicalRegion) and name in ("device", "dtype"):  # of constants that forward makes
        import torch

        return torch.device("cpu") if name == "device" else getattr(torch, x.dtype)
    _need(name in ("shape", "ndim") and isinstance(x, LogicalRegion), f"the attribute {name}")
    return getattr(x, name)


def _item(x: Any, key: Any) -> Any:
    """A part of a tuple; of a region, slices of single steps, and whole dimensions."""
    if not isinstance(x, LogicalRegion):
        return x[key]
    for dim, part in enumerate(key if isinstance(key, tuple) else (key,)):
        _need(isinstance(part, slice) and part.step in (None, 1), f"the index {part}")
        x = sections.slice(x, dim, *part.indices(x.shape[dim])[:2])
    return x


def _exchanged(x: Region, dim0: int, dim1: int) -> Region:
    dims = list(range(x.ndim))
    dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
    return transpose(x, dims)


def _linear(x: Region, weight: Region, bias: Region | None = None) -> Region:
    lead = "abcdefgh"[: x.ndim - 1]
    y = einsum(f"{lead}i,oi->{lead}o", x, weight)
    return y if bias is None else add(y, bias)


def _attend(
    query: Region, key: Region, value: Region, attn_mask: None = None, dropout_p: float = 0.0, is_causal: bool = False
) -> Region:
    _need(attn_mask is None and query.ndim == 4, "a mask, or attention of another rank than 4")
    q, k, v = (_exchanged(each, 1, 2) for each in (query, key, value))
    return _exchanged(scaled_dot_product_attention(q, k, v, is_causal, dropout_p), 1, 2)


def _softmax(function: Rule) -> Rule:
    def rule(input: Region, dim: int, dtype: None = None, _stacklevel: int = 3) -> Any:
        _need(dtype is None, "another dtype")
        return function(input, dim)

    return rule


def _unary(function: Rule) -> Rule:
    return lambda input, inplace=False: function(input)


_UNARY = (activation.abs, cos, exp, log, relu, rsqrt, sigmoid, silu, sin, sqrt, tanh)

CALLS: dict[str, Rule] = {
    **{function.__name__: _unary(function) for function in _UNARY},
    "adaptive_avg_pool2d": lambda input, output_size: adaptive_avg_pool2d(input, output_size),
    "add": _binary(add),
    "avg_pool2d": lambda input, kernel_size, stride=None, padding=0: avg_pool2d(input, kernel_size, stride, padding),
    "bmm": batch_matmul,
    "cat": lambda tensors, dim=0: concat(tensors, dim),
    "contiguous": lambda x: x,
    "dropout": lambda input, p=0.5, training=True, inplace=False: dropout(input, p, training),
    "flatten": lambda input, start_dim=0, end_dim=-1: flatten(input, start_dim, end_dim),
    "float": lambda x: cast(x, "float32"),
    "gelu": lambda input, approximate="none": gelu(input, approximate),
    "getattr": _attribute,
    "getitem": _item,
    "linear": _linear,
    "log_softmax": _softmax(log_softmax),
    "matmul": matmul,
    "max_pool2d": lambda input, kernel_size, stride=None, padding=0: max_pool2d(input, kernel_size, stride, padding),
    "mean": lambda input, dim=None, keepdim=False: mean(input, dim, keepdim),
    "mul": _binary(multiply),
    "neg": lambda x: multiply(x, -1.0),
    "permute": lambda x, *dims: transpose(x, _shape(x, *dims)),
    "pow": _binary(arithmetic.pow),
    "reshape": lambda x, *shape: reshape(x, _shape(x, *shape)),
    "scaled_dot_product_attention": _attend,
    "size": lambda x, dim=None: x.shape if dim is None else x.shape[dim],
    "softmax": _softmax(softmax),
    "squeeze": lambda x, dim=None: squeeze(x, dim),
    "sub": _binary(subtract),
    "sum": lambda input, dim=None, keepdim=False: reductions.sum(input, dim, keepdim),
    "transpose": _exchanged,
    "truediv": _binary(divide),
    "unsqueeze": lambda x, dim: unsqueeze(x, dim),
    "view": lambda x, *shape: reshape(x, _shape(x, *shape)),
}
