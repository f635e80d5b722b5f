"""Mixtures of experts: routing, dispatch, and the experts themselves."""
