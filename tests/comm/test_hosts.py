"""Ranks on several hosts: what is asked for, what is wrong with a host, and two network namespaces as hosts."""

import os
import runpy
import signal
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.hosts import INTERFACE, two_hosts, why_not
from taskflow import MachineModel
from taskflow.comm import hosts
from taskflow.comm.hosts import Hosts
from tests.conftest import ROOT
from tests.refusals import assert_refused

LONGEST_SECONDS = 240  # a hang; two loaded cores took more than 60 for the first run
SHAPED_BITS_PER_SECOND = 200_000_000
STEP = """
import os, sys
import numpy as np
import ops, taskflow
from taskflow.comm.transport import connect

t = connect()
if t.size > 1:
    names, memory = t.gather(os.uname().nodename), t.shared_arrays(8)
    memory[t.rank][:] = t.rank
    t.barrier()
    t.rank or print(len(set(names)), list(t.hosts), [None if m is None else int(m[0]) for m in memory])

graph = taskflow.Graph()
x, t = graph.input("x", (8, 6), dtype="float64"), graph.input("t", (8,), "int32")
ops.sgd(ops.softmax_cross_entropy(ops.linear(ops.linear(x, 12, name="first"), 4, name="second"), t), lr=0.1)
machine = taskflow.measure_machine(taskflow.MachineModel.local(4))
task_graph = taskflow.lower(graph, taskflow.data_parallel(graph, machine), machine)
with taskflow.Executor(task_graph) as step:
    for k in range(2):
        step({"x": np.random.default_rng(k).random((8, 6)), "t": np.arange(8, dtype=np.int32) % 4})
    weight = step.read("first.weight")

def square(ctx, item, row):
    row[...] = item**2

graph = taskflow.Graph()
graph.output("y", ops.claimed(square, [], 40, [((), "float64")], name="squares", graph=graph)[0])
plan = {"squares": taskflow.ParallelConfig({"r": 4})}
with taskflow.Executor(taskflow.lower(graph, taskflow.Strategy(plan), machine)) as step:
    weight = np.append(weight, [step({})["y"] for _ in range(3)])
if step.transport.rank == 0:
    np.save(sys.argv[1], weight)
    machine.save(sys.argv[2])
"""
DIES = (
    "import os; from taskflow.comm.transport import connect; t = connect(); t.barrier()\n"
    "t.rank == 1 and os.kill(os.getpid(), 9); t.barrier()\n"
)
LOOPS = (
    "import os, time; from taskflow.comm.transport import connect; t = connect(); daemons = t.gather(os.getppid())\n"
    "t.rank or print(daemons[1], flush=True); time.sleep(60)\n"
)


def test_hosts_are_parsed_and_passed_on():
    found = Hosts.parse("a:2, b,c:3", "eth0")
    assert (dict(found.slots), found.ranks) == ({"a": 2, "b": 1, "c": 3}, 6)
    options = found.options({"PYTHONPATH": "/x", "HOME": "/", "OMP_NUM_THREADS": "1"})
    assert options == ["--host", "a:2,b:1,c:3", "-x", "OMP_NUM_THREADS", "-x", "PYTHONPATH"]
    named = {name for name, value in found.settings().items() if value == "eth0"}
    assert {
        "PRTE_MCA_prte_if_include",
        "OMPI_MCA_btl_tcp_if_include",
        "TASKFLOW_INTERFACE",
    } <= named
    assert "eth0" not in Hosts.parse("a").settings().values()


@pytest.mark.parametrize("entry", ["a:", "a:0", "a:x", "", "-oX=1:2"])
def test_wrong_entries_are_refused(entry):
    assert_refused(f"hosts: 'NAME' or 'NAME:RANKS', not '{entry}'", lambda: Hosts.parse(entry))


def test_a_host_is_named_once():
    assert_refused("hosts: 'a' is named twice", lambda: Hosts.parse("a,b,a:2"))


def test_what_is_wrong_with_a_host(tmp_path, monkeypatch):
    def agent(text):
        path = tmp_path / "agent"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    local = agent('shift; exec sh -c "$*"')
    Hosts.parse("elsewhere:2", "lo", local).check()
    said = "hosts: 'elsewhere' has no network interface 'eth9x'"
    assert_refused(said, Hosts.parse("elsewhere", "eth9x", local).check)
    said = "hosts: there is no command 'no-such-agent' to start ranks on 'b' with; see --agent"
    assert_refused(said, Hosts.parse("b", agent="no-such-agent").check)
    lost = agent("echo No route to host >&2; exit 255")
    said = f"hosts: 'b' cannot be reached by `{lost}`, or has no {sys.executable}: No route to host"
    assert_refused(said, Hosts.parse("b", agent=lost).check)
    monkeypatch.setattr(hosts, "REACH_SECONDS", 0.2)
    slow = agent("exec sleep 5")
    assert_refused(
        f"hosts: 'b' does not answer `{slow}` within 0.2 s", Hosts.parse("b", agent=slow).check
    )


@pytest.mark.mpi
@pytest.mark.waits
def test_two_namespaces_are_two_hosts(tmp_path, monkeypatch):
    if reason := why_not():
        pytest.skip(reason)
    with two_hosts(f"{SHAPED_BITS_PER_SECOND}bit") as pair:

        def start(ranks, script, *options, words=()):
            path = tmp_path / "script.py"
            path.write_text(script)
            command = pair.command(ranks, *options, " ".join([str(path), *words]))
            return subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )

        words = [str(tmp_path / name) for name in ("weight.npy", "machine.toml")]
        run = start(4, STEP, words=words)
        out, err = run.communicate(timeout=LONGEST_SECONDS)
        assert (run.returncode, out.strip()) == (0, "2 [0, 0, 1, 1] [0, 1, None, None]"), err
        assert "Traceback" not in err  # of a guard
        machine, weight = MachineModel.load(words[1]), np.load(words[0])
        monkeypatch.setattr(sys, "argv", ["script.py", *words])  # now in one process
        runpy.run_path(str(tmp_path / "script.py"))
        assert np.abs(np.load(words[0]) - weight).max() <= 1e-10
        assert machine.hosts == ((0, 1), (2, 3))
        within, between = machine.bandwidth[0, 1], machine.bandwidth[0, 2]
        assert (
            1e6 < between < 1.1 * SHAPED_BITS_PER_SECOND / 8 < within < 1e12
        )  # a busy machine is slower, not faster
        assert 0 < machine.latency_seconds[0, 1] < 1 and 0 < machine.latency_seconds[0, 2] < 1
        run = start(2, DIES)
        _, err = run.communicate(timeout=LONGEST_SECONDS)
        assert (
            run.returncode and "died in script; all ranks end" in err
        )  # at times rank 0, which MPI ends with it
        run = start(2, LOOPS)
        os.kill(int(run.stdout.readline()), signal.SIGKILL)
        _, err = run.communicate(timeout=LONGEST_SECONDS)
        assert run.returncode and "taskflow: a host is lost" in err
        run = start(2, LOOPS, "--patience", "1")
        assert run.stdout.readline()
        subprocess.run(["ip", "-n", pair.names[1], "link", "set", INTERFACE, "down"], check=True)
        _, err = run.communicate(timeout=LONGEST_SECONDS)
        assert run.returncode and "rank 1 is out of reach in script; all ranks end" in err
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    assert not any(name in names for name in pair.names)
