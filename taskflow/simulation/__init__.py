"""Simulation: task graph + costs -> predicted Timeline.

Decided here: when rows start and end, in one pass over them in their order, links shared fairly; and how often each row
of representatives loads a link. Seconds are decided in `cost`, the order in `lowering` and `schedule`; the rule
by which a row starts is `core.start_rule`.
"""
