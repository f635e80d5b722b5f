"""Compiles what most tests use, on two cores: `python -m tests.warm`.

Lowering, search, the checker and what runs rows are compiled once, here, and not by every worker of pytest, which would
run each of them as Python for as long first. A search and some laws run as Python, and two other processes compile what
these call from when it is first called.
"""

import contextlib
import gc
import os
import sys
import threading
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from importlib import import_module
from multiprocessing import get_context

import pytest

from taskflow.cli import main
from taskflow.core import compiling, tiers

SEARCH = "search", "ops/models/lenet.py:build", "--devices", "2", "--proposals", "100"
LAWS = "tests/mpi/test_laws.py", "-k", "NumPy and (plans or driver or runs)"
# Of regions; they share most of their code: one process compiles them.
PLAYERS = {"move", "pack_regions"}


def compile_for(module, name, types):
    getattr(import_module(module), name).compile(types)


class Compilers:
    """Two processes that compile what is asked for; the first begins with `PLAYERS`, which take the longest."""

    def __init__(self, first, second):
        self.idle, self.first = [first, second], first
        self.waiting, self.pending, self.lock = [], list[Future[None]](), threading.RLock()

    def ask(self, function):
        with self.lock:
            self.waiting.append(function)
            self.go_on()

    def go_on(self):
        for process in self.idle[:]:
            is_first = process is self.first
            able = [f for f in self.waiting if is_first or f[1] not in PLAYERS]
            if able:
                function = next((f for f in able if f[1] in PLAYERS), able[0])
                self.waiting.remove(function)
                self.idle.remove(process)
                self.pending.append(future := process.submit(compile_for, *function))
                future.add_done_callback(partial(self.end, process))

    def end(self, process, future):
        with self.lock:
            self.idle.append(process)
            self.go_on()

    def wait(self):
        for future in self.pending:  # more are added meanwhile
            future.result()


def begin(niceness):
    os.nice(niceness)
    gc.disable()  # what compiling makes stays; looking through it takes a tenth of the time


def make_process(niceness):
    return ProcessPoolExecutor(1, get_context("spawn"), initializer=begin, initargs=(niceness,))


@contextlib.contextmanager
def compiled_beside():
    """Until it ends, functions run as Python, and processes compile them for the types of their arguments."""
    interpret, asked = compiling._Tiered._interpret, set[str]()
    with make_process(0) as first, make_process(5) as second:
        compilers = Compilers(first, second)

        def interpret_and_ask(function, size, *args, **named):
            if (name := function._name(args)) not in asked:
                asked.add(name)
                compilers.ask((function.__module__, function.__name__, function._types(args)))
            return interpret(function, size, *args, **named)

        compiling._Tiered._interpret = interpret_and_ask
        yield
        compiling._Tiered._interpret = interpret
        compilers.wait()


def run_what_tests_use():
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        return main(SEARCH) or pytest.main(["-q", "-p", "no:cacheprovider", *LAWS])


if __name__ == "__main__":
    os.environ["TASKFLOW_COMPILE"] = tiers.NEVER
    with compiled_beside():
        status = run_what_tests_use()
    sys.exit(status)
