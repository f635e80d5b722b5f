"""Simulation: task graph + costs -> predicted Timeline.

Decided here: when rows start and end, in one pass over them in their order, links shared fairly; of representatives,
how often each of their rows loads a link. Seconds of a row are decided in `cost`, the order in `lowering` and `schedule`;
the rule by which a row starts is `core.start_rule`.
"""
