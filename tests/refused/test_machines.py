"""Machines that cannot be: files, presets, devices and links."""

import math

from taskflow import Device, Link, MachineModel
from tests.refusals import each_refused, of_files

DEVICE, LINK = "[[device]]\ncount = 2\n", "[[link]]\nends = [0, 1]\n"
DEVICE_KEYS = (
    "count, slowdown, kind, host, memory_bytes, flops_per_second, memory_bandwidth, overhead_seconds, rates, "
    "compute_efficiency, memory_efficiency, half_flops, half_bytes, sends_by_link, collective_share, "
    "reserved_bytes, communicator_bytes, burst_efficiency, exposed_share, attention, attention_shares, "
    "joules_per_flop, joules_per_byte, watts, step_seconds"
)
FILES = [
    ("no TOML", "name = ", "is not TOML: Invalid value (at end of document)"),
    ("no device", LINK + "bandwidth = 1", "object missing required field 'device'"),
    ("an empty list", "device = []", "machine 'machine': has no device"),
    (
        "no algorithms",
        f"collectives = 3\n{DEVICE}",
        "'collectives' is 3: expected 'object', got 'int'",
    ),
    ("no tables", "device = 3", "'device' is 3: expected 'array', got 'int'"),
    (
        "an unknown table",
        DEVICE + "[[node]]",
        "object contains unknown field 'node'; the fields are device, version, name, collectives, "
        "collectives_by, overlap, hosts, shared, link, library, protocol, jitter, memory",
    ),
    (
        "an unknown key",
        DEVICE + "gpus = 4",
        f"device entry 0: object contains unknown field 'gpus'; the fields are {DEVICE_KEYS}",
    ),
    ("no count", "[[device]]\ncount = 0", "device entry 0: 'count' is 0: expected 'int' >= 1"),
    ("no hosts", f"hosts = 0\n{DEVICE}", "'hosts' is 0: expected 'int' >= 1"),
    (
        "a negative rate",
        DEVICE + "flops_per_second = -1e12",
        "cpu device of host 0: flops_per_second is a positive number, not -1000000000000.0",
    ),
    (
        "a rate in words",
        DEVICE + 'memory_bandwidth = "fast"',
        "device entry 0: 'memory_bandwidth' is \"fast\": expected 'float', got 'str'",
    ),
    (
        "a rate of a dtype",
        DEVICE + "rates = { float16 = -2 }",
        "cpu device of host 0: the rate of float16 is a positive number, not -2.0",
    ),
    (
        "an unknown dtype",
        DEVICE + "rates = { float8 = 1 }",
        "cpu device of host 0: rates are of float64, float16, bfloat16, tf32, not of 'float8'",
    ),
    (
        "a link without bandwidth",
        DEVICE + LINK,
        "link entry 0: object missing required field 'bandwidth'",
    ),
    (
        "a link without ends",
        DEVICE + "[[link]]\nbandwidth = 1",
        "link entry 0: object missing required field 'ends'",
    ),
    (
        "a link with three ends",
        DEVICE + "[[link]]\nends = [0, 1, 2]\nbandwidth = 1",
        "link entry 0: 'ends' is [0, 1, 2]: expected 'array' of length 2, got 3",
    ),
    (
        "a link to nowhere",
        DEVICE + "[[link]]\nends = [0, 2]\nbandwidth = 1",
        "link entry 0: ends at device 2 of 2",
    ),
    (
        "a link to no place",
        DEVICE + "[[link]]\nends = [0, 1.5]\nbandwidth = 1",
        "link entry 0: 'ends[1]' is 1.5: expected 'int | str | array', got 'float'",
    ),
    (
        "a negative bandwidth",
        DEVICE + LINK + "bandwidth = -3",
        "link 0->1: bandwidth is a positive number, not -3.0",
    ),
    (
        "a negative latency",
        DEVICE + LINK + "bandwidth = 3\nlatency_seconds = -1e-6",
        "link 0->1: latency_seconds is a number from 0, not -1e-06",
    ),
    ("no link", DEVICE, "machine 'machine': no route from device 0 to device 1"),
    (
        "an island",
        "[[device]]\ncount = 3\n" + LINK + "bandwidth = 1",
        "machine 'machine': no route from device 0 to device 2",
    ),
    (
        "a way out and none back",
        DEVICE + LINK + "bandwidth = 1\ndirected = true",
        "machine 'machine': no route from device 1 to device 0",
    ),
    (
        "true rates",
        DEVICE + "flops_per_second = true",
        "device entry 0: 'flops_per_second' is true: expected 'float', got 'bool'",
    ),
    (
        "a part of a byte",
        DEVICE + "memory_bytes = 1.5",
        "device entry 0: 'memory_bytes' is 1.5: expected 'int', got 'float'",
    ),
    (
        "an absurd rate",
        DEVICE + "memory_bandwidth = 1e30",
        "cpu device of host 0: memory_bandwidth is a number from 0.001 to 1e+24, not 1e+30",
    ),
    (
        "an absurd latency",
        DEVICE + LINK + "bandwidth = 1\nlatency_seconds = 1e12",
        "link 0->1: latency_seconds is at most 86400, not 1000000000000.0",
    ),
    (
        "a direction in words",
        DEVICE + LINK + "bandwidth = 1\ndirected = 'no'",
        "link entry 0: 'directed' is \"no\": expected 'bool', got 'str'",
    ),
    (
        "shared places in one word",
        "shared = 'network'\n" + DEVICE,
        "'shared' is \"network\": expected 'array', got 'str'",
    ),
    (
        "a shared place that is none",
        "shared = ['netwrok']\n" + DEVICE + LINK + "bandwidth = 1",
        "shared: no link ends at 'netwrok'",
    ),
    (
        "a host of one of several hosts",
        "hosts = 2\n" + DEVICE + "host = 1",
        "device entry 0: 'host' is for files without 'hosts'",
    ),
    ("a later version", "version = 2\n" + DEVICE, "has version 2, this reads 1"),
    (
        "a hundred million devices",
        "[[device]]\ncount = 100_000_000",
        "has 100000000 devices, at most 4096 are possible",
    ),
    (
        "a hundred million hosts",
        "hosts = 100_000_000\n" + DEVICE,
        "has 200000000 devices, at most 4096 are possible",
    ),
    (
        "too many links",
        f"{DEVICE}[[link]]\nends = [{[0] * 1100}, {[1] * 1100}]\nbandwidth = 1",
        "has 1210000 links, at most 1048576 are possible",
    ),
    ("deep brackets", "name = " + "[" * 5000, "is nested deeper than 32 levels"),
    ("a deep key", "a." * 5000 + "b = 1", "line 1 has more than 100 dots"),
    (
        "a kernel of attention without a share",
        DEVICE + 'attention = "flash 2"',
        "cpu device of host 0: attention is 'flash 2', there is none",
    ),
    (
        "shares of attention that are none",
        DEVICE + 'attention_shares = { "flash 2" = [0.5, 1.5] }',
        "cpu device of host 0: the shares of 'flash 2' are two numbers above 0 and at most 1, not (0.5, 1.5)",
    ),
    ("no number", DEVICE + "half_flops = nan", "the number nan is not finite"),
    (
        "hosts that share nothing",
        f"hosts = 2\n{DEVICE}{LINK}bandwidth = 1",
        "machine 'machine': no route from device 0 to device 2",
    ),
]


def join():
    """Two machines that nothing joins."""
    return MachineModel.join([MachineModel.uniform(2, name="a"), MachineModel.uniform(1, name="b")])


PRESETS = "there are a100, b200, h100, h200, k80, l4, laptop, p100, v100"
REFUSED = [
    *of_files(MachineModel.load, "machine file", "machine.toml", FILES),
    (
        "a file that is not there",
        lambda: MachineModel.load("none.toml"),
        "machine file 'none.toml': there is no such file",
    ),
    (
        "an unknown preset",
        lambda: MachineModel.preset("p200"),
        f"machine preset 'p200': {PRESETS}",
    ),
    (
        "a preset of another folder",
        lambda: MachineModel.preset("../p100"),
        f"machine preset '../p100': {PRESETS}",
    ),
    (
        "a preset without hosts",
        lambda: MachineModel.preset("p100", nodes=0),
        "machine preset 'p100': nodes is a positive number, not 0",
    ),
    (
        "more devices than there are",
        lambda: MachineModel.preset("p100").take(5),
        "machine 'p100': has 4 devices, not 5",
    ),
    (
        "no devices of some",
        lambda: MachineModel.preset("p100").take(0),
        "machine 'p100': has 4 devices, not 0",
    ),
    (
        "machines that nothing joins",
        lambda: join().routes,
        "machine 'a + b': no route from device 0 to device 2",
    ),
    (
        "an unknown kind",
        lambda: Device("tpu"),
        "device: kind is one of cpu, cuda, emulated, not 'tpu'",
    ),
    ("a negative host", lambda: Device(host=-1), "cpu device: host is a number from 0, not -1"),
    (
        "joules that are negative",
        lambda: Link((0, 1), 1e9, joules_per_byte=-1e-12),
        "link 0->1: joules_per_byte is a number from 0, not -1e-12",
    ),
    (
        "an efficiency above 1",
        lambda: Device("cuda", 2, compute_efficiency=1.5),
        "cuda device of host 2: compute_efficiency is above 0 and at most 1, not 1.5",
    ),
    (
        "an overhead that is no number",
        lambda: Device(overhead_seconds=math.nan),
        "cpu device of host 0: overhead_seconds is a number from 0, not nan",
    ),
    (
        "true bytes",
        lambda: Device(memory_bytes=True),
        "cpu device of host 0: memory_bytes is a positive number, not True",
    ),
    (
        "a link to itself",
        lambda: Link(("s", "s"), 1.0),
        "link s->s: joins two different places",
    ),
    (
        "an infinite bandwidth",
        lambda: Link((0, 1), math.inf),
        "link 0->1: bandwidth is a positive number, not inf",
    ),
]
test_refused = each_refused(REFUSED)
