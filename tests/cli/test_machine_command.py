"""`taskflow machine`: tables, files, measurements."""

import pytest

from taskflow import MachineModel
from taskflow.cli import main
from taskflow.cli.machine import describe_machine, find_machine
from taskflow.cost.costfile import read_costs
from taskflow.machine.machinefile import preset_text
from tests.refusals import assert_refused

P100 = """\
4 x p100: 16 devices on 4 hosts, 88 links

devices  kind           GiB      GB/s launch us  peak Tflop/s
     16  cuda          16.0     732.0      5.70  10.6 float32, 5.3 float64, 21.2 float16

  pairs  transfers between devices      GB/s        us  links
     48  within a host                18.000      1.90      1
    192  from host to host            12.000      6.50      4
"""


def test_a_preset_as_a_table(capsys):
    assert main(["machine", "p100", "--nodes", "4"]) == 0
    assert capsys.readouterr().out == P100


def test_unequal_devices_have_a_line_each():
    machine = MachineModel.join([MachineModel.preset("v100"), MachineModel.preset("laptop")])
    lines = describe_machine(machine).splitlines()
    assert [line.split()[:2] for line in lines[3:5]] == [["8", "cuda"], ["4", "cpu"]]


def test_one_device_has_no_transfers():
    assert describe_machine(MachineModel.uniform(1)).endswith("links\n")


def test_a_file_is_written_and_read(tmp_path, capsys):
    path = str(tmp_path / "new" / "k80.toml")
    assert main(["machine", "k80", "--nodes", "2", "--devices", "6", "--out", path]) == 0
    assert main(["machine", path]) == 0
    assert find_machine(path) == MachineModel.preset("k80", nodes=2).take(6)
    assert capsys.readouterr().out.startswith("2 x k80: 6 devices on 2 hosts, ")


def test_the_processor_at_hand_is_measured(tmp_path):
    path = str(tmp_path / "here.toml")
    assert main(["machine", "--measure", "--devices", "2", "--out", path]) == 0
    machine = find_machine(path)
    device = machine.devices[0]
    assert len(machine.devices) == 2 and device.kind == "cpu"
    assert 1e8 < device.flops_per_second * device.compute_efficiency < 1e13
    assert 1e8 < device.memory_bandwidth * device.memory_efficiency < 1e13
    assert 1e-8 < device.overhead_seconds < 1e-3


def test_kernels_of_graphs_are_timed_into_a_cost_file(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("taskflow.cli.machine.measure_machine", lambda machine: machine)
    file = tmp_path / "costs.json"
    arguments = ["--kernels", "ops.models.mlp:build", "--costs", str(file)]
    assert main(["machine", "--measure", "--devices", "1", *arguments]) == 0
    assert "kernels: there are no two for one thing" in capsys.readouterr().out
    assert len(read_costs(file).kernels) > 5
    assert main(["machine", "--measure", *arguments[:2]]) == 2
    said = "taskflow: machine: --measure --kernels MODEL --costs FILE go together\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    "arguments", [[], ["p100", "--measure"], ["p100", "--validate"], ["--measure", "--validate"]]
)
def test_what_to_show_is_named_once(arguments, capsys):
    assert main(["machine", *arguments]) == 2
    rule = "taskflow: machine: name a preset or a file, or ask for --measure or --validate\n"
    assert capsys.readouterr().err == rule


def test_a_file_of_one_host_has_as_many_as_are_asked_for(tmp_path):
    whole, one = tmp_path / "whole.toml", tmp_path / "one.toml"
    MachineModel.preset("p100", 3).save(whole)
    one.write_text(preset_text("p100"))
    found, preset = find_machine(str(one), nodes=3), MachineModel.preset("p100", 3)
    assert (found.devices, found.links) == (preset.devices, preset.links)
    message = f"machine file '{whole}': describes all devices; a file of 2 equal hosts says 'hosts'"
    assert_refused(message, lambda: find_machine(str(whole), nodes=2))
    rule = f"machine file '{one}': nodes is a positive number, not 0"
    assert_refused(rule, lambda: MachineModel.load(one, 0))
