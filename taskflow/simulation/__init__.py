"""Simulation: task graph + costs -> predicted Timeline, whole or from the first row that changed."""
