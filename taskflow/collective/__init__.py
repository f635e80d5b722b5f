"""Collectives: what groups of devices that reduce, gather or exchange take.

Decided here: which algorithm a collective has, unless the user names one: the fastest, where a price is one
pass over its steps on the links of the machine. What a collective has to bring to whom is decided in `lowering`; its
steps are expanded in `tasks`, where executor and checker read them, too.

Read `algorithms` first, then `ring`: an algorithm is a function from a group and the owners of its pieces to steps.
`price` has seconds, `choose` gives every row of a task graph its algorithm, `library` has what was measured.
"""
