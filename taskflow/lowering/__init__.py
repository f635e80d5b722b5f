"""Lowering: graph + strategy -> task graph.

Decided here: which instances there are on which device, which pieces move and who gives them, which groups of pieces
are one collective, who adds up what, and what every row waits for; for all devices, or the rows of some alone. How a
collective brings its pieces is decided in `collective`, in which order rows run in `schedule`.

Read `lowering` first: one fragment of rows per operator (its points) and one per region version (what must move). Which
pieces move is decided in compiled passes over boxes: `movement` calls them, `moving` plays the life of a region,
`moves` are its copies, `combine` and `gathers` its sums and gathers, `boxes` their geometry.
"""

from taskflow.lowering.lowering import Lowering, lower, lower_to_simulate

__all__ = ["Lowering", "lower", "lower_to_simulate"]
