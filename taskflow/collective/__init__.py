"""Collectives: what the groups of devices that reduce, gather or exchange take, step by step."""
