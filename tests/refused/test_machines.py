"""Machines that cannot be: files, presets, devices and links."""

import math

import pytest

from taskflow import Device, Link, MachineModel
from tests.refusals import assert_refused

DEVICE, LINK = "[[device]]\ncount = 2\n", "[[link]]\nends = [0, 1]\n"
DEVICE_KEYS = (
    "count, kind, host, memory_bytes, flops_per_second, memory_bandwidth, overhead_seconds, rates, "
    "compute_efficiency, memory_efficiency, half_flops, half_bytes"
)
FILES = {
    "no TOML": ("name = ", "is not TOML: Invalid value (at end of document)"),
    "no device": (LINK + "bandwidth = 1", "the file: 'device' is missing"),
    "an empty list": ("device = []", "machine 'machine': has no device"),
    "no number of devices": (
        f"direct_devices = 0\n{DEVICE}",
        "machine 'machine': direct_devices is a positive number, not 0",
    ),
    "no tables": ("device = 3", "'device' is written as [[device]] tables"),
    "an unknown table": (
        DEVICE + "[[node]]",
        "the file: there is no key 'node'; the keys are name, direct_devices, hosts, shared, device, link",
    ),
    "an unknown key": (
        DEVICE + "gpus = 4",
        f"device entry 0: there is no key 'gpus'; the keys are {DEVICE_KEYS}",
    ),
    "no count": ("[[device]]\ncount = 0", "device entry 0: count is a positive number, not 0"),
    "no hosts": (f"hosts = 0\n{DEVICE}", "hosts is a positive number, not 0"),
    "a negative rate": (
        DEVICE + "flops_per_second = -1e12",
        "cpu device of host 0: flops_per_second is a positive number, not -1000000000000.0",
    ),
    "a rate in words": (
        DEVICE + 'memory_bandwidth = "fast"',
        "cpu device of host 0: memory_bandwidth is a positive number, not 'fast'",
    ),
    "a rate of a dtype": (
        DEVICE + "rates = { float16 = -2 }",
        "cpu device of host 0: the rate of float16 is a positive number, not -2",
    ),
    "an unknown dtype": (
        DEVICE + "rates = { float8 = 1 }",
        "cpu device of host 0: rates are of float64, float16, bfloat16, tf32, not of 'float8'",
    ),
    "a link without bandwidth": (DEVICE + LINK, "link entry 0: 'bandwidth' is missing"),
    "a link without ends": (DEVICE + "[[link]]\nbandwidth = 1", "link entry 0: 'ends' is missing"),
    "a link with three ends": (
        DEVICE + "[[link]]\nends = [0, 1, 2]\nbandwidth = 1",
        "link entry 0: ends are two places, not [0, 1, 2]",
    ),
    "a link to nowhere": (
        DEVICE + "[[link]]\nends = [0, 2]\nbandwidth = 1",
        "link entry 0: ends at device 2 of 2",
    ),
    "a link to no place": (
        DEVICE + "[[link]]\nends = [0, 1.5]\nbandwidth = 1",
        "link entry 0: an end is the number of a device or the name of a switch, not 1.5",
    ),
    "a negative bandwidth": (DEVICE + LINK + "bandwidth = -3", "link 0->1: bandwidth is a positive number, not -3"),
    "a negative latency": (
        DEVICE + LINK + "bandwidth = 3\nlatency_seconds = -1e-6",
        "link 0->1: latency_seconds is a number from 0, not -1e-06",
    ),
    "no link": (DEVICE, "machine 'machine': no route from device 0 to device 1"),
    "an island": (
        "[[device]]\ncount = 3\n" + LINK + "bandwidth = 1",
        "machine 'machine': no route from device 0 to device 2",
    ),
    "a way out and none back": (
        DEVICE + LINK + "bandwidth = 1\ndirected = true",
        "machine 'machine': no route from device 1 to device 0",
    ),
    "hosts that share nothing": (
        f"hosts = 2\n{DEVICE}{LINK}bandwidth = 1",
        "machine 'machine': no route from device 0 to device 2",
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_a_machine_file(case, tmp_path):
    text, message = FILES[case]
    path = tmp_path / "machine.toml"
    path.write_text(text)
    assert_refused(f"machine file '{path}': {message}", lambda: MachineModel.load(path))


def test_a_file_that_is_not_there():
    assert_refused("machine file 'none.toml': there is no such file", lambda: MachineModel.load("none.toml"))


def test_an_unknown_preset():
    message = "machine preset 'p200': there are a100, h100, h200, k80, laptop, p100, v100"
    assert_refused(message, lambda: MachineModel.preset("p200"))
    assert_refused(message.replace("p200", "../p100"), lambda: MachineModel.preset("../p100"))


def test_a_preset_without_hosts():
    assert_refused(
        "machine preset 'p100': nodes is a positive number, not 0", lambda: MachineModel.preset("p100", nodes=0)
    )


def test_more_devices_than_there_are():
    machine = MachineModel.preset("p100")
    assert_refused("machine 'p100': has 4 devices, not 5", lambda: machine.take(5))
    assert_refused("machine 'p100': has 4 devices, not 0", lambda: machine.take(0))


def test_machines_that_nothing_joins():
    machine = MachineModel.join([MachineModel.uniform(2, name="a"), MachineModel.uniform(1, name="b")])
    assert_refused("machine 'a + b': no route from device 0 to device 2", lambda: machine.routes)


def test_a_device_that_cannot_be():
    assert_refused("device: kind is one of cpu, cuda, emulated, not 'tpu'", lambda: Device("tpu"))
    assert_refused("cpu device: host is a number from 0, not -1", lambda: Device(host=-1))
    message = "cuda device of host 2: compute_efficiency is above 0 and at most 1, not 1.5"
    assert_refused(message, lambda: Device("cuda", 2, compute_efficiency=1.5))
    message = "cpu device of host 0: overhead_seconds is a number from 0, not nan"
    assert_refused(message, lambda: Device(overhead_seconds=math.nan))
    assert_refused(
        "cpu device of host 0: memory_bytes is a positive number, not True", lambda: Device(memory_bytes=True)
    )


def test_a_link_that_cannot_be():
    assert_refused("link s->s: joins two different places", lambda: Link(("s", "s"), 1.0))
    assert_refused("link 0->1: bandwidth is a positive number, not inf", lambda: Link((0, 1), math.inf))
