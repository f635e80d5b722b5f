"""Issue order: the items of a rank's step, each on a stream, with the items that it waits for.

`streamed` appends the items of rows in their order, and so do those parts of it that know one way between ranks
(`peers`, `together`) or rows that run as one (`grouped`). An item waits for the rows that its rows depend on; those for
whose memory they wait are among them. What one device computes is one chain; transfers and what runs beside them are
branches, and so are copies from and to the host that take longer than a branch costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

from taskflow.backend import StreamBackend, Workspace
from taskflow.core.numbers import KIB, MIB
from taskflow.execute.gpu.device_check import DeviceChecks
from taskflow.execute.gpu.ledger import PACKING, Ledger
from taskflow.execute.gpu.replay import HOST, Item
from taskflow.execute.program import Call, Compiler
from taskflow.tasks.task_graph import Array, Kind


class StreamKind(IntEnum):
    """What a stream of a device does; the first ones are those of `StreamTable`."""

    COMPUTE = 0
    SENDING = 1  # data leaves for other devices
    RECEIVING = 2
    HOST_COPIES = 3
    WITHIN = 4  # folds, and copies within the device
    OUTPUTS = 5  # data leaves for the host
    LIBRARY = 6


# Bytes that are copied, on the device and to the host, within some 10 us. Less is no branch of its own: a graph that is
# one chain is launched in constant time, of one with branches the host's time grows with its nodes (NVIDIA, "Constant
# Time Launch for Straight-Line CUDA Graphs", 2024; GPT-2's, with branches, took an H200's host 607 us).
_BRANCH_BYTES = {StreamKind.HOST_COPIES: 16 * MIB, StreamKind.OUTPUTS: 512 * KIB}


class ItemOrder:
    """The items of a step in the order in which they are issued.

    Args:
        compiler: whose rows they are for.
        await_for: awaits the messages, and the readers on other ranks, for which a row waits.
    """

    def __init__(
        self,
        compiler: Compiler,
        backend: StreamBackend,
        ledger: Ledger,
        await_for: Callable[[int], None],
    ) -> None:
        self.graph = compiler.graph
        self.plan = compiler.plan
        self.memory = compiler.memory
        self.transport = compiler.transport
        self.backend = backend
        self.ledger = ledger
        self.before = await_for
        self.items: list[Item] = []
        self._devices = len(self.graph.machine.devices)
        self.streams = {
            self.number(kind, d): backend.make_stream(d, kind.name.lower().replace("_", " "))
            for d in self.memory.devices
            for kind in StreamKind
        }
        graph = self.graph
        self._moves = bool((graph.is_transfer | (graph.kind == Kind.COLLECTIVE)).any())
        self._item_of: dict[int, int] = {}
        self._users: dict[
            int, dict[int, int]
        ] = {}  # instance -> stream -> its last item that uses it
        self._packing = {s: Workspace(ledger.maker(self.device(s), PACKING)) for s in self.streams}
        self._crossings: dict[int, int] = {}  # stream -> its last signal, or call of the library
        self.checks = (
            DeviceChecks(backend, ledger, self.graph, self.memory.devices)
            if compiler.check
            else None
        )
        self._born: set[int] = set()
        self._poisoned: dict[int, int] = {}  # instance -> the item that poisons it

    def add(
        self,
        call: Call,
        row: int,
        role: str,
        stream: int,
        uses: Sequence[int],
        of: Sequence[int] = (),
        signals: bool = False,
        awaits: bool = False,
    ) -> int:
        """Append an item that uses these instances, for `row`, or for all rows `of`; its number.

        Other ranks wait for it (it `signals`), or it waits for others (`awaits`): see `peers`.
        """
        for instance in uses if self.checks else ():
            self._poison(row, instance, stream)
        item = len(self.items)
        of = of or (row,)
        deps = [dep for r in of for dep in self.graph.deps(r)]
        waits = {self._item_of[dep] for dep in deps if dep in self._item_of}
        waits.update(self._crossings.values() if awaits else ())
        for instance in uses:
            self._users.setdefault(instance, {})[stream] = item
        waits.update(self._poisoned[instance] for instance in uses if instance in self._poisoned)
        name = f"{role} {self.graph.name(row)}[{self.graph.point[row]}]"
        self.items.append(Item(call, stream, row, role, tuple(sorted(waits)), name))
        self._item_of.update(dict.fromkeys(of, item))
        if signals:
            self._crossings[stream] = item
        return item

    def add_fetch(self, call: Call, stream: int, instance: int) -> None:
        """Append an item at the end of the step that copies an instance to the host, once all that use it are over."""
        before = tuple(self._users.get(instance, {}).values())
        row = max((self.items[k].row for k in before), default=0)
        self.items.append(Item(call, stream, row, "fetch", before))

    def _poison(self, row: int, instance: int, stream: int) -> None:
        """Before `row`, if it is the first to use an instance: nobody may rely on what its memory holds."""
        region = self.graph.regions[int(self.graph.instance_region[instance])]
        if instance in self._born or region.is_persistent or not self.drives_instance(instance):
            return
        self._born.add(instance)
        call = self.backend.poison(self.memory.array(instance))
        self._poisoned[instance] = self.add(call, row, "poison", stream, [instance])

    def item_of(self, row: int) -> int:
        """The item of a row of this rank."""
        return self._item_of[row]

    def ends_with(self, row: int, item: int) -> None:
        """What depends on `row` waits for this item."""
        self._item_of[row] = item

    def device(self, number: int) -> int:
        """The device of a stream."""
        return number % self._devices

    def number(self, kind: StreamKind, device: int) -> int:
        """The stream of a device that does one kind of work."""
        return kind * self._devices + device

    def stream_of(self, kind: StreamKind, device: int, size_bytes: int) -> int:
        """The stream of what copies or folds so many bytes: compute, unless something can be gained beside that."""
        is_short = size_bytes <= _BRANCH_BYTES.get(kind, -1)
        if is_short or (kind == StreamKind.WITHIN and not self._moves):
            kind = StreamKind.COMPUTE
        return self.number(kind, device)

    def pack(self, stream: int, offset: int, array: Array) -> Array:
        """Memory without gaps for the values of an array, for items of one stream that follow each other."""
        packed: Array = self._packing[stream].view(offset, array.shape, array.dtype)[0]
        return packed

    def drives_instance(self, instance: int) -> bool:
        """Whether an instance lies on a device of this rank."""
        return self.transport.drives(int(self.graph.instance_device[instance]))

    def add_host(self, call: Call, row: int, role: str, after: Sequence[int] = ()) -> None:
        """Append an item of the host, which waits for those of the rows `after`."""
        self.items.append(Item(call, HOST, row, role, tuple(self._item_of[k] for k in after)))
