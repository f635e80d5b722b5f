"""Threads of a CPU device: how points are divided, which run side by side, and the crew that computes them."""
