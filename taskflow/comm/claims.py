"""Claims of ranks that do not share memory with rank 0: a thread of it answers them, one message there and back.

The thread takes items from the same cells as ranks of its host do. It answers while the rank computes, as soon as
Python lets it run. (Rejected: `MPI.Win.Compare_and_swap`, which rank 0 answers when it calls MPI, after its item.)
"""

from __future__ import annotations

import secrets
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from selectors import EVENT_READ, DefaultSelector
from threading import Thread
from typing import NamedTuple
from weakref import finalize

from taskflow.core.system import host_address

Claim = Callable[[int, int, int], int]  # (cell, round, count) -> item, or -1
TOKEN_SECONDS = 5.0  # in which who connects must say the token
_ASKED = struct.Struct("3q")
_ANSWERED = struct.Struct("q")
_TOKEN = struct.Struct("Q")


class ClaimsAddress(NamedTuple):
    """Where claims are answered, and the token of those who may ask."""

    host: str
    port: int
    token: int


def answer_claims(claim: Claim, claimants: int) -> ClaimsAddress:
    """Answer so many claimants of other processes by `claim`, until all of them have gone."""
    server = socket.create_server(("", 0), backlog=claimants)
    where = ClaimsAddress(host_address(), server.getsockname()[1], secrets.randbits(62))
    Thread(target=_answer, args=(server, claim, claimants, where.token), daemon=True).start()
    return where


def _answer(server: socket.socket, claim: Claim, claimants: int, token: int) -> None:
    with server, DefaultSelector() as selector:
        while claimants:
            claimant, _ = server.accept()
            claimant.settimeout(TOKEN_SECONDS)
            if _said(claimant, _TOKEN.size) == _TOKEN.pack(token):
                claimant.settimeout(None)
                selector.register(claimant, EVENT_READ, claimant)
                claimants -= 1
            else:  # a stranger
                claimant.close()
        while selector.get_map():
            for key, _ in selector.select():
                claimant = key.data
                asked = claimant.recv(_ASKED.size, socket.MSG_WAITALL)
                if len(asked) < _ASKED.size:
                    selector.unregister(claimant)
                    claimant.close()
                    continue
                claimant.sendall(_ANSWERED.pack(claim(*_ASKED.unpack(asked))))


def _said(claimant: socket.socket, size: int) -> bytes:
    """So many bytes, or fewer of one who says no more in time."""
    with suppress(OSError):
        return claimant.recv(size, socket.MSG_WAITALL)
    return b""


def distant_claims(where: ClaimsAddress) -> Claim:
    """Claims that are answered there, for as long as somebody holds the function."""
    asking = socket.create_connection(where[:2])
    asking.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    asking.sendall(_TOKEN.pack(where.token))

    def claim(cell: int, turn: int, count: int) -> int:
        asking.sendall(_ASKED.pack(cell, turn, count))
        answered = asking.recv(_ANSWERED.size, socket.MSG_WAITALL)
        if len(answered) < _ANSWERED.size:
            raise ConnectionError("a claim: rank 0, which counts them, has gone")
        item: int = _ANSWERED.unpack(answered)[0]
        return item

    finalize(claim, asking.close)
    return claim
