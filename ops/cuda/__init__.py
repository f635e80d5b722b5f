"""Kernels for GPUs: the `.cu` sources and what launches them. Nothing imports cupy here."""
