"""Explaining: what a strategy does to every operator, what that costs and saves, and what was weighed against it.

`explaining` is the whole; `breakdown` adds up a timeline, `describe` puts configurations into words. `explanation`
holds what is found and prints it; `dot` draws. `whatif` asks about other machines.
"""

from typing import TYPE_CHECKING

from taskflow.core.public import on_demand

if TYPE_CHECKING:
    from taskflow.report.explaining import explain
    from taskflow.report.explanation import Explanation, OperatorExplanation
else:
    __getattr__, __dir__ = on_demand(__name__)

__all__ = ["Explanation", "OperatorExplanation", "explain"]
