"""What the stub saw, for processes that run on it (`build.environment`); in these NVRTC compiles as fast as it can.

Nothing runs what it makes. As a plugin of pytest it is there before the tests.
"""

import ctypes
import gc
import os
from collections import Counter
from contextlib import contextmanager

from taskflow.backend.cuda import device

device._OPTIONS += ("--Ofast-compile=max",)
LIBRARY = ctypes.CDLL(os.environ["STUB_LIBRARY"])
LIBRARY.stub_take_faults.restype = LIBRARY.stub_take_trace.restype = ctypes.c_char_p
LIBRARY.stub_count.restype = ctypes.c_long
LIBRARY.stub_count.argtypes = [ctypes.c_char_p]


def take_faults():
    """What was wrong since the last call."""
    return LIBRARY.stub_take_faults().decode().splitlines()


def count(what):
    """How many there are (streams, events, blocks, bytes, handles, ...), or how often something was done."""
    return LIBRARY.stub_count(what.encode())


@contextmanager
def warm_steps():
    """Within the block a step may neither take memory nor wait, but for its end."""
    gc.disable()  # what others left behind is given back at any time
    LIBRARY.stub_step(1)
    try:
        yield
    finally:
        LIBRARY.stub_step(0)
        gc.enable()


@contextmanager
def traced(lines):
    """Put what streams and graphs do within the block into `lines`, each a list of words."""
    LIBRARY.stub_take_trace()
    LIBRARY.stub_trace(1)
    try:
        yield
    finally:
        LIBRARY.stub_trace(0)
        lines += [line.split() for line in LIBRARY.stub_take_trace().decode().splitlines()]


def kinds(lines):
    """How many of each kind: kernel, product, copy, fill."""
    return Counter(line[0] for line in lines)
