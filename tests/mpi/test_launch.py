"""The launch itself: as many ranks as mpirun was asked for, and all of them talk."""

import os


def test_ranks_are_counted_and_sum_up(comm):
    assert comm.size == int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))
    assert comm.allreduce(1) == comm.size


def test_every_rank_hears_its_neighbour(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    assert comm.sendrecv(comm.rank, dest=right, source=left) == left
