"""Scalar expressions and assignments as text, and what is made of them: NumPy passes, numba loops, CUDA C.

`expression` parses one result, `program` several assignments; `passes`, `loops` and `cuda_source` are the three ways to
run them; `math` has the functions that loops call.
"""
