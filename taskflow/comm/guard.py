"""The guard of a rank: a process beside it that sees how it fares, and ends it when all must end.

It is a process because it has to outlive the rank, to go on while the rank is stopped, and to look while a search or
a kernel holds Python's lock. So the heart of a rank is the system's word that its process lives. (Rejected: a thread,
which does not outlive it; a counter that the rank advances, which stands still in a long search.) Every `TICK_SECONDS`
a guard asks the system, reads the cells of the rank, which stay when it is gone, and reports to the centre. That is the
first guard of the host; where it dies, another takes its place. Once ranks of several hosts have joined MPI it is rank
0's guard, and connections that die say which host is lost. The centre judges. Then the guard of the rank at fault says
what happened and kills it, the others theirs a little later; so the launcher, too, names the right one and ends badly.

It is started without the package (`heart`): it imports the standard library and `judge`, and is there in 30 ms.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import struct
import sys
import time
from bisect import bisect_left
from contextlib import suppress
from pathlib import Path

from taskflow.comm.judge import (
    CELLS,
    LINE_BYTES,
    STATUS,
    Cell,
    Fault,
    RankState,
    Report,
    Stage,
    judge,
    phase_of,
)

TICK_SECONDS = 0.25
LATER_SECONDS = 0.5  # by which the others are killed after the one at fault
OWN_END_SECONDS = 5.0  # for a rank that ends all ranks by itself
CONNECT_SECONDS = 5.0
LOST_SECONDS = 60.0  # out of reach, where patience has no end
SAYS = {
    Fault.DIED: "died",
    Fault.STOPPED: "has been stopped for {:g} s",
    Fault.STANDS: "has not moved for {:g} s",
    Fault.LEFT: "left before the others, which wait for it,",
    Fault.LOST: "is out of reach",
    Fault.FAILED: "left with an error",
}
_REPORT = struct.Struct("<10q")
_VERDICT = struct.Struct("<2q")


def state_of(process: int) -> RankState:
    """Whether a process runs, is stopped (not by a debugger), or has ended."""
    try:
        letter = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return RankState.GONE
    return {b"T": RankState.STOPPED, b"Z": RankState.GONE, b"X": RankState.GONE}.get(
        letter, RankState.RUNS
    )


def rank_of(process: int) -> int | None:
    """The rank that a process is, or stands before; None if it is none."""
    try:
        variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:  # not Linux, or a process of another user
        return None
    named = dict(variable.partition(b"=")[::2] for variable in variables)
    ranks = [
        named[name]
        for name in (b"OMPI_COMM_WORLD_RANK", b"PMIX_RANK", b"PMI_RANK")
        if name in named
    ]
    return int(ranks[0]) if ranks else None


class Guard:
    """The guard of one rank.

    Args:
        rank, size: of the job.
        is_one_host: whether all of it is on this host.
        process, launcher: process numbers of the rank and of what started it.
        patience: see `judge`.
        memory: the file of the cells and tables.
        rank_end: the socket to the rank; an empty line says "look now", another one where to meet other hosts, and the
            last one with which status the rank leaves.
        job: a name that the ranks of this job on this host share.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        is_one_host: bool,
        process: int,
        launcher: int,
        patience: float,
        memory: int,
        rank_end: int,
        job: str,
    ) -> None:
        self.rank = rank
        self.size = size
        self.is_one_host = is_one_host
        self.process = process
        self.launcher = launcher
        self.patience = patience
        self.memory = memory
        self.job = job
        self.token = 0
        self.state = RankState.RUNS
        self.place = (0, 0, 0, -1)
        self.still = self.stopped = 0.0
        self.has_failed = False
        self.looked = time.monotonic()
        self.ranks: dict[int, Report] = {}  # as the centre
        self.guards: dict[socket.socket, int] = {}  # as the centre: whose
        self.centre: socket.socket | None = None  # None: this one
        self.selector = selectors.DefaultSelector()
        self.selector.register(socket.socket(fileno=rank_end), selectors.EVENT_READ, self._obey)
        with suppress(AttributeError, OSError):  # an old Linux: then it is seen at the next tick
            self.selector.register(os.pidfd_open(process), selectors.EVENT_READ, self._close)
        if rank == 0 and not is_one_host:
            server = socket.create_server(("", 0), backlog=size)
            os.pwrite(memory, struct.pack("<q", server.getsockname()[1]), 8 * Cell.PORT)
            self.selector.register(server, selectors.EVENT_READ, self._accept)

    def run(self) -> None:
        """Guard until the rank has ended as it should, and as the centre until all have."""
        self._find_centre()
        self._make_known()
        while (
            self.state != RankState.GONE
            or self._stage(self._cells()) != Stage.DONE
            or self._is_needed()
        ):
            for key, _ in self.selector.select(TICK_SECONDS):
                if (
                    self.selector.get_map().get(key.fd) is key
                ):  # else what came before it has closed it
                    key.data(key.fileobj)
            if time.monotonic() - self.looked >= TICK_SECONDS:
                self._look()
            if state_of(self.launcher) == RankState.GONE:
                segments = self._segments()
                self._kill()
                for path in segments:
                    path.unlink(missing_ok=True)
                return

    def _is_needed(self) -> bool:
        """Whether others count on this guard as their centre, or will: it alone knows how its rank has left."""
        return bool(self.guards) or (
            self.centre is None and self.is_one_host and len(self.ranks) < self.size
        )

    def _close(self, source: int | socket.socket) -> None:
        self.selector.unregister(source)
        source.close() if isinstance(source, socket.socket) else os.close(source)
        self._look()

    # -- the rank ------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """See how the rank fares, and report it."""
        now = time.monotonic()
        passed = min(now - self.looked, 2 * TICK_SECONDS)  # a host that slept is not held to it
        self.looked = now
        self.state = state_of(self.process)
        cells = self._cells()
        table = cells[Cell.TABLE]
        position = self._position(cells)
        place = cells[Cell.COUNT], cells[Cell.WAITING], table, position
        self.still = (
            self.still + passed if place == self.place and not cells[Cell.COMPILING] else 0.0
        )
        self.stopped = self.stopped + passed if self.state == RankState.STOPPED else 0.0
        self.place = place
        waits = self._line(table, position).startswith(b"wait") if table else cells[Cell.WAITING]
        about = self._stage(cells), cells[Cell.COUNT], cells[Cell.STEP] if table else -1, waits
        times = int(self.still * 1e3), int(self.stopped * 1e3)
        report = Report(self.token, self.rank, self.state, *about, *times, cells[Cell.PHASE])
        if self.centre is None:
            self._take(report)
        else:
            with suppress(OSError):  # that it is closed is heard
                self.centre.sendall(_REPORT.pack(*report))

    def _stage(self, cells: tuple[int, ...]) -> int:
        """How far the end of the rank is. Ranks that have met wait for each other in MPI's own end, so none fails."""
        has_failed = (
            self.has_failed
            and cells[Cell.STAGE] == Stage.DONE
            and not cells[Cell.COUNT]
            and self.size > 1
        )
        return Stage.FAILED if has_failed else cells[Cell.STAGE]

    def _cells(self) -> tuple[int, ...]:
        return struct.unpack(f"<{CELLS}q", os.pread(self.memory, 8 * CELLS, 0))

    def _position(self, cells: tuple[int, ...]) -> int:
        """The call of the step under way; where that cannot be known, the last one seen; -1 between steps."""
        if not (table := cells[Cell.TABLE]):
            return -1
        count = self._count(table)
        if cells[Cell.ITERATOR]:
            try:
                with open(f"/proc/{self.process}/mem", "rb", 0) as file:
                    begun: int = struct.unpack(
                        "<q", os.pread(file.fileno(), 8, cells[Cell.ITERATOR])
                    )[0]
            except (OSError, struct.error):  # it is gone, or may not be looked into
                return self.place[3] if self.place[2] == table else 0
            return begun - 1 if 0 < begun <= count else count
        ends = struct.unpack(f"<{count + 1}d", os.pread(self.memory, 8 * (count + 1), table + 8))
        return bisect_left(range(1, count + 1), True, key=lambda k: ends[k] < ends[0])

    def _count(self, table: int) -> int:
        return int(struct.unpack("<q", os.pread(self.memory, 8, table))[0])

    def _line(self, table: int, position: int) -> bytes:
        """What a call is."""
        return os.pread(
            self.memory, LINE_BYTES, table + 16 + 8 * self._count(table) + LINE_BYTES * position
        ).rstrip()

    def _where(self) -> str:
        """Phase of the rank and, in a step, the call."""
        cells = self._cells()
        if not (table := cells[Cell.TABLE]):
            return phase_of(cells[Cell.PHASE])
        return f"step {cells[Cell.STEP]}, {self._line(table, self._position(cells)).decode(errors='ignore')}"

    def _obey(self, rank_end: socket.socket) -> None:
        """Look now, or take note of what the rank tells first."""
        lines = rank_end.recv(4096)
        if not lines:  # the rank has ended
            self._close(rank_end)
            return
        for line in filter(None, lines.split(b"\n")):
            if line.startswith(STATUS):
                self.has_failed = (
                    line != STATUS + b"\0"
                )  # that of a fork, too, until the rank's own
            else:
                self._meet_hosts(*json.loads(line))
        self._make_known()

    def _make_known(self) -> None:
        """Report the rank, and tell it that this is done."""
        self._look()
        os.pwrite(self.memory, struct.pack("<q", 1), 8 * Cell.IS_KNOWN)

    def _meet_hosts(self, token: int, host: str, port: int) -> None:
        """From now on stand with the guards of other hosts, whose centre is rank 0's."""
        self._leave_centre()
        self.token = token
        if self.rank:
            try:
                self._follow(socket.create_connection((host, port), timeout=CONNECT_SECONDS))
            except OSError as error:
                self._say(
                    f"cannot reach rank 0's host: {error}; it will not notice the end of other hosts"
                )

    # -- the others ----------------------------------------------------------------------------------------------------

    def _find_centre(self) -> None:
        """Follow the centre of this host, or become it."""
        name = f"\0taskflow-{os.getuid()}-{self.job}"
        while True:
            endpoint = socket.socket(socket.AF_UNIX)
            with suppress(OSError):
                endpoint.bind(name)
                endpoint.listen(self.size)
                self.selector.register(endpoint, selectors.EVENT_READ, self._accept)
                return
            with suppress(OSError):
                endpoint.connect(name)
                if _is_own(endpoint):
                    self._follow(endpoint)
                    return
            endpoint.close()
            time.sleep(TICK_SECONDS / 10)  # it is just ending, or just beginning

    def _follow(self, centre: socket.socket) -> None:
        self._keep_alive(centre)
        self.centre = centre
        self.selector.register(centre, selectors.EVENT_READ, self._hear)

    def _leave_centre(self) -> None:
        """Have nothing more to do with the guards of this host."""
        local = [key.fileobj for key in self.selector.get_map().values() if key.data != self._obey]
        for endpoint in local:
            if isinstance(endpoint, socket.socket) and endpoint.family == socket.AF_UNIX:
                self.selector.unregister(endpoint)
                endpoint.close()
        self.centre = None
        self.guards = {g: r for g, r in self.guards.items() if g.fileno() >= 0}
        self.ranks = {}

    def _accept(self, listening: socket.socket) -> None:
        guard, _ = listening.accept()
        if guard.family == socket.AF_UNIX and not _is_own(guard):
            guard.close()
            return
        self._keep_alive(guard)
        self.guards[guard] = -1
        self.selector.register(guard, selectors.EVENT_READ, self._hear)

    def _keep_alive(self, other: socket.socket) -> None:
        """Have the system tell when a host is out of reach for longer than `patience`."""
        other.settimeout(None)
        if other.family != socket.AF_UNIX:
            limit = self.patience or LOST_SECONDS
            other.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, seconds in (
                (socket.TCP_KEEPIDLE, limit / 2),
                (socket.TCP_KEEPINTVL, limit / 8),
            ):
                other.setsockopt(socket.IPPROTO_TCP, option, max(1, int(seconds)))
            other.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1e3 * limit))

    def _hear(self, source: socket.socket) -> None:
        """A report to the centre or its verdict, or that the other end is closed or out of reach."""
        record = _REPORT if source in self.guards else _VERDICT
        is_lost = False
        try:
            packed = source.recv(record.size, socket.MSG_WAITALL)
        except OSError:
            packed = b""
            is_lost = source.family != socket.AF_UNIX
        if source is self.centre:
            if len(packed) == record.size:
                rank, fault = record.unpack(packed)
                self._end(rank, Fault(fault))
            self.selector.unregister(source)
            source.close()
            self.centre = None
            if is_lost:
                self._end(0, Fault.LOST)
            if source.family == socket.AF_UNIX:
                self._find_centre()
        elif (
            len(packed) == record.size
            and (report := Report(*record.unpack(packed))).token == self.token
        ):
            self.guards[source] = report.rank
            self._take(report)
        else:
            self.selector.unregister(source)
            source.close()
            rank = self.guards.pop(source)
            if is_lost and rank >= 0:
                self._pass(rank, Fault.LOST)
            if rank in self.ranks and self.ranks[rank].state != RankState.GONE:
                del self.ranks[rank]  # it has no guard, or one that has another centre now

    def _take(self, report: Report) -> None:
        """As the centre: note a report, and judge when it is this one's turn or tells of an end."""
        self.ranks[report.rank] = report
        if report.rank == self.rank or report.state == RankState.GONE or report.stage >= Stage.SAID:
            verdict = judge(self.ranks, self.size, self.patience, self._is_gone)
            if verdict is not None:
                self._pass(*verdict)

    def _is_gone(self, rank: int) -> bool:
        """Whether a rank without a guard has ended: the launcher has this guard's rank, but no such one."""
        alive: set[int | None] = set()
        for file in (
            Path(f"/proc/{self.launcher}/task").glob("*/children") if self.is_one_host else ()
        ):
            with suppress(OSError):
                alive |= {
                    rank_of(p)
                    for p in map(int, file.read_text().split())
                    if state_of(p) != RankState.GONE
                }
        return self.rank in alive and rank not in alive

    # -- the end -------------------------------------------------------------------------------------------------------

    def _pass(self, rank: int, fault: Fault) -> None:
        """As the centre: pass the verdict."""
        for guard in self.guards:
            with suppress(OSError):
                guard.sendall(_VERDICT.pack(rank, fault))
        self._end(rank, fault)

    def _end(self, rank: int, fault: Fault) -> None:
        """Say what is ours to say, see to it that this rank ends, and be gone."""
        is_mine = rank == self.rank
        ends_itself = fault in (Fault.SAID, Fault.FAILED)
        if fault != Fault.SAID and (
            is_mine or (self.centre is None and rank not in self.guards.values())
        ):
            self._say(SAYS[fault].format(self.patience), "; all ranks end", rank)
        elif fault == Fault.STANDS:
            self._say("stood")
        seconds = OWN_END_SECONDS if ends_itself else 0.0 if is_mine else LATER_SECONDS
        end = time.monotonic() + seconds
        while state_of(self.process) != RankState.GONE and time.monotonic() < end:
            time.sleep(TICK_SECONDS / 10)
        self._kill()
        if fault == Fault.LOST:
            self._end_launcher()
        sys.exit()

    def _end_launcher(self) -> None:
        """It would wait, for minutes, for a host that does not answer."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(OSError):
                os.kill(self.launcher, number)
            end = time.monotonic() + OWN_END_SECONDS
            while state_of(self.launcher) != RankState.GONE and time.monotonic() < end:
                time.sleep(TICK_SECONDS / 10)

    def _segments(self) -> set[Path]:
        """The files that MPI shares with other ranks of the host, which the launcher removes, unless it is killed."""
        try:
            maps = Path(f"/proc/{self.process}/maps").read_text()
        except OSError:  # the rank has gone
            return set()
        paths = {
            Path(line.split(maxsplit=5)[5]) for line in maps.splitlines() if "_segment." in line
        }
        return {path for path in paths if path.name.startswith(("sm_segment.", "vader_segment."))}

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)

    def _say(self, what: str, end: str = "", rank: int = -1) -> None:
        """One line on the rank's standard error; `rank`: of another one, whose guard has gone or never came."""
        text = f"rank {self.rank} (process {self.process} on {socket.gethostname()}) {what} in {self._where()}"
        if rank not in (-1, self.rank):
            report = self.ranks.get(rank)
            text = f"rank {rank} {what} " + (
                f"in {phase_of(report.phase)}" if report else "before it imported taskflow"
            )
        with suppress(OSError):
            os.write(2, f"taskflow: {text}{end}\n".encode())


def _is_own(end: socket.socket) -> bool:
    """Whether a process of this user is at the other end."""
    _, user, _ = struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return bool(user == os.getuid())


def main() -> None:
    """Guard as the arguments of this process say."""
    Guard(*json.loads(sys.argv[-1])).run()
