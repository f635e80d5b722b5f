"""Kernels for CPUs, compiled by numba on first use: what NumPy lacks or does in many passes.

Kernels over rows are in `rows`, over the windows of images in `windows`, and so on; those of one operator are with it.
Modules that import numba are imported inside the kernels that need them, since that costs 0.3 s. Arrays are
C-contiguous: one variant per dtype is compiled (and kept on disk). Not numba.vectorize: its loops take a strided output
for a contiguous one where the inputs are contiguous (numba 0.68, np/ufunc/wrappers.py, `unit_strided`).
"""
