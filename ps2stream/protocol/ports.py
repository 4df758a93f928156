"""The ports of the machines: what they need of the outside world, and no more."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from ps2stream.protocol.frame import I64, U8, Frame
from ps2stream.protocol.messages.updates import LedgerBatch, UpdateDecision
from ps2stream.protocol.tokens import Token


@dataclasses.dataclass(frozen=True, eq=False)
class NamedUpdates(Frame):
    """The request ids of committed deletes and replacements, so that a retry finds its answer after
    a restart too: lsn of the update, rising, id the query's string, request the request id, in each
    row."""

    KIND = 50
    lsn: I64
    id_off: I64
    id: U8
    request_off: I64
    request: U8

    @property
    def last(self) -> int:
        """The LSN of the last one, of which there is one at least."""
        return int(self.lsn[-1])


@dataclasses.dataclass(frozen=True, eq=False)
class LogReached(Frame):
    """dispatcher, merger -> sequencer, after every so many bytes: reports that the log `name` is
    durable up to `position`, and that no number above `highest` was assigned; see LogNote."""

    KIND = 56
    position: int
    highest: int
    name: U8


class LogNote(NamedTuple):
    """A note of the ledger about a log. incarnation: the log's own random number, 0 where it has
    none; position: the log reaches at least this far, and no record before it was stamped with
    an LSN that the ledger lacks; highest: the highest number assigned when this was noted, of an
    offset (object log) or of a session's pair (match log)."""

    incarnation: int
    position: int
    highest: int


class SettledAnswer(NamedTuple):
    """The answer to a dispatcher's request `seq` of its `epoch`. When it sent that, the
    dispatcher knew the answers to all below `settled`, and to those of earlier epochs; they may
    go."""

    dispatcher: int
    epoch: int
    seq: int
    settled: int
    decision: UpdateDecision


@dataclasses.dataclass(frozen=True)
class LedgerChange:
    """The changes that one commit makes durable, all or none.

    batch: the accepted rows, if any; sessions: (number, name) of new ones; requests: request ids
    of updates, those below LSN `forget` may go; answers: for requests that are sent again,
    replacing those that are settled; watermark: no actor needs queries deleted at or below this
    LSN; plan: the one that objects are routed by from now on (JSON); pending: the one that the
    service starts under next time (JSON), "" for none any more; mergers: how many run from now on;
    moves: the LSN of the last change of the tables of sessions or of the number of dispatchers,
    with " moving" while it is under way; dispatchers: ProducerMap.summary.
    """

    batch: LedgerBatch | None = None
    sessions: Sequence[tuple[int, bytes]] = ()
    requests: NamedUpdates | None = None
    forget: int = 0
    answers: Sequence[SettledAnswer] = ()
    watermark: int = 0
    plan: str | None = None
    pending: str | None = None
    mergers: int | None = None
    moves: str | None = None
    dispatchers: str | None = None


class Store(Protocol):
    """The durable ledger (contract.md 2): one total order of query updates.

    One owner at a time. Reading raises DataDirectoryError when what is stored is damaged.
    """

    @property
    def identity(self) -> int:
        """The random number that was drawn when the store was made."""
        ...

    def sessions(self) -> list[tuple[int, bytes]]:
        """Returns (number, name) of every session."""
        ...

    def replay(self, after: int = 0) -> Iterator[LedgerBatch]:
        """Yields the committed batches in LSN order: lsn_from = last lsn_to + 1, from 1, or from
        the batch that follows `after` or holds it. Rows of queries deleted at or below
        `watermark` may be left out; ranges and other rows stay, and `until` says up to where some
        are left out."""
        ...

    def requests(self) -> Iterator[NamedUpdates]:
        """Yields the remembered updates, oldest first."""
        ...

    def answers(self) -> list[SettledAnswer]:
        """Returns the answers that are not settled."""
        ...

    @property
    def watermark(self) -> int:
        """The highest watermark that was committed."""
        ...

    @property
    def lsn(self) -> int:
        """The last LSN that was committed."""
        ...

    def pending_plan(self) -> str:
        """Returns the plan that the service starts under next time (JSON); "" for none."""
        ...

    def log_notes(self) -> dict[str, LogNote] | None:
        """Returns the notes about logs, by name; None for a ledger of a version that had no
        notes."""
        ...

    def note_logs(self, notes: Mapping[str, LogNote]) -> None:
        """Makes these the notes about logs, durably, or changes nothing. Raises Unavailable."""
        ...

    def epoch(self, role: str, index: int) -> int:
        """Returns the epoch of a new incarnation of this actor: higher than any before, and
        durable. Raises Unavailable when it cannot be written."""
        ...

    def commit(self, change: LedgerChange) -> None:
        """Makes the whole change durable, or nothing of it. Raises Unavailable when it cannot;
        then nothing of the call counts."""
        ...

    def replace(self, batch: LedgerBatch) -> None:
        """Puts a batch in the place of those whose LSNs it covers, durably, or changes nothing.
        Raises Unavailable."""
        ...

    def find_problem(self) -> str:
        """Returns why no update is taken at present; empty if updates are taken. Tries a write
        where the last one was refused, so only the owner's thread may call it, and not often."""
        ...

    def tokens(self) -> Sequence[Token]:
        """Returns all tokens."""
        ...

    def keep_tokens(self, tokens: Sequence[Token]) -> None:
        """Makes these the tokens, durably, or changes nothing. Raises Unavailable."""
        ...

    def close(self) -> None: ...


class Log(Protocol):
    """An append-only log of byte records, durable once synced (contract.md 2).

    One owner at a time. Positions rise; a record's position is that of its first byte. One
    thread may append while another syncs and others read.
    """

    @property
    def first(self) -> int:
        """The position of the oldest record that is kept; `end` when there is none."""
        ...

    @property
    def end(self) -> int:
        """The position of the next record; what lies before may still have to be synced."""
        ...

    @property
    def synced(self) -> int:
        """The position before which all records are durable."""
        ...

    def append(self, record: bytes) -> int:
        """Appends a record and returns its position. It is durable only after a sync.

        Raises Unavailable: on a full disk for this call alone, and nothing was taken; after any
        other error for good.
        """
        ...

    def sync(self) -> int:
        """Makes all that was appended before the call durable and returns the end of that.

        Raises Unavailable, for good: what a failed sync left is only known after a restart.
        """
        ...

    def read(self, position: int) -> bytes:
        """Returns a record, synced or not. Raises KeyError when no kept record can begin there,
        DataDirectoryError when what is stored there is damaged."""
        ...

    def scan(self, start: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yields (position, record) from `start`, the position of a record, or from the oldest
        record, up to the end at the time of the call. Raises DataDirectoryError, like `read`."""
        ...

    def trim(self, before: int) -> None:
        """Drops records before this position: those whose whole segment lies there. Raises
        Unavailable, for good."""
        ...

    def close(self) -> None:
        """Releases the log; what was not synced is lost. Idempotent."""
        ...

    @property
    def problem(self) -> str:
        """Why no record is taken at present; empty if records are taken. Any thread may ask, for
        some microseconds."""
        ...

    @property
    def bytes(self) -> int:
        """The size of the log on disk."""
        ...
