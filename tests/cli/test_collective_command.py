"""`taskflow collective`: one collective by every algorithm and protocol."""

import json

import pytest

from taskflow import MachineModel
from taskflow.cli import main
from taskflow.cli.collective import bus_bytes
from taskflow.collective.price import CollectiveCosts


def priced(capsys, *options):
    assert main(["collective", "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)["prices"]


@pytest.mark.parametrize("name", ["all-reduce", "all-gather", "broadcast"])
def test_every_way_has_a_price_and_one_is_chosen(capsys, name):
    prices = priced(capsys, "--machine", "h200", "--bytes", "64M", "--collective", name)
    assert {each["moved_by"] for each in prices} == {"nccl", "own"}
    assert [each["seconds"] for each in prices] == sorted(each["seconds"] for each in prices)
    (chosen,) = (each for each in prices if each["is_chosen"])
    expected = CollectiveCosts(MachineModel.preset("h200")).prices(tuple(range(8)))
    assert chosen["seconds"] == pytest.approx(expected.choose(name, 64 << 20).seconds, rel=0.02)
    least = min(each["expected_seconds"] for each in prices if each["moved_by"] == "nccl")
    assert chosen["expected_seconds"] == least
    for each in prices:
        assert each["bus_bandwidth"] == bus_bytes(name, 64 << 20, 8) / each["seconds"]


def test_bus_bytes_are_those_of_nccl_tests():
    assert bus_bytes("all-reduce", 800, 8) == 1400
    assert bus_bytes("reduce-scatter", 800, 8) == bus_bytes("all-gather", 800, 8) == 700
    assert bus_bytes("broadcast", 800, 8) == 800


def test_without_a_library_the_own_algorithms_are_left(capsys):
    prices = priced(capsys, "--machine", "laptop", "--hosts", "2", "--bytes", "3K")
    assert {each["moved_by"] for each in prices} == {"own"}
    (chosen,) = (each for each in prices if each["is_chosen"])
    assert chosen == prices[0]
    assert main(["collective", "--machine", "h100", "--hosts", "2", "--bytes", "1G"]) == 0
    assert "nvls-tree, Simple" in capsys.readouterr().out


@pytest.mark.parametrize("options", [["--bytes", "1T"], ["--bytes", "0"], ["--bytes", "M"]])
def test_other_sizes_are_refused(options, capsys):
    with pytest.raises(SystemExit):
        main(["collective", "--machine", "h100", *options])
    assert "is a positive number, not" in capsys.readouterr().err


def test_one_device_has_no_collective(capsys):
    assert main(["collective", "--machine", "h100", "--devices", "1", "--bytes", "1K"]) == 2
    assert "is among two devices or more" in capsys.readouterr().err
