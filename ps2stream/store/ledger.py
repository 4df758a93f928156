"""The embedded ledger: SQLite (apsw) in WAL mode, synced at every commit (contract.md 2).

A row of `log` is one group commit: its LSN range, a CRC-32 and the encoded `Applied`.
One process owns a data directory (flock). After an I/O error nothing more is written:
what a failed fsync left on the disk is only known after a restart.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Self

import apsw
import numpy as np

from ps2stream.batch import I64, FrameError
from ps2stream.errors import DataDirectoryError, Unavailable
from ps2stream.messages import Applied
from ps2stream.ports import DeleteRequests
from ps2stream.rows import Kind, QueryRows

FORMAT = 1
MIN_COMPACT = 10_000  # rows; below, a rewrite is not worth it

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, crc32 INTEGER NOT NULL);
CREATE TABLE sessions
    (number INTEGER PRIMARY KEY, name BLOB NOT NULL, crc32 INTEGER NOT NULL);
CREATE TABLE requests
    (lsn_to INTEGER PRIMARY KEY, crc32 INTEGER NOT NULL, blob BLOB NOT NULL);
"""
_LOG = """CREATE TABLE {} (lsn_from INTEGER PRIMARY KEY, lsn_to INTEGER NOT NULL,
    crc32 INTEGER NOT NULL, blob BLOB NOT NULL)"""
_READ = "SELECT lsn_from, lsn_to, crc32, blob FROM log ORDER BY lsn_from"


class Ledger:
    """A Store in a data directory. Make one with `Ledger.open`; one thread at a time."""

    def __init__(self, path: Path, lock: BinaryIO, db: apsw.Connection) -> None:
        self.path = path
        self._lock = lock
        self._db = db
        self._failed = ""

    @classmethod
    def open(cls, path: str | os.PathLike[str], analysis: str, created: str = "") -> Self:
        """Open the data directory, or make it. `analysis` is the JSON of the text analysis
        settings, `created` a time for people to read.

        Raises DataDirectoryError when it is in use, damaged, of a newer format, made with
        other analysis settings, or no directory; it is left as it was then.
        """
        path = Path(path)
        with contextlib.ExitStack() as undo:
            lock = _lock(path)
            undo.callback(lock.close)
            with _reading(path):
                db = apsw.Connection(str(path / "ledger.db"))
                undo.callback(db.close)
                db.set_busy_timeout(5000)
                ledger = cls(path, lock, db)
                if db.execute("SELECT count(*) FROM sqlite_schema").get == 0:
                    ledger._create(analysis, created)
                ledger._check_meta(analysis)
                db.pragma("journal_mode", "wal")
                db.pragma("synchronous", "full")
                if db.pragma("quick_check", 1) != "ok":
                    raise DataDirectoryError(f"{path}: the ledger is damaged (quick_check)")
                ledger.compact()
            undo.pop_all()
        return ledger

    def close(self) -> None:
        """Release the directory; idempotent."""
        self._db.close()
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- reading ---------------------------------------------------------------

    def sessions(self) -> list[tuple[int, bytes]]:
        with _reading(self.path):
            found = list(self._db.execute("SELECT number, name, crc32 FROM sessions"))
        for number, name, crc in found:
            self._check(crc == _crc_session(number, name), f"session {number}")
        return [(number, name) for number, name, _ in found]

    def replay(self) -> Iterator[Applied]:
        last = 0
        with _reading(self.path):
            for lsn_from, lsn_to, crc, blob in self._db.execute(_READ):
                where = f"the log at LSN {lsn_from}"
                self._check(zlib.crc32(blob) == crc, where)
                batch = Applied.decode(blob)
                same = (batch.lsn_from, batch.lsn_to) == (lsn_from, lsn_to)
                self._check(same and lsn_from == last + 1 and lsn_to >= lsn_from, where)
                last = lsn_to
                yield batch

    def requests(self) -> Iterator[DeleteRequests]:
        with _reading(self.path):
            for lsn, crc, blob in self._db.execute(
                "SELECT lsn_to, crc32, blob FROM requests ORDER BY lsn_to"
            ):
                self._check(zlib.crc32(blob) == crc, f"the requests at LSN {lsn}")
                yield DeleteRequests.decode(blob)

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
            run(_LOG.format("compacted"))
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
            for statement in (_SCHEMA, _LOG.format("log")):
                db.execute(statement)
            for key, value in (
                ("format", str(FORMAT)),
                ("analysis", analysis),
                ("created", created),
            ):
                crc = zlib.crc32(value.encode())
                db.execute("INSERT INTO meta VALUES (?, ?, ?)", (key, value, crc))

    def _check_meta(self, analysis: str) -> None:
        meta: dict[str, str] = {}
        for key, value, crc in self._db.execute("SELECT key, value, crc32 FROM meta"):
            self._check(zlib.crc32(value.encode()) == crc, f"meta {key!r}")
            meta[key] = value
        self._check({"format", "analysis"} <= meta.keys() and meta["format"].isdigit(), "meta")
        if int(meta["format"]) > FORMAT:
            raise DataDirectoryError(
                f"{self.path} has format {meta['format']}, newer than {FORMAT}, the newest that "
                "this version reads; use the version that wrote it, or another directory"
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
    with _reading(Path(path)):
        db = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            found = db.execute("SELECT value FROM meta WHERE key = 'analysis'").get
        finally:
            db.close()
    return None if found is None else str(found)


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


def _lock(path: Path) -> BinaryIO:
    """The directory's lock file, held. Raises DataDirectoryError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / "lock").open("a+b")
    except FileExistsError as error:
        raise DataDirectoryError(f"{path} is not a directory") from error
    except OSError as error:
        raise DataDirectoryError(f"{path} cannot be used: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        owner = lock.read(32).decode("ascii", "replace").strip()
        lock.close()
        raise DataDirectoryError(
            f"{path} is in use by process {owner or 'unknown'}; stop it, or use another directory"
        ) from error
    lock.truncate(0)
    lock.write(b"%d\n" % os.getpid())
    lock.flush()
    return lock


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Damage, however SQLite or a frame reports it, becomes a DataDirectoryError."""
    try:
        yield
    except (apsw.Error, FrameError, ValueError) as error:
        raise DataDirectoryError(
            f"{path}: the ledger cannot be read ({error}); it is damaged or not a ledger"
        ) from error
