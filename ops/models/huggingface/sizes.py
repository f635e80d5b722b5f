"""What a configuration leaves open: the batch, its sequences, and how they are trained."""

from __future__ import annotations

from dataclasses import dataclass

import ops
from taskflow import LogicalRegion


@dataclass(frozen=True)
class StepSizes:
    """See `ops.models.huggingface.build`; `dtype` is that of the parameters."""

    batch: int
    sequence: int
    training: bool
    dtype: str
    fused: bool
    capacity_factor: float | None
    groups: int

    def embed(
        self,
        words: LogicalRegion,
        count: int,
        width: int,
        name: str,
        padding: int | None = None,
    ) -> LogicalRegion:
        """A row of `<name>.weight` (count, width) for each of the words."""
        init = ops.normal(0.0, 0.02)
        return ops.embedding(
            words,
            count,
            width,
            name,
            dtype=self.dtype,
            weight_init=init,
            padding_idx=padding,
        )

    def dropout(self, h: LogicalRegion, p: float) -> LogicalRegion:
        """`h` with dropout, if it is trained with one."""
        return ops.dropout(h, p, name=f"{h.name}.drop") if p and self.training else h
