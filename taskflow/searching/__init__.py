"""Search: graph + machine + costs -> the best strategy found, and how good it is.

`searching` is the whole; it walks (`walk`) over strategies (`space`, `placement`, `proposal`) that a `judge`
times. The judge keeps packed rows in a `pool` and re-simulates only what changed (`resimulate`). `bound` says what no
strategy can beat (with `heads`, `cases` and `splits`), `exhaustive` proves an optimum (with `tables` and `boundpass`),
and `chain` is the dynamic programme for chains (with `priced`).
"""

from taskflow.searching.searching import PROPOSALS, SearchInterrupted, SearchResult, search

__all__ = ["PROPOSALS", "SearchInterrupted", "SearchResult", "search"]
