"""Elementwise operators: one scalar expression says what each computes, on every backend."""
