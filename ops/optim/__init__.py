"""Optimizers: updates of parameters in place."""
