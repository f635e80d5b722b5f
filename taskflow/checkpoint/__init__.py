"""Checkpoints in logical coordinates: `files` writes and reads them, `folder` holds several, `manifest` checks one."""

from taskflow.checkpoint.files import load, save
from taskflow.checkpoint.folder import latest, newest_sound

__all__ = ["latest", "load", "newest_sound", "save"]
