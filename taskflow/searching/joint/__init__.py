"""Joint search over stages, micro-batches, schedules and recomputation: `joint` is the whole, and says how."""

from taskflow.searching.joint.joint import search_stages

__all__ = ["search_stages"]
