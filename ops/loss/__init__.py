"""Losses, softmax and metrics."""
