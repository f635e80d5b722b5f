"""Sums, means, maxima and pooling."""
