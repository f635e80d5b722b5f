"""Compiles what most tests use, on two cores: `python -m tests.warm`.

Lowering, search, the checker and what runs rows are compiled once, here, and not by every worker of pytest, which would
run each of them as Python for as long first. A search and some laws run as Python, and two other processes compile what
these call from when it is first called.
"""

import contextlib
import os
import sys
from concurrent.futures import Future, ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context

import pytest

from taskflow.cli import main
from taskflow.core import compiling, tiers

SEARCH = "search", "ops/models/lenet.py:build", "--devices", "2", "--proposals", "100"
LAWS = "tests/mpi/test_laws.py", "-k", "NumPy and (plans or driver or runs)"
PLAYERS = {"move", "pack_regions"}  # of regions; they share most of their code: one process


def compile_for(module, name, types):
    getattr(import_module(module), name).compile(types)


def make_process():
    return ProcessPoolExecutor(1, get_context("spawn"))


@contextlib.contextmanager
def compiled_beside():
    """Until it ends, functions run as Python, and processes compile them for the types of their arguments."""
    interpret, asked = compiling._Tiered._interpret, dict[str, Future[None]]()
    with make_process() as players, make_process() as others:

        def interpret_and_ask(function, size, *args, **named):
            if (name := function._name(args)) not in asked:
                process = players if function.__name__ in PLAYERS else others
                types = function._types(args)
                asked[name] = process.submit(
                    compile_for, function.__module__, function.__name__, types
                )
            return interpret(function, size, *args, **named)

        compiling._Tiered._interpret = interpret_and_ask
        yield
        compiling._Tiered._interpret = interpret
        for future in asked.values():
            future.result()


def run_what_tests_use():
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        return main(SEARCH) or pytest.main(["-q", "-p", "no:cacheprovider", *LAWS])


if __name__ == "__main__":
    os.environ["TASKFLOW_COMPILE"] = tiers.NEVER
    with compiled_beside():
        status = run_what_tests_use()
    sys.exit(status)
