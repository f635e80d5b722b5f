"""Checkpoints in logical coordinates: `files` writes and reads them, `manifest` says what must be in them."""

from taskflow.checkpoint.files import latest, load, save

__all__ = ["latest", "load", "save"]
