"""A walk: changes of one plan, each judged by what differs (`packed_judge`), accepted as Metropolis and Hastings say.

The random number of acceptance is drawn before a change is judged: u accepts exactly when the seconds are at most
`now - ln u / beta`, so the judge may give up whatever is certain to be slower. beta is relative to the seconds of the
plan, so it has no unit, and to the number of operators: of many any single one matters little.
"""

from __future__ import annotations

import math
from dataclasses import replace

from taskflow.graph.repeat import in_step
from taskflow.schedule.plan import Plan
from taskflow.searching.problem import SearchProblem
from taskflow.strategy.strategy import in_steps

BETA = 30.0  # what is slower by a part d is accepted with probability exp(-BETA * d) for every operator


class Walk:
    """From a plan of one micro-batch.

    Attributes:
        plan, seconds: where it is, by the judge of changes.
        best, least: the fastest so far.
        begin: seconds of the plan from which it began; infinite: that is illegal, and there is no walk.
        beta: inverse of a temperature, in 1 / s.
        tried, gained: changes that were judged, and how many when the last one made it faster.
    """

    def __init__(self, problem: SearchProblem, plan: Plan) -> None:
        variant = problem.variant(plan)
        if problem.space is None:
            plan = replace(plan, strategy=variant.space.include(plan.strategy))
        self.judge = variant.changes
        self.repeat = problem.repeat
        self.plan = self.best = plan
        self.seconds = self.least = self.begin = self.judge.start(
            in_steps(plan.strategy, self.repeat)
        )
        self.beta = BETA * len(variant.space.names) / self.seconds
        self.tried = self.gained = 0

    def limit(self, draw: float) -> float:
        """The seconds up to which a change is accepted, for a random number; negative: only what is faster."""
        if draw < 0:
            return math.nextafter(self.seconds, -math.inf)
        return self.seconds - math.log(1.0 - draw) / self.beta

    def propose(self, plan: Plan, limit: float) -> float:
        """Go there, if it is within the limit; by which part the walk's best became faster, as a logarithm."""
        old = self.plan.strategy.data
        changes = {
            in_step(name, step): config
            for name, config in plan.strategy.data.items()
            if old.get(name) is not config
            for step in range(self.repeat)
        }
        self.tried += 1
        seconds = self.judge.propose_all(changes, limit)
        if not seconds <= limit or not math.isfinite(seconds):
            return 0.0
        self.judge.accept()
        self.plan = plan
        self.seconds = seconds
        if seconds >= self.least:
            return 0.0
        gain = math.log(self.least / seconds)
        self.best = plan
        self.least = seconds
        self.gained = self.tried
        return gain
