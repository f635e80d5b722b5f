"""Kernels for CPUs, compiled by numba on first use."""
