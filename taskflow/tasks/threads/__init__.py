"""Threads of a CPU device: a rank with several cores divides long points over them.

From a point to the threads:

* `division`: a point is split once more by its pattern, into parts that write disjoint boxes; what each way takes;
* `sections`: successive rows whose parts threads compute without a meeting in between, and what each thread does;
* `crew`: the threads that do it; `spin`: how they wait for each other.

So a rank with several cores needs no compiled parallel loops: every kernel that is right under any split is right on
any number of threads. `execute.divide` puts the calls into a program; `cost.samples` times single points likewise.
"""
