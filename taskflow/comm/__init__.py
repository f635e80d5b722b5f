"""Ranks: how they are launched, how bytes get from one to another, and how all end together.

`transport` is the only file that imports mpi4py; `mpi.env` is the table of settings under which ranks do well.
"""
