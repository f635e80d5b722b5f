"""Recurrent layers and attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import isclose, sqrt
from typing import Any

from ops.attention.attention import scaled_dot_product_attention
from ops.dense.product import contract
from ops.elementwise.arithmetic import add, equal, where
from ops.elementwise.dropout import dropout
from ops.loss.softmax import softmax
from ops.recurrent.gru import gru, rnn
from ops.recurrent.lstm import lstm
from ops.reduce import extremes
from ops.shape.expand import cast, detach, expand, unsqueeze
from ops.shape.padding import flip
from ops.shape.rearrange import concat, reshape
from ops.shape.sections import slice
from ops.torch.aten.shapes import exchanged
from ops.torch.refusals import need
from ops.torch.site import Site, Weight
from taskflow import LogicalRegion

Rule = Callable[..., Any]
Region = LogicalRegion
_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
_LAYERS: dict[str, Callable[..., Any]] = {
    "lstm": lstm,
    "gru": gru,
    "rnn_tanh": partial(rnn, nonlinearity="tanh"),
    "rnn_relu": partial(rnn, nonlinearity="relu"),
}


# -- recurrent layers --------------------------------------------------------------------------------------------------


def _recurrent(kind: str) -> Rule:
    """y, and the last states of all layers and directions."""

    def rule(
        site: Site,
        x: Any,
        state: Any,
        params: Sequence[Any],
        bias: bool,
        layers: int,
        p: float,
        training: bool,
        is_both_ways: bool,
        batch_first: bool,
    ) -> tuple[Any, ...]:
        x = site.region(x)
        need(x.ndim == 3, "a recurrent layer on sequences without a batch")
        y = x if batch_first else exchanged(site, x, 0, 1)
        per_way = 4 if bias else 2
        ways = 2 if is_both_ways else 1
        need(len(params) == per_way * ways * layers, "a recurrent layer with projections")
        last: list[list[Region]] = []
        for layer in range(layers):
            y = dropout(
                y, p, layer > 0 and training and site.book.is_dropping, f"{site.name}.l{layer}.drop"
            )
            ends = []
            for way in range(ways):
                k = layer * ways + way
                weights = params[k * per_way : (k + 1) * per_way]
                first = [_first_state(site, s, k) for s in (state if kind == "lstm" else (state,))]
                made, final = _way(site, kind, y, weights, first, is_backwards=way == 1)
                ends.append(made)
                last.append(final)
            y = ends[0] if ways == 1 else concat(ends, 2, f"{site.name}.l{layer}.both")
        joined = [
            parts[0] if len(parts) == 1 else concat(list(parts), 0)
            for parts in zip(*last, strict=True)
        ]
        return (y if batch_first else exchanged(site, y, 0, 1), *joined)

    return rule


def _way(
    site: Site,
    kind: str,
    x: Region,
    weights: Sequence[Any],
    first: Sequence[Region | None],
    is_backwards: bool,
) -> tuple[Region, list[Region]]:
    """One layer in one direction: its results, and its last states as torch has them."""
    y, last = _layer(site, kind, flip(x, 1) if is_backwards else x, weights, first)
    return flip(y, 1) if is_backwards else y, [exchanged(site, s, 0, 1) for s in last]


def _layer(
    site: Site, kind: str, x: Region, params: Sequence[Any], first: Sequence[Region | None]
) -> tuple[Region, Sequence[Region]]:
    """One layer in one direction: its results, (batch, steps, hidden), and its last states, (batch, 1, hidden)."""
    weights = _by_gate(site, kind, params)
    initial: Any = [tuple(first) if kind == "lstm" else first[0]]
    y, (last,) = site.build(
        lambda name: _LAYERS[kind](
            x,
            params[0].shape[0] // _GATES[kind],
            1,
            None if any(state is None for state in first) else initial,
            len(params) == 4,
            name=name,
        ),
        weights,
        weights["l0.weight_ih"].name.removesuffix(".weight_ih"),
    )
    return y, last if kind == "lstm" else [last]


def _by_gate(site: Site, kind: str, params: Sequence[Any]) -> dict[str, Region]:
    """The parameters of a layer in one direction, by the names that a builder gives them."""
    weights = {}
    for key, value in zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), params):
        shape = (_GATES[kind], params[0].shape[0] // _GATES[kind], *value.shape[1:])
        need(isinstance(value, Weight), "a recurrent layer whose weights are computed")
        weights[f"l0.{key}"] = site.weight(value, "gates", shape)
    return weights


def _first_state(site: Site, state: Any, k: int) -> Region | None:
    """That of a layer and direction, (batch, 1, hidden); None where all are zero."""
    import torch

    if isinstance(state, torch.Tensor) and not state.any():
        return None
    return exchanged(site, slice(site.region(state), 0, k, k + 1), 0, 1)


# -- attention ---------------------------------------------------------------------------------------------------------


def _attend(
    site: Site,
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Region:
    """Heads and positions change places twice; most of these turns meet others, and none is left."""
    import torch

    q, k, v = (site.region(tensor) for tensor in (q, k, v))
    lead = q.shape[:-2]
    if q.ndim != 4:
        mask = mask if mask is None else _mask_of_four(mask, (*q.shape[:-1], k.shape[-2]))
        q, k, v = (reshape(x, (-1, 1, *x.shape[-2:])) for x in (q, k, v))
    if enable_gqa and k.shape[1] != q.shape[1]:
        k, v = (_repeated_heads(x, q.shape[1]) for x in (k, v))
    if (
        isinstance(mask, torch.Tensor)
        and not is_causal
        and _is_causal(mask, q.shape[-2], k.shape[-2])
    ):
        mask = None
        is_causal = True
    p = p if site.book.is_dropping else 0.0
    d = q.shape[-1]
    is_usual = scale is None or isclose(scale, 1 / sqrt(d), rel_tol=1e-9)
    if (
        mask is None
        and d == v.shape[-1]
        and is_usual
        and not (is_causal and q.shape[-2] > k.shape[-2])
    ):
        q, k, v = (exchanged(site, x, 1, 2) for x in (q, k, v))
        y = exchanged(
            site, scaled_dot_product_attention(q, k, v, is_causal, p, name=site.name), 1, 2
        )
    else:
        past = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril() if is_causal else None
        masks = [m for m in (mask, past) if m is not None]
        y = _masked(site, q, k, v, masks, p, 1 / sqrt(d) if scale is None else scale)
    return y if q.ndim == 4 and len(lead) == 2 else reshape(y, (*lead, *y.shape[-2:]))


def _mask_of_four(mask: Any, scores: Sequence[int]) -> Any:
    """A mask for scores whose leading dimensions are made one; one for all of them stays as it is."""
    if mask.ndim <= 2:
        return mask
    shape = (-1, 1, *scores[-2:])
    return (
        reshape(expand(mask, tuple(scores)), shape)
        if isinstance(mask, Region)
        else mask.expand(*scores).reshape(shape)
    )


def _masked(
    site: Site,
    q: Region,
    k: Region,
    v: Region,
    masks: Sequence[Any],
    p: float,
    scale: float,
) -> Region:
    """A query that sees nothing gets zeros."""
    name = site.book.graph.unique_name(site.name)
    weights = _weights(
        site,
        contract(name, "b k q d, b k t d -> b k q t", q, k, scale),
        name,
        masks,
        p,
    )
    with site.book.graph.following(name):
        return contract(f"{name}.sum", "b k q t, b k t d -> b k q d", weights, v)


def _weights(site: Site, scores: Region, name: str, masks: Sequence[Any], p: float) -> Region:
    """The softmax of masked scores, with dropout."""
    blind = None
    for mask in masks:
        region = site.region(mask)
        if region.dtype == "bool":
            scores = where(region, scores, float("-inf"), f"{name}.mask")
        else:
            scores = add(scores, cast(region, scores.dtype), f"{name}.mask")
    if len(masks) > 1 or any(map(_may_hide_all, masks)):
        blind = equal(
            extremes.max(detach(scores), -1, True, f"{name}.best"), float("-inf"), f"{name}.blind"
        )
    scores = scores if blind is None else where(blind, 0.0, scores, f"{name}.seen")
    with site.book.graph.following(name):
        weights = dropout(softmax(scores, name=f"{name}.softmax"), p, True, f"{name}.drop")
        return weights if blind is None else where(blind, 0.0, weights, f"{name}.weights")


def _may_hide_all(mask: Any) -> bool:
    """Whether a query may see nothing: a mask that is computed says so only in a step."""
    import torch

    if not isinstance(mask, torch.Tensor):
        return True
    return bool((~mask if mask.dtype == torch.bool else mask == float("-inf")).all(-1).any())


def _repeated_heads(x: Region, heads: int) -> Region:
    b, kv_heads, s, d = x.shape
    return reshape(
        expand(unsqueeze(x, 2), (b, kv_heads, heads // kv_heads, s, d)), (b, heads, s, d)
    )


def _is_causal(mask: Any, queries: int, keys: int) -> bool:
    """Whether a mask lets every query see just the keys up to itself."""
    import torch

    if mask.shape[-2:] != (queries, keys) or queries != keys:
        return False
    seen = mask if mask.dtype == torch.bool else mask == 0
    is_hidden = ~mask if mask.dtype == torch.bool else mask == float("-inf")
    past = torch.ones(queries, keys, dtype=torch.bool).tril()
    return bool((seen == past).all() and (is_hidden == ~past).all())


RAW: dict[str, Rule] = {
    **{kind: _recurrent(kind) for kind in _GATES},
    "scaled_dot_product_attention": _attend,
}
