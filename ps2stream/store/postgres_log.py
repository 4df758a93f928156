"""An append-only log in PostgreSQL: the `Log` of ports.py as rows of a table.

Appending only buffers; a sync is one transaction in one round trip. A record that is missing
between two others is noticed, as positions follow on one another.
"""

from __future__ import annotations

import contextlib
import threading
import time
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import LiteralString, Self

from ps2stream.errors import DataDirectoryError, StoreFailed, Unavailable
from ps2stream.store.postgres_owner import PostgresOwner
from ps2stream.store.postgres_session import PostgresDatabase, PostgresSession, Statement
from ps2stream.store.postgres_tokens import LEDGER
from ps2stream.store.tables import Row

MAX_RECORD = 512 << 20  # bytes; PostgreSQL's own limit is a gigabyte
GAP = 1  # between two records, so that empty ones have positions of their own
_SEND = 32 << 20  # bytes of records in one statement, unless one is larger
_PAGE = 16 << 20  # bytes of records read at a time
_RETRY_S = 0.2

_INSERT: LiteralString = (
    "INSERT INTO records SELECT %s, * FROM unnest(%b::bigint[], %b::bigint[], %b::bytea[])"
)
_TRIM: LiteralString = "DELETE FROM records WHERE log = %s AND position < %s"
_NAMES = "SELECT name FROM owners WHERE name <> $1 ORDER BY name"
_FIRST: LiteralString = "UPDATE owners SET first = %s WHERE name = %s"
_READ = "SELECT position, crc32, record FROM records WHERE log = $1 AND position = $2"
_SCAN = f"""
SELECT position, crc32, record FROM (
    SELECT *, sum(octet_length(record)) OVER (ORDER BY position) - octet_length(record) AS before
    FROM (SELECT * FROM records WHERE log = $1 AND position >= $2 ORDER BY position LIMIT 256) near
) page WHERE before < {_PAGE} ORDER BY position
"""
_END = f"""
SELECT position, position + octet_length(record) + {GAP} FROM records WHERE log = $1
ORDER BY position DESC LIMIT 1
"""


class PostgresLog:
    """A Log in a PostgreSQL database. Make one with `PostgresLog.open`.

    One thread may append while another syncs and others read, scan and trim.
    """

    def __init__(
        self, owner: PostgresOwner, reader: PostgresSession, segment_bytes: int, patience_s: float
    ):
        self._owner = owner
        self._reader = reader
        self._segment_bytes = segment_bytes
        self._patience_s = patience_s
        self._fresh: dict[int, bytes] = {}  # appended records, by position
        self._writing: dict[int, bytes] = {}  # and those that a sync is writing
        self._refusing = ""  # why appends are refused for now
        self._failed = ""
        self._lock = threading.Lock()  # guards all the fields
        self._syncing = threading.Lock()  # one sync at a time, in the owner's session
        self._reading = threading.Lock()  # guards the reader's session
        name = owner.name
        self._first: int = owner.select("SELECT first FROM owners WHERE name = $1", name)[0][0]
        [(oldest,)] = owner.select("SELECT min(position) FROM records WHERE log = $1", name)
        if (oldest is None and self._first) or (oldest not in (None, self._first)):
            raise self._damage_error(self._first)
        self._last: int = self._first  # the last record that is synced
        self._synced: int = self._first  # its end
        for position, end in owner.select(_END, name):
            self._last, self._synced = position, end
        self._end = self._synced
        self._trim_to = self._first

    @classmethod
    def open(
        cls,
        database: PostgresDatabase,
        name: str,
        *,
        take_over: bool = False,
        wait_s: float | None = None,
        segment_bytes: int = 16 << 20,
        patience_s: float = 10.0,
    ) -> Self:
        """Opens the log of this name, or makes one; see Owner. `segment_bytes` are trimmed at
        once; a sync that is refused, as by a full disk, is tried again for `patience_s`.

        Raises DataDirectoryError when it is in use or damaged, Unavailable when the database
        cannot be reached.
        """
        with contextlib.ExitStack() as undo:
            owner = PostgresOwner(database, name, take_over=take_over, wait_s=wait_s)
            undo.callback(owner.close)
            reader = PostgresSession(database, f"{name} reader")
            undo.callback(reader.close)
            if reader.timeline != owner.timeline:
                raise Unavailable(f"{owner}: another server has just become the primary")
            log = cls(owner, reader, segment_bytes, patience_s)
            undo.pop_all()
        return log

    def close(self) -> None:
        with self._syncing, self._reading, self._lock:
            self._failed = self._failed or "it is closed"
            self._owner.close()
            self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- reading -------------------------------------------------------------------

    @property
    def first(self) -> int:
        with self._lock:
            return self._first

    @property
    def end(self) -> int:
        return self._end

    @property
    def synced(self) -> int:
        return self._synced

    def read(self, position: int) -> bytes:
        with self._lock:
            for waiting in (self._fresh, self._writing):
                if (record := waiting.get(position)) is not None:
                    return record
            if not self._first <= position < self._synced:
                raise KeyError(position)
        for found, crc, record in self._select_records(_READ, position):
            if crc == _compute_crc(found, record):
                return bytes(record)
        if position < self.first:
            raise KeyError(position)
        raise self._damage_error(position)

    def scan(self, start: int = 0) -> Iterator[tuple[int, bytes]]:
        with self._lock:
            waiting = [*self._writing.items(), *self._fresh.items()]
            return self._scan_records(start, self._first, self._synced, waiting)

    def _scan_records(
        self, start: int, first: int, synced: int, waiting: list[tuple[int, bytes]]
    ) -> Iterator[tuple[int, bytes]]:
        at = max(start, first)
        while at < synced:
            before = at
            for position, crc, record in self._select_records(_SCAN, at):
                if position != at or at >= synced:
                    break
                if crc != _compute_crc(position, record):
                    raise self._damage_error(at)
                yield at, record
                at += len(record) + GAP
            if at == before:
                if at >= self.first:
                    raise self._damage_error(at)
                at = self.first  # it was trimmed in the meantime
        for position, record in waiting:
            if position >= start:
                yield position, record

    def _select_records(self, query: str, position: int) -> list[Row]:
        try:
            with self._reading:
                return self._reader.select(query, self._owner.name, position)
        except StoreFailed as error:
            with self._lock:
                self._failed = self._failed or str(error)
            raise

    # --- writing -------------------------------------------------------------------

    def append(self, record: bytes) -> int:
        if len(record) > MAX_RECORD:
            raise ValueError(f"record: {len(record)} bytes are over the limit of {MAX_RECORD}")
        with self._lock:
            self._check_usable()
            if self._refusing:
                raise Unavailable(self._refusing)
            position = self._end
            self._fresh[position] = record
            self._end = position + len(record) + GAP
            return position

    def sync(self) -> int:
        with self._syncing:
            with self._lock:
                self._check_usable()
                end = self._end
                if end == self._synced:
                    return end
                batch = self._writing = self._fresh
                self._fresh = {}
            try:
                first = self._find_next_first()
                statements = [*self._build_inserts(batch), *self._build_deletes(first)]
                with self._lock:
                    # Before the rows go: a reader that misses one looks here.
                    self._first = first
                self._write_statements(statements)
            except BaseException as error:
                with self._lock:
                    self._failed = str(error) or type(error).__name__
                raise
            with self._lock:
                self._last, self._synced = next(reversed(batch)), end
                self._writing, self._refusing = {}, ""
            return end

    def trim(self, before: int) -> None:
        """Only notes the position: a later sync removes what fills a segment."""
        with self._lock:
            self._check_usable()
            self._trim_to = max(self._trim_to, min(before, self._last))

    def _write_statements(self, statements: list[Statement]) -> None:
        give_up = time.monotonic() + self._patience_s
        while True:
            try:
                self._owner.write(statements)
                return
            except StoreFailed:
                raise
            except Unavailable as error:
                if time.monotonic() > give_up:
                    raise
                with self._lock:
                    self._refusing = str(error)
                time.sleep(_RETRY_S)

    def _build_inserts(self, batch: dict[int, bytes]) -> Iterator[Statement]:
        positions, records = list(batch), list(batch.values())
        ends = list(accumulate(map(len, records)))
        start = 0
        while start < len(records):
            sent = ends[start - 1] if start else 0
            stop = max(start + 1, bisect_right(ends, sent + _SEND))
            at, page = positions[start:stop], records[start:stop]
            yield _INSERT, (self._owner.name, at, list(map(_compute_crc, at, page)), page)
            start = stop

    def _find_next_first(self) -> int:
        """Returns where the log begins after the next sync."""
        with self._lock:
            first, wanted = self._first, self._trim_to
        if wanted - first < self._segment_bytes:
            return first
        query = "SELECT min(position) FROM records WHERE log = $1 AND position >= $2"
        [(position,)] = self._owner.select(query, self._owner.name, wanted)
        return int(position)

    def _build_deletes(self, first: int) -> list[Statement]:
        if first == self._first:
            return []
        return [(_TRIM, (self._owner.name, first)), (_FIRST, (first, self._owner.name))]

    def _check_usable(self) -> None:
        if self._failed:
            raise Unavailable(self._describe_failure())

    def _describe_failure(self) -> str:
        return f"{self._owner} accepts no writes until a restart: {self._failed}"

    @property
    def problem(self) -> str:
        with self._lock:
            return self._describe_failure() if self._failed else self._refusing

    def _damage_error(self, position: int) -> DataDirectoryError:
        return DataDirectoryError(
            f"{self._owner}: position {position} is damaged: no intact record begins there; "
            "restore a copy"
        )

    @property
    def bytes(self) -> int:
        with self._lock:
            return self._end - self._first


def _compute_crc(position: int, record: bytes) -> int:
    return zlib.crc32(record, zlib.crc32(b"%d" % position))


def list_logs(database: PostgresDatabase) -> list[str]:
    """Returns the names of the logs that have been made. Raises DataDirectoryError, Unavailable."""
    session = PostgresSession(database, "logs")
    try:
        if not session.has_tables():
            return []
        return [name for (name,) in session.select(_NAMES, LEDGER)]
    finally:
        session.close()
