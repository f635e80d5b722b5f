"""Lowering: graph + strategy -> task graph.

Read `lowering` first: one fragment of rows per operator (its points) and one per region version (what must move). Which
pieces move is decided in compiled passes over boxes: `movement` calls them, `moves` and `moving` are them, `boxes` is
their geometry and `collective` finds the groups of pieces that are one collective.
"""

from taskflow.lowering.lowering import Lowering, lower

__all__ = ["Lowering", "lower"]
