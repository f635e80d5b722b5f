"""The plan checker: does a task graph compute what its graph says, in every order that it allows?

`check_plan(graph, task_graph)` reads the graph, the columns and the steps of collectives, and nothing of how the rows
were made: neither `lowering` nor the strategy. Two passes over the rows, compiled:

* `values`: every row in turn on versions and parts instead of numbers; each value is of the right pieces, each once.
* `races`: every order that rows need, because of what they touch, is implied by dependences and streams; with a memory
  plan also where instances share bytes.

Kernels are trusted to do what their patterns say: `taskflow.testing.check_operator` is their proof.
"""
