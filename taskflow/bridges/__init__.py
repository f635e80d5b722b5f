"""Bridges: plans in the words of other systems, and jobs of these as plans."""

from taskflow.bridges.exporting import ExportedPlan, ImportedJob, JobFile
from taskflow.bridges.exporting import export_plan as export_plan
from taskflow.bridges.exporting import import_job as import_job

__all__ = ["ExportedPlan", "ImportedJob", "JobFile", "export_plan", "import_job"]
