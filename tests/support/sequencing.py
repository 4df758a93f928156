"""What a sequencer decides, row by row, and its answers as tests read them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
from hypothesis import strategies as st

from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import I64
from ps2stream.protocol.messages.sessions import SessionGrant, SessionRequest
from ps2stream.protocol.messages.updates import (
    LedgerBatch,
    LedgerTip,
    UpdateDecision,
    UpdateRequest,
    UpdateStatus,
)
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.sequencer.hash_table import SaltedHash
from ps2stream.sequencer.machine import SequencerMachine
from ps2stream.sequencer.packed_rows import QueryChunk, list_columns
from tests.support.updates import Row, delete, insert, replace, update

OK, EXISTS, MISSING = UpdateStatus.OK, UpdateStatus.ALREADY_EXISTS, UpdateStatus.NOT_FOUND
CHANGED = UpdateStatus.FAILED_PRECONDITION

IDS = st.sampled_from("abcdef")
ROWS = st.one_of(
    st.builds(insert, IDS, st.sampled_from(["x", "yy"]), st.sampled_from(["s", "t", ""])),
    st.builds(
        replace,
        IDS,
        st.sampled_from(["x", "yy", "zzz"]),
        st.sampled_from(["s", "t", ""]),
        st.sampled_from(["", "p", "q", "r"]),
        st.one_of(st.just(0), st.integers(1, 30)),
    ),
    st.builds(delete, IDS, st.sampled_from(["", "s", "t", "new"]), st.sampled_from(["", "p", "q"])),
)


@contextlib.contextmanager
def cut_hashes(bits: int) -> Iterator[None]:
    """Hashes have only so many bits, so that nearly all keys collide."""
    with mock.patch.object(SaltedHash, "BITS", bits):
        yield


def inserts(rows: QueryRows, at: I64) -> tuple[tuple[Any, ...], I64, I64]:
    """What QueryChunk.append is given of these rows."""
    return list_columns(rows), at, rows.handle[at]


def without_dead_bytes(chunk: QueryChunk) -> QueryChunk:
    """A chunk with the same rows, of which the dead ones have no bytes."""
    sizes = np.diff(chunk._off[: len(chunk) + 1])
    return chunk.drop_dead_bytes(int(sizes[~chunk.live].sum()))


class TwinSequencer:
    """What semantics.md 5 says, a row at a time."""

    def __init__(self) -> None:
        self.lsn = 0
        self.live: dict[str, tuple[int, str, str]] = {}  # id: handle, session, source
        self.known: dict[tuple[str, str], int] = {}  # by id and request id
        self.unstored: set[tuple[str, str]] = set()  # of these, what changed nothing
        self.log: list[tuple[int, int, int, str]] = []  # lsn, kind, handle, id

    def restart(self) -> None:
        """Forgets the requests that changed nothing, as a sequencer that starts again does."""
        for key in self.unstored:
            del self.known[key]
        self.unstored.clear()

    def decide(self, row: Row) -> tuple[UpdateStatus, int]:
        kind, id, session, source, request, if_lsn = row
        now = self.live.get(id)
        if request and (id, request) in self.known:
            return OK, self.known[id, request]
        if kind == UpdateKind.DELETE:
            if now is None or (session and session != now[1]):
                return MISSING, 0
        elif now is not None:
            if now[1:] == (session, source):
                if request:
                    self.known[id, request] = now[0]
                    self.unstored.add((id, request))
                return OK, now[0]
            if kind == UpdateKind.INSERT or now[1] != session:
                return EXISTS, 0
            if if_lsn not in (0, now[0]):
                return CHANGED, 0
        elif if_lsn:
            return CHANGED, 0
        self.lsn += 1
        if now is not None:
            del self.live[id]
            self.log.append((self.lsn, UpdateKind.DELETE, now[0], id))
        if kind != UpdateKind.DELETE:
            self.live[id] = (self.lsn, session, source)
            self.log.append((self.lsn, UpdateKind.INSERT, self.lsn, id))
        if request:
            self.known[id, request] = self.lsn
        return OK, self.lsn


def answers(sends: Sequence[Send]) -> list[tuple[UpdateStatus, int]]:
    out: list[tuple[UpdateStatus, int]] = []
    for send in sends:
        if isinstance(send.frame, UpdateDecision):
            out += zip(map(UpdateStatus, send.frame.status), send.frame.lsn.tolist(), strict=True)
    return out


def applied_rows(sends: Sequence[Send], dispatcher: int = 0) -> list[tuple[LedgerBatch, QueryRows]]:
    to = Address("dispatcher", dispatcher)
    frames = [s.frame for s in sends if s.to == to and isinstance(s.frame, LedgerBatch)]
    return [(f, QueryRows.decode(f.rows.data)) for f in frames]


def decisions(sends: Sequence[Send]) -> list[tuple[int, bytes]]:
    """To whom, and what."""
    found = [(s.to.index, s.frame) for s in sends]
    return [(to, f.encode()) for to, f in found if isinstance(f, UpdateDecision)]


def tips(sends: Sequence[Send]) -> dict[Address, tuple[int, int]]:
    return {s.to: (s.frame.lsn, s.frame.visible) for s in sends if isinstance(s.frame, LedgerTip)}


def a_request(seq: int, settled: int = 0, dispatcher: int = 0, epoch: int = 1) -> UpdateRequest:
    """Done twice it would delete what it inserted, and take new LSNs."""
    rows: list[Row] = [insert(f"{seq}"), delete(f"{seq}"), insert(f"{seq}")]
    return update(rows, seq, dispatcher, epoch, settled)


def granted(machine: SequencerMachine, name: str, dispatcher: int = 0) -> int:
    """The number of the session of this name, which is made if it is new."""
    raw = np.frombuffer(name.encode(), np.uint8)
    [send] = machine.on(SessionRequest(dispatcher, 7, 1, raw))
    assert isinstance(send.frame, SessionGrant)
    assert (send.to.index, send.frame.seq) == (dispatcher, 7)
    return send.frame.session
