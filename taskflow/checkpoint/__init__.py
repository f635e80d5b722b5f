"""Checkpoints in logical coordinates: `files` writes and reads them, `folder` holds several, `manifest` checks one,
`history` says where a run stood, and under which plan."""

from taskflow.checkpoint.files import load, save
from taskflow.checkpoint.folder import latest, newest_sound
from taskflow.checkpoint.history import plan_of

__all__ = ["latest", "load", "newest_sound", "plan_of", "save"]
