"""Search: graph + machine + costs -> the best strategy found, and how good it is.

`searching` is the whole; it walks (`walk`) over strategies (`space`, `placement`, `proposal`) that a `judge`
times. The judge keeps packed rows in a `pool` and re-simulates only what changed (`resimulate`). `bound` says what no
strategy can beat (with `heads`, `cases` and `splits`), `exhaustive` proves an optimum (with `tables` and `boundpass`).
Starts are in `starts`, with the grids of experts (`grids`); repeated layers are tied (`fold`, `tied`); a graph with
recomputation or homes is a variant (`variants`). `joint` searches for plans: stages, micro-batches, schedules and
recomputation. `at_home` chooses by rehearsals (`rehearsal`) on the ranks of this job. What any plan costs is an
`outcome`.
"""

from taskflow.searching.at_home import search_at_home
from taskflow.searching.result import SearchInterrupted, SearchResult
from taskflow.searching.searching import PROPOSALS, search

__all__ = ["PROPOSALS", "SearchInterrupted", "SearchResult", "search", "search_at_home"]
