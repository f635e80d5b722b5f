"""Explaining: what a strategy does to every operator, what that costs and saves, and what was weighed against it.

`explaining` is the whole; `breakdown` adds up a timeline, `describe` puts configurations into words, `alternatives`
judges the neighbours, `report` prints, and `dot` draws.
"""

from taskflow.report.explaining import Explanation, OperatorExplanation, explain

__all__ = ["Explanation", "OperatorExplanation", "explain"]
