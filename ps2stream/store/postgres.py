"""The ledger of a cluster: the Store of ports.py in PostgreSQL, synced at every commit.

Durable means: flushed by the server, and by its synchronous standby where it has one
(synchronous_standby_names). Ownership, and what becomes of a lost connection, is the business
of postgres_owner.py.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import time
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import ClassVar, LiteralString, Self

from ps2stream.errors import DataDirectoryError, StoreFailed, Unavailable
from ps2stream.protocol.messages.updates import LedgerBatch
from ps2stream.protocol.ports import LedgerChange, LogNote
from ps2stream.store import postgres_schema
from ps2stream.store.compaction import compact_log, find_outlived
from ps2stream.store.postgres_owner import PostgresOwner
from ps2stream.store.postgres_session import PostgresDatabase, PostgresSession, Statement
from ps2stream.store.postgres_tokens import LEDGER, PostgresTokens
from ps2stream.store.refusal import StoreRefusal
from ps2stream.store.tables import (
    PAGE,
    LedgerTables,
    Row,
    answer_row,
    epoch_row,
    log_row,
    meta_row,
    notes_row,
    requests_row,
    session_row,
)

META: LiteralString = (
    "INSERT INTO meta VALUES (%s, %s, %s) ON CONFLICT (key) DO UPDATE "
    "SET value = excluded.value, crc32 = excluded.crc32"
)
EPOCH: LiteralString = (
    "INSERT INTO epochs VALUES (%s, %s, %s, %s) ON CONFLICT (role, number) DO UPDATE "
    "SET epoch = excluded.epoch, crc32 = excluded.crc32"
)
LOG: LiteralString = "INSERT INTO log VALUES (%s, %s, %s, %b)"
ANSWER: LiteralString = (
    "INSERT INTO answers VALUES (%s, %s, %s, %s, %s, %b) ON CONFLICT (dispatcher, epoch, seq) "
    "DO UPDATE SET settled = excluded.settled, crc32 = excluded.crc32, blob = excluded.blob"
)
BEGIN_COMPACTION: tuple[LiteralString, ...] = (
    "DROP TABLE IF EXISTS compacted",
    "CREATE TABLE compacted (LIKE log INCLUDING ALL)",
)
END_COMPACTION: tuple[LiteralString, ...] = (
    "DROP TABLE log",
    "ALTER TABLE compacted RENAME TO log",
)
TRY_S = 30.0
"""Time between two attempts to write where nobody else writes."""


class PostgresLedger(PostgresTokens, LedgerTables):
    """A Store in a PostgreSQL database. Make one with `PostgresLedger.open`; one thread at a
    time."""

    FORMAT: ClassVar[int] = postgres_schema.FORMAT

    def __init__(self, owner: PostgresOwner) -> None:
        super().__init__(str(owner.database))
        self._owner = owner
        self._watermark = self._identity = 0
        self._last_epochs: dict[tuple[str, int], int] = {}  # by role and index
        self._refusal = StoreRefusal(self.place)
        self._tried_at = -math.inf

    @classmethod
    def open(
        cls,
        database: PostgresDatabase,
        analysis: str,
        created: str = "",
        compact: bool = True,
        take_over: bool = False,
        wait_s: float | None = None,
    ) -> Self:
        """Opens the ledger, or makes it; see Ledger.open and Owner.

        Raises DataDirectoryError when it is in use, damaged, of another format or made with
        other analysis settings, Unavailable when the database cannot be reached.
        """
        owner = PostgresOwner(database, LEDGER, take_over=take_over, wait_s=wait_s)
        try:
            ledger = cls(owner)
            if not owner.select("SELECT 1 FROM meta WHERE key = 'analysis'"):
                ledger._create_meta(analysis, created)
            ledger._watermark, ledger._identity = ledger._read_meta(analysis)
            deque(ledger.requests(), maxlen=0)
            ledger.answers()
            ledger.sessions()
            ledger.tokens()
            ledger._last_epochs = {
                (role, index): epoch for role, index, epoch in ledger._read_epochs()
            }
            if compact:
                ledger.compact()
            else:
                deque(ledger.replay(), maxlen=0)
        except BaseException:
            owner.close()
            raise
        return ledger

    def close(self) -> None:
        """Releases the ledger; idempotent."""
        self._owner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _select_rows(self, query: str, *values: int) -> list[Row]:
        return self._owner.select(query, *values)

    @property
    def identity(self) -> int:
        return self._identity

    @property
    def watermark(self) -> int:
        return self._watermark

    # --- writing -------------------------------------------------------------------

    def epoch(self, role: str, index: int) -> int:
        epoch = self._last_epochs.get((role, index), 0) + 1
        self._write([(EPOCH, epoch_row(role, index, epoch))])
        self._last_epochs[role, index] = epoch
        return epoch

    @property
    def lsn(self) -> int:
        [(lsn,)] = self._select_rows("SELECT coalesce(max(lsn_to), 0) FROM log")
        return int(lsn)

    def replace(self, batch: LedgerBatch) -> None:
        gone = "DELETE FROM log WHERE lsn_from BETWEEN %s AND %s", (batch.lsn_from, batch.lsn_to)
        self._write([gone, (LOG, log_row(batch))])

    def note_logs(self, notes: Mapping[str, LogNote]) -> None:
        self._write([(META, notes_row(notes))])

    def commit(self, change: LedgerChange) -> None:
        """Commits the change in one synced transaction and one round trip; see Store.commit.
        Raises Unavailable when nothing was done, StoreFailed, for good, when that is unknown."""
        self._write(list(self._build_statements(change)))
        self._watermark = max(self._watermark, change.watermark)

    def _write(self, statements: list[Statement]) -> None:
        try:
            self._owner.write(statements)
        except StoreFailed:
            raise
        except Unavailable as error:
            raise self._refusal.note(str(error)) from error
        self._refusal.end()

    def find_problem(self) -> str:
        if self._refusal.problem or not self._owner.is_connected:
            self._try_again()
        return self._owner.failure or self._refusal.problem

    def _try_again(self) -> None:
        """Writes what is there already, unless that was tried just now: a server that does not
        answer takes seconds."""
        if self._owner.failure or time.monotonic() < self._tried_at + TRY_S:
            return
        self._tried_at = time.monotonic()
        with contextlib.suppress(Unavailable):
            self._write([(META, meta_row("watermark", str(self._watermark)))])

    def _build_statements(self, change: LedgerChange) -> Iterator[Statement]:
        for number, name in change.sessions:
            yield "INSERT INTO sessions VALUES (%s, %b, %s)", session_row(number, name)
        if change.batch is not None:
            yield LOG, log_row(change.batch)
        if change.requests is not None:
            yield "DELETE FROM requests WHERE lsn_to < %s", (change.forget,)
            yield "INSERT INTO requests VALUES (%s, %s, %b)", requests_row(change.requests)
        settled = {a.dispatcher: (a.dispatcher, a.epoch, a.settled) for a in change.answers}
        for row in settled.values():
            yield "DELETE FROM answers WHERE dispatcher = %s AND (epoch, seq) < (%s, %s)", row
        for answer in change.answers:
            yield ANSWER, answer_row(answer)
        if change.watermark > self._watermark:
            yield META, meta_row("watermark", str(change.watermark))
        if change.plan is not None:
            yield META, meta_row("plan", change.plan)
        if change.pending is not None:
            yield META, meta_row("pending_plan", change.pending)
        if change.mergers is not None:
            yield META, meta_row("mergers", str(change.mergers))
        if change.moves is not None:
            yield META, meta_row("moves", change.moves)
        if change.dispatchers is not None:
            yield META, meta_row("dispatchers", change.dispatchers)

    def compact(self) -> bool:
        """Compacts the log; see Ledger.compact."""
        deleted = find_outlived(self.replay(), self._watermark)
        if not len(deleted):
            return False
        batches = map(log_row, compact_log(self.replay(), deleted))
        put: LiteralString = "INSERT INTO compacted VALUES (%s, %s, %s, %b)"
        try:
            self._owner.write([(query, ()) for query in BEGIN_COMPACTION])
            while page := list(islice(batches, PAGE)):
                self._owner.write([(put, row) for row in page])
            self._owner.write([(query, ()) for query in END_COMPACTION])
        except StoreFailed:
            raise
        except Unavailable:
            return False  # the longer log serves as well
        return True

    def _create_meta(self, analysis: str, created: str) -> None:
        values = {"analysis": analysis, "created": created, "watermark": "0"}
        values["identity"] = str(secrets.randbits(63))
        rows = [*(meta_row(key, value) for key, value in values.items()), notes_row({})]
        self._owner.write([(META, row) for row in rows])


def recorded(database: PostgresDatabase, key: str) -> str | None:
    """Returns what the ledger keeps under this key; None when there is no ledger yet, or no such
    key. Raises DataDirectoryError when it cannot be read, Unavailable."""
    session = PostgresSession(database, "start")
    try:
        if not session.has_tables():
            return None
        found = "SELECT key, value, crc32 FROM meta WHERE key = $1"
        for row in session.select(found, key):
            if row != meta_row(*row[:2]):
                raise DataDirectoryError(f"{database}: meta {key!r} is damaged")
            return str(row[1])
        return None
    finally:
        session.close()
