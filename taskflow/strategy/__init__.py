"""Strategies: how every operator is split and where its points run.

`strategy` has ParallelConfig and Strategy, `rules` makes some, `partition` says which point touches which
box of which region.
"""
