"""Strategies: how every operator is split and where its points run.

`strategy` has ParallelConfig and Strategy, `rules` and `experts` make some, `partition` says which point touches which
box of which region.
"""
