"""Weights of torch under the names and shapes that the operators give them.

Most are the same already. Not so: the gates of an LSTM or GRU are a dimension of their own here, and its layers have
names; the projections of attention are apart. No torch is needed: anything that NumPy makes an array of will do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from taskflow import Array

Named = Iterator[tuple[str, Array]]


def from_torch_state(state: Mapping[str, Any]) -> dict[str, Array]:
    """A `state_dict()` as region name -> array, to be given to `Executor.write` one by one.

    `x.weight_ih_l0` of an LSTM (4 hidden, input) is `x.l0.weight_ih` (4, hidden, input), likewise `weight_hh`,
    `bias_ih`, `bias_hh`, other layers, and the three gates of a GRU. `x.in_proj_weight` of a MultiheadAttention is
    `x.q.weight`, `x.k.weight` and `x.v.weight`, likewise the bias; `x.out_proj` is `x.out`. Counters
    (`num_batches_tracked`) are left out.

    Args:
        state: name -> tensor or array. Recurrent layers have no projections; the second direction of layer 0 is
            `x.l0_reverse`.

    Raises:
        ValueError: a weight that falls into parts does not divide into them.
    """
    return parts_of(
        {name: value for name, value in state.items() if not name.endswith("num_batches_tracked")}
    )


def parts_of(state: Mapping[str, Any]) -> dict[str, Array]:
    """As `from_torch_state`, with counters: a graph that `from_torch` makes has them."""
    arrays = {name: np.asarray(value) for name, value in state.items()}
    parts: dict[str, Array] = {}
    for name in arrays:
        rule, match = next(
            (rule, m) for pattern, rule in _RULES if (m := re.fullmatch(pattern, name))
        )
        parts.update(rule(match, arrays))
    return parts


def _gates(match: re.Match[str], arrays: Mapping[str, Array]) -> Named:
    prefix, kind, layer = match.groups()
    rows, hidden = arrays[f"{prefix}weight_hh_l{layer}"].shape
    yield f"{prefix}l{layer}.{kind}", _parts(match[0], arrays[match[0]], rows // hidden)


def _projections(match: re.Match[str], arrays: Mapping[str, Array]) -> Named:
    prefix, kind = match.groups()
    parts = _parts(match[0], arrays[match[0]], 3)
    yield from ((f"{prefix}{part}.{kind}", a) for part, a in zip("qkv", parts, strict=True))


def _same(match: re.Match[str], arrays: Mapping[str, Array]) -> Named:
    yield region_name(match[0]), arrays[match[0]]


def _parts(name: str, value: Array, count: int) -> Array:
    """Dimension 0 as `count` equal parts one after the other."""
    if value.ndim == 0 or value.shape[0] % count:
        raise ValueError(
            f"from_torch_state: '{name}' is {value.shape}, dimension 0 has no {count} equal parts"
        )
    return value.reshape(count, -1, *value.shape[1:])


def region_name(name: str, form: str = "whole") -> str:
    """The region of a weight, or of a part of it: its "gates", or "q", "k" or "v" of the projections of attention.

    Raises:
        ValueError: a weight of this name has no such parts.
    """
    if form == "whole":
        return name.replace("out_proj.", "out.")
    match = re.fullmatch(_GATES if form == "gates" else _PROJECTIONS, name)
    if match is None:
        raise ValueError(f"'{name}' is not called as the weights of torch's layers are")
    prefix, *rest = match.groups()
    return f"{prefix}l{rest[1]}.{rest[0]}" if form == "gates" else f"{prefix}{form}.{rest[0]}"


_GATES = r"(.*\.|)((?:weight|bias)_[ih]h)_l(\d+(?:_reverse)?)"
_PROJECTIONS = r"(.*\.|)in_proj_(weight|bias)"
_RULES: tuple[tuple[str, Callable[[re.Match[str], Mapping[str, Array]], Named]], ...] = (
    (_GATES, _gates),
    (_PROJECTIONS, _projections),
    (r".*", _same),
)
