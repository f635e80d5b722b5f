"""Calls of NCCL: the arguments of each, as CuPy's binding takes them."""

from types import SimpleNamespace

import numpy as np
import pytest

from taskflow.backend import GroupCall
from taskflow.backend.cuda.nccl import NcclBuffers, NcclRanks, is_short_of_memory

SUM, MAX, BYTES, FLOAT32, BFLOAT16 = 0, 2, 1, 7, 9
STREAM = 77


class Recorder:
    """The part of `cupy.cuda.nccl` that is called: it notes the calls."""

    NCCL_SUM, NCCL_MAX, NCCL_UINT8, NCCL_FLOAT32, NCCL_BFLOAT16 = SUM, MAX, BYTES, FLOAT32, BFLOAT16

    def __init__(self):
        self.notes = []

    def groupStart(self):
        self.notes.append("start")

    def groupEnd(self):
        self.notes.append("end")

    def NcclCommunicator(self, size, unique_id, rank):
        self.notes.append((size, unique_id, rank))
        return self

    def __getattr__(self, name):
        return lambda *args: self.notes.append((name, *args))


def array(pointer, size, dtype="float32"):
    found = SimpleNamespace(data=SimpleNamespace(ptr=pointer), size=size, dtype=np.dtype(dtype))
    found.nbytes = size * found.dtype.itemsize
    return found


@pytest.mark.parametrize(
    "part, call",
    [
        (
            GroupCall("all_reduce", array(16, 4), array(32, 4)),
            ("allReduce", 16, 32, 4, FLOAT32, SUM),
        ),
        (
            GroupCall("all_reduce", array(16, 4), array(16, 4), combine="max"),
            ("allReduce", 16, 16, 4, FLOAT32, MAX),
        ),
        (GroupCall("reduce", array(16, 4), None, 9), ("reduce", 16, 0, 4, FLOAT32, SUM, 2)),
        (
            GroupCall("reduce_scatter", array(16, 6), array(32, 2)),
            ("reduceScatter", 16, 32, 2, FLOAT32, SUM),
        ),
        (GroupCall("all_gather", array(16, 2), array(32, 6)), ("allGather", 16, 32, 8, BYTES)),
        (GroupCall("broadcast", array(16, 2), None, 5), ("broadcast", 16, 16, 8, BYTES, 1)),
        (GroupCall("broadcast", None, array(32, 2), 3), ("broadcast", 32, 32, 8, BYTES, 0)),
        (GroupCall("send", array(16, 2, "int64"), peer=9), ("send", 16, 16, BYTES, 2)),
        (GroupCall("receive", None, array(32, 2), 3), ("recv", 32, 8, BYTES, 0)),
    ],
)
def test_a_part_is_a_call_on_the_current_stream(part, call):
    library = Recorder()
    (launch,) = NcclRanks((3, 5, 9), 5, b"id", library, lambda: STREAM).calls([part])
    launch()
    assert library.notes == [(3, b"id", 1), "start", (*call, STREAM), "end"]


def test_a_group_ends_when_a_call_fails():
    library = Recorder()
    library.send = lambda *args: 1 / 0
    (launch,) = NcclRanks((0, 1), 0, b"id", library, lambda: STREAM).calls(
        [GroupCall("send", array(16, 2), peer=1)]
    )
    with pytest.raises(ZeroDivisionError):
        launch()
    assert library.notes[-2:] == ["start", "end"]


def test_what_a_communicator_takes():
    """A channel and peer: the two allocations that NCCL's log lists (NVIDIA/nccl#1685)."""
    assert NcclBuffers.of({"NCCL_MAX_NCHANNELS": "1"}).bytes_for(1) == 10485760 + 2097152
    assert NcclBuffers.of({}).bytes_for(2) == 2 * 32 * 12582912
    assert NcclBuffers.of({"NCCL_BUFFSIZE": "16", "NCCL_MAX_NCHANNELS": "64"}) == NcclBuffers(
        16, 32
    )
    assert NcclBuffers.of({}).bytes_for(0) == 0


class NcclError(RuntimeError):
    def __init__(self, status):
        self.status = status


def test_an_error_for_want_of_memory_is_told_from_others():
    assert is_short_of_memory(NcclError(1), 10, 20)
    assert not is_short_of_memory(NcclError(1), 30, 20)  # there was room
    assert not is_short_of_memory(NcclError(5), 10, 20)
    assert not is_short_of_memory(RuntimeError("another"), 10, 20)


@pytest.mark.parametrize("is_short, kind", [(True, MemoryError), (False, NcclError)])
def test_a_first_call_that_finds_no_memory_says_so(is_short, kind):
    class Failing(Recorder):
        def allReduce(self, *args):
            raise NcclError(1)

    library = Failing()
    (launch,) = NcclRanks((0, 1), 0, b"id", library, lambda: STREAM, lambda error: is_short).calls(
        [GroupCall("all_reduce", array(16, 4), array(32, 4))]
    )
    with pytest.raises(kind):
        launch()
    assert library.notes[-1] == "end"
