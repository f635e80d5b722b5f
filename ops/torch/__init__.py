"""Torch's modules and weights taken over."""
