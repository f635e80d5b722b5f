"""Search: graph + machine + costs -> the best plan found, and how good it is.

`searching` is the loop: plans of a `population`, `moves` from one to another, judges, a `budget`. The `judge` of whole
plans gives an `outcome`, what `simulate` says; what differs in a few configurations (`space`, `placement`, `proposal`)
is a step of a `walk`, judged by packed rows in a `pool`, which are passed again (`resimulate`).
`starts` come first, with the grids of experts (`grids`, `shapes`); repeated layers are folded (`fold`). `bound` says
what no strategy can beat (with `splits`), `exhaustive` proves an optimum (with `tables` and
`boundpass`). `at_home` chooses by rehearsals (`execute.rehearsal`) on the ranks of this job.
"""

from taskflow.searching.at_home import search_at_home
from taskflow.searching.result import SearchInterrupted, SearchResult
from taskflow.searching.searching import PROPOSALS, search

__all__ = ["PROPOSALS", "SearchInterrupted", "SearchResult", "search", "search_at_home"]
