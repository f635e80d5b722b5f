"""Attention, whole, fused or linear, and rotary positions."""
