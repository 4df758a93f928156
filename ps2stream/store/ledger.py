"""The embedded ledger: SQLite (apsw) in WAL mode, synced at every commit (contract.md 2).

A row of `log` is one group commit: its LSN range, a CRC-32 and the encoded `Applied`.
The mark (directory.py) notices an end that got lost. After an I/O error nothing more is
written: what a failed fsync left on the disk is only known after a restart.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Self

import apsw
import numpy as np

from ps2stream.batch import I64
from ps2stream.errors import DataDirectoryError, Unavailable
from ps2stream.messages import Applied
from ps2stream.ports import DeleteRequests
from ps2stream.rows import Kind, QueryRows
from ps2stream.store.database import connect, reading
from ps2stream.store.directory import Mark, lock
from ps2stream.store.tokens import KeepsTokens

FORMAT = 2  # 1 had no mark
MIN_COMPACT = 10_000  # rows; below, a rewrite is not worth it

# Strict, so that quick_check looks at the types.
_TABLES = {
    "meta": "(key TEXT PRIMARY KEY, value TEXT NOT NULL, crc32 INTEGER NOT NULL) STRICT",
    "sessions": "(number INTEGER PRIMARY KEY, name BLOB NOT NULL, crc32 INTEGER NOT NULL) STRICT",
    "requests": "(lsn_to INTEGER PRIMARY KEY, crc32 INTEGER NOT NULL, blob BLOB NOT NULL) STRICT",
    "log": "(lsn_from INTEGER PRIMARY KEY, lsn_to INTEGER NOT NULL, crc32 INTEGER NOT NULL, "
    "blob BLOB NOT NULL) STRICT",
}
_READ = "SELECT lsn_from, lsn_to, crc32, blob FROM log ORDER BY lsn_from"


class Ledger(KeepsTokens):
    """A Store in a data directory. Make one with `Ledger.open`; one thread at a time."""

    def __init__(self, path: Path, held: BinaryIO, mark: Mark, db: apsw.Connection) -> None:
        self.path = path
        self._lock = held
        self._mark = mark
        self._db = db
        self._lsn = self._named = 0  # the last LSN, the number of sessions
        self._failed = ""

    @classmethod
    def open(cls, path: str | os.PathLike[str], analysis: str, created: str = "") -> Self:
        """Open the data directory, or make it. `analysis` is the JSON of the text analysis
        settings, `created` a time for people to read.

        Raises DataDirectoryError when it is in use, damaged, of another format, made with
        other analysis settings, or no directory; the ledger is left as it was then.
        """
        path = Path(path)
        with contextlib.ExitStack() as undo:
            held = undo.enter_context(lock(path))
            mark = Mark(path)
            undo.callback(mark.close)
            with reading(path):
                db = connect(path / "ledger.db")
                undo.callback(db.close)
                db.set_busy_timeout(5000)
                ledger = cls(path, held, mark, db)
                if db.execute("SELECT count(*) FROM sqlite_schema").get == 0:
                    mark.check(0, 0)
                    ledger._create(analysis, created)
                if db.pragma("quick_check", 1) != "ok":
                    raise DataDirectoryError(f"{path}: the ledger is damaged (quick_check)")
                ledger._check_meta(analysis)
                db.pragma("journal_mode", "wal")
                db.pragma("synchronous", "full")
                ledger._check_content()
                ledger.compact()
                db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
            undo.pop_all()
        return ledger

    def close(self) -> None:
        """Release the directory; idempotent."""
        self._db.close()
        self._mark.close()
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- reading ---------------------------------------------------------------

    def sessions(self) -> list[tuple[int, bytes]]:
        with reading(self.path):
            found = list(self._db.execute("SELECT number, name, crc32 FROM sessions"))
        for number, name, crc in found:
            self._check(crc == _crc_session(number, name), f"session {number}")
        return [(number, name) for number, name, _ in found]

    def replay(self) -> Iterator[Applied]:
        last = 0
        with reading(self.path):
            for lsn_from, lsn_to, crc, blob in self._db.execute(_READ):
                where = f"the log at LSN {lsn_from}"
                self._check(zlib.crc32(blob) == crc, where)
                batch = Applied.decode(blob)
                same = (batch.lsn_from, batch.lsn_to) == (lsn_from, lsn_to)
                self._check(same and lsn_from == last + 1, where)
                last = lsn_to
                yield batch

    def requests(self) -> Iterator[DeleteRequests]:
        with reading(self.path):
            for lsn, crc, blob in self._db.execute(
                "SELECT lsn_to, crc32, blob FROM requests ORDER BY lsn_to"
            ):
                where = f"the requests at LSN {lsn}"
                self._check(zlib.crc32(blob) == crc, where)
                seen = DeleteRequests.decode(blob)
                self._check(int(seen.lsn[-1]) == lsn, where)
                yield seen

    # --- writing ---------------------------------------------------------------

    def commit(
        self,
        batches: Sequence[Applied],
        sessions: Sequence[tuple[int, bytes]] = (),
        requests: DeleteRequests | None = None,
        forget: int = 0,
    ) -> None:
        """One synced transaction; see Store.commit. Raises Unavailable: for this call alone
        on a full disk, for good after any other error."""
        if self._failed:
            raise Unavailable(f"the ledger takes no updates until a restart: {self._failed}")
        run = self._db.execute
        try:
            run("BEGIN IMMEDIATE")
            for number, name in sessions:
                run(
                    "INSERT INTO sessions VALUES (?, ?, ?)",
                    (number, name, _crc_session(number, name)),
                )
            for batch in batches:
                self._write("log", batch)
            if requests is not None:
                blob = requests.encode()
                run("DELETE FROM requests WHERE lsn_to < ?", (forget,))
                run(
                    "INSERT INTO requests VALUES (?, ?, ?)",
                    (int(requests.lsn[-1]), zlib.crc32(blob), blob),
                )
            run("COMMIT")
        except apsw.FullError as error:
            self._rollback()
            raise Unavailable(f"the disk of {self.path} is full") from error
        except apsw.Error as error:
            self._rollback()
            self._failed = str(error)
            raise Unavailable(f"the ledger cannot be written: {error}") from error
        self._lsn = batches[-1].lsn_to if batches else self._lsn
        self._named += len(sessions)
        with contextlib.suppress(OSError):  # a mark that stays behind is true all the same
            self._mark.set(self._lsn, self._named)

    def compact(self) -> bool:
        """Rewrite the log without deleted queries when more than half of its rows are dead;
        reads and checks all of it. True when it was rewritten. Atomic."""
        rows = 0
        gone = [np.zeros(0, np.int64)]
        for batch in self.replay():
            columns = QueryRows.decode(batch.rows.data)
            rows += len(columns)
            gone.append(columns.handle[columns.kind == Kind.DELETE])
        deleted = np.sort(np.concatenate(gone))
        if rows < MIN_COMPACT or 4 * len(deleted) <= rows:  # a delete kills two rows
            return False
        run = self._db.execute
        try:
            run("BEGIN IMMEDIATE")
            run(f"CREATE TABLE compacted {_TABLES['log']}")
            for batch in self.replay():
                self._write("compacted", _without(batch, deleted))
            run("DROP TABLE log")
            run("ALTER TABLE compacted RENAME TO log")
            run("COMMIT")
            run("VACUUM")
        except apsw.FullError:
            self._rollback()  # the longer log is as good
            return False
        return True

    def _write(self, table: str, batch: Applied) -> None:
        blob = batch.encode()
        self._db.execute(
            f"INSERT INTO {table} VALUES (?, ?, ?, ?)",
            (batch.lsn_from, batch.lsn_to, zlib.crc32(blob), blob),
        )

    def _rollback(self) -> None:
        with contextlib.suppress(apsw.Error):
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    # --- the directory -----------------------------------------------------------

    def _create(self, analysis: str, created: str) -> None:
        db = self._db
        db.pragma("page_size", 16384)
        with db:
            for name, columns in _TABLES.items():
                db.execute(f"CREATE TABLE {name} {columns}")
            for key, value in (
                ("format", str(FORMAT)),
                ("analysis", analysis),
                ("created", created),
            ):
                crc = zlib.crc32(value.encode())
                db.execute("INSERT INTO meta VALUES (?, ?, ?)", (key, value, crc))

    def _check_content(self) -> None:
        """All tables, and that nothing acknowledged is missing at the end; the log itself is
        read by `compact`."""
        schema = "SELECT name, replace(sql, '\"', '') FROM sqlite_schema WHERE type = 'table'"
        want = {name: f"CREATE TABLE {name} {columns}" for name, columns in _TABLES.items()}
        self._check(dict(self._db.execute(schema)) == want, "the schema")
        deque(self.requests(), maxlen=0)
        self._named = len(self.sessions())
        self._lsn = self._db.execute("SELECT ifnull(max(lsn_to), 0) FROM log").get
        self._mark.check(self._lsn, self._named)
        try:
            self._mark.set(self._lsn, self._named, sync=True)
        except OSError as error:
            raise DataDirectoryError(f"{self.path} cannot be used: {error.strerror}") from error

    def _check_meta(self, analysis: str) -> None:
        meta: dict[str, str] = {}
        for key, value, crc in self._db.execute("SELECT key, value, crc32 FROM meta"):
            self._check(zlib.crc32(value.encode()) == crc, f"meta {key!r}")
            meta[key] = value
        self._check({"format", "analysis"} <= meta.keys() and meta["format"].isdigit(), "meta")
        if (found := int(meta["format"])) != FORMAT:
            age = "newer" if found > FORMAT else "older"
            raise DataDirectoryError(
                f"{self.path} has format {found}, {age} than {FORMAT}, the one that this version "
                "reads; use the version that wrote it, or another directory"
            )
        if json.loads(meta["analysis"]) != json.loads(analysis):
            raise DataDirectoryError(
                f"{self.path} was made with the text analysis {meta['analysis']}, not {analysis}; "
                "its queries would match other words. Use its settings, or another directory"
            )

    def _check(self, good: bool, what: str) -> None:
        if not good:
            raise DataDirectoryError(f"{self.path}: {what} is damaged; restore a copy")


def recorded_analysis(path: str | os.PathLike[str]) -> str | None:
    """The text analysis that the directory was made with (JSON); None when there is no
    ledger yet. Raises DataDirectoryError when it cannot be read."""
    file = Path(path) / "ledger.db"
    if not file.exists():
        return None
    with reading(Path(path)):
        db = connect(file, apsw.SQLITE_OPEN_READWRITE)
        try:
            found = db.execute("SELECT value, crc32 FROM meta WHERE key = 'analysis'").get
        finally:
            db.close()
        if found is None:
            return None
        value, crc = found
        if zlib.crc32(value.encode()) != crc:
            raise ValueError("the checksum of the text analysis does not fit")
    return str(value)


def _without(batch: Applied, deleted: I64) -> Applied:
    """The batch without the rows of `deleted` (sorted handles), and without any delete."""
    rows = QueryRows.decode(batch.rows.data)
    at = np.searchsorted(deleted, rows.handle)
    at[at == len(deleted)] = 0
    live = (rows.kind == Kind.INSERT) & (deleted[at] != rows.handle)
    kept = rows.take(np.flatnonzero(live)).encode()
    return Applied(batch.lsn_from, batch.lsn_to, batch.owner, np.frombuffer(kept, np.uint8))


def _crc_session(number: int, name: bytes) -> int:
    return zlib.crc32(name, number & 0xFFFFFFFF)
