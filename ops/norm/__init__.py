"""Normalizations: over batches, layers, groups and mean squares."""
