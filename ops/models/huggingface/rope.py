"""Scaled rotary positions as transformers has them: keys of a configuration -> RotaryScaling."""

from __future__ import annotations

from math import ceil, floor, log, pi

import ops
from ops.models.huggingface.config import Rope, Rotary


def rotary_of(config: Rotary, features: int, sequence: int) -> tuple[float, ops.RotaryScaling]:
    """The base of the angles, and their scaling, for heads of so many features and sequences of that length."""
    rope = config.rope_parameters or config.rope_scaling or Rope()
    base = rope.rope_theta or config.rope_theta
    kind = rope.rope_type or rope.type or "default"
    trained = rope.original_max_position_embeddings or config.max_position_embeddings
    if kind == "linear":
        return base, ops.RotaryScaling(rope.factor)
    if kind == "llama3":
        return base, _llama3(rope, trained)
    if kind == "yarn":
        return base, _yarn(rope, features, base, trained, config.max_position_embeddings)
    if kind == "dynamic":  # another base where the sequence is longer than in training
        longer = max(sequence / config.max_position_embeddings, 1.0)
        growth = rope.factor * longer - (rope.factor - 1)
        base *= growth ** (features / (features - 2))
    return base, ops.RotaryScaling()


def _llama3(rope: Rope, trained: int) -> ops.RotaryScaling:
    """Pairs that turn `high_freq_factor` times in training are kept, those of `low_freq_factor` turns divided."""
    width = rope.high_freq_factor - rope.low_freq_factor
    return ops.RotaryScaling(
        rope.factor,
        offset=-rope.low_freq_factor / width,
        per_frequency=trained / (2 * pi * width),
    )


def _yarn(rope: Rope, features: int, base: float, trained: int, longest: int) -> ops.RotaryScaling:
    """Pairs that turn more than `beta_fast` times in training are kept, those below `beta_slow` divided."""
    factor = rope.factor if rope.factor != 1.0 else longest / trained
    low, high = _yarn_pairs(rope, features, base, trained)
    width = high - low or 0.001
    return ops.RotaryScaling(
        factor,
        (low + width) / width,
        per_pair=-1 / width,
        magnitude=_yarn_magnitude(rope, factor),
    )


def _yarn_pairs(rope: Rope, features: int, base: float, trained: int) -> tuple[float, float]:
    """The last pair that is kept, and the first that is divided."""
    low, high = (
        features * log(trained / (turns * 2 * pi)) / (2 * log(base))
        for turns in (rope.beta_fast or 32, rope.beta_slow or 1)
    )
    if rope.truncate:
        low = floor(low)
        high = ceil(high)
    return max(low, 0), min(high, features - 1)


def _yarn_magnitude(rope: Rope, factor: float) -> float:
    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.mscale and rope.mscale_all_dim:
        return _magnitude(factor, rope.mscale) / _magnitude(factor, rope.mscale_all_dim)
    return _magnitude(factor, 1.0)


def _magnitude(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * log(factor) + 1.0
