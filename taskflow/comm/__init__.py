"""Ranks: how they are launched, how bytes get from one to another, and how all end together.

`launch` starts them (`taskflow run`), with the settings of `mpi.env` under which ranks do well, on the `hosts` that are
asked for, and `rank` is what each of them runs; `transport` moves bytes and is the only file that imports mpi4py;
`interrupt` stops all ranks after the same step, `ending` ends them at once. A rank notes in its `heart` what it does;
its `guard`, a process beside it, looks after it, and `judge` says who is at fault.
"""
