"""The embedded ledger: SQLite (apsw) in WAL mode, synced at every commit (contract.md 2).

A row of `log` is one group commit: its LSN range, a CRC-32 and the encoded `Applied`.
The mark (directory.py) reveals that the end was lost. After an I/O error nothing more is
written: what a failed fsync left on the disk is only known after a restart.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, ClassVar, Self

import apsw

from ps2stream.errors import DataDirectoryError, StoreFailed, Unavailable
from ps2stream.protocol.messages.updates import LedgerBatch
from ps2stream.protocol.ports import LedgerChange, LogNote
from ps2stream.store.compaction import compact_log, find_outlived
from ps2stream.store.database import connect, translate_ledger_errors
from ps2stream.store.directory import LedgerExtent, LedgerMark, lock_directory
from ps2stream.store.refusal import StoreRefusal
from ps2stream.store.tables import (
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
from ps2stream.store.tokens import FileTokens

ROOM_BYTES = 4 << 20
"""Free bytes of a disk from which on a ledger that was refused room tries to write: those of a
large batch, so that it is not taken again and refused again in turn."""
# Strict, so that quick_check looks at the types.
SCHEMA = {
    "meta": "(key TEXT PRIMARY KEY, value TEXT NOT NULL, crc32 INTEGER NOT NULL) STRICT",
    "sessions": "(number INTEGER PRIMARY KEY, name BLOB NOT NULL, crc32 INTEGER NOT NULL) STRICT",
    "requests": "(lsn_to INTEGER PRIMARY KEY, crc32 INTEGER NOT NULL, blob BLOB NOT NULL) STRICT",
    "answers": "(dispatcher INTEGER, epoch INTEGER, seq INTEGER, settled INTEGER NOT NULL, "
    "crc32 INTEGER NOT NULL, blob BLOB NOT NULL, PRIMARY KEY (dispatcher, epoch, seq)) "
    "STRICT, WITHOUT ROWID",
    "epochs": "(role TEXT, number INTEGER, epoch INTEGER NOT NULL, crc32 INTEGER NOT NULL, "
    "PRIMARY KEY (role, number)) STRICT, WITHOUT ROWID",
    "log": "(lsn_from INTEGER PRIMARY KEY, lsn_to INTEGER NOT NULL, crc32 INTEGER NOT NULL, "
    "blob BLOB NOT NULL) STRICT",
}


class Ledger(FileTokens, LedgerTables):
    """A Store in a data directory. Make one with `Ledger.open`; one thread at a time."""

    FORMAT: ClassVar[int] = 3  # 1 had no mark, 2 no epochs

    def __init__(self, path: Path, held: BinaryIO, mark: LedgerMark, db: apsw.Connection) -> None:
        super().__init__(str(path / "ledger.db"))
        self.path = path
        self._lock = held
        self._mark = mark
        self._db = db
        self._file = Path(self.place).stat()
        self._extent = LedgerExtent(0, 0, 0)
        self._watermark = self._identity = 0
        self._failed = ""
        self._refusal = StoreRefusal(self.place)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        analysis: str,
        created: str = "",
        compact: bool = True,
        again: bool = False,
    ) -> Self:
        """Opens the data directory, or makes it. `analysis` is the JSON of the text analysis
        settings, `created` a time for people to read; `compact` only while nobody follows
        the log, which is read and checked by that. Otherwise whoever replays it checks it. `again`:
        it is there, and none is made.

        Raises DataDirectoryError when it is in use, damaged, of another format, made with
        other analysis settings, or no directory; the ledger then stays as it was.
        """
        path = Path(path)
        if again and not (path / "ledger.db").exists():
            raise _describe_removal(path)
        with contextlib.ExitStack() as undo:
            held = undo.enter_context(lock_directory(path))
            mark = LedgerMark(path)
            undo.callback(mark.close)
            with translate_ledger_errors(path):
                db = connect(path / "ledger.db")
                undo.callback(db.close)
                db.set_busy_timeout(5000)
                ledger = cls(path, held, mark, db)
                if db.execute("SELECT count(*) FROM sqlite_schema").get == 0:
                    mark.check(ledger._extent)
                    if again:
                        raise _describe_removal(path)
                    ledger._create_tables(analysis, created)
                if db.pragma("quick_check", 1) != "ok":
                    raise DataDirectoryError(f"{ledger.place}: the ledger is damaged (quick_check)")
                ledger._watermark, ledger._identity = ledger._read_meta(analysis)
                db.pragma("journal_mode", "wal")
                db.pragma("synchronous", "full")
                ledger._check_content()
                if compact:
                    ledger.compact()
                db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
            undo.pop_all()
        return ledger

    def close(self) -> None:
        """Releases the directory; idempotent."""
        self._db.close()
        self._mark.close()
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _select_rows(self, query: str, *values: int) -> list[Row]:
        with translate_ledger_errors(self.path):
            return list(self._db.execute(query, values))

    @property
    def identity(self) -> int:
        return self._identity

    @property
    def watermark(self) -> int:
        return self._watermark

    @property
    def lsn(self) -> int:
        return self._extent.lsn

    # --- writing ---------------------------------------------------------------

    def epoch(self, role: str, index: int) -> int:
        key = (role, index)
        with self._run_transaction():
            found = "SELECT epoch FROM epochs WHERE role = ? AND number = ?"
            epoch = int(self._db.execute(found, key).get or 0) + 1
            self._put_row("epochs", epoch_row(role, index, epoch))
        self._grow_extent(LedgerExtent(0, 0, 1))
        return epoch

    def commit(self, change: LedgerChange) -> None:
        """Commits the change in one synced transaction; see Store.commit. Raises Unavailable
        for this call alone on a full disk, and StoreFailed, for good, after any other error."""
        with self._run_transaction():
            for number, name in change.sessions:
                self._insert_row("sessions", session_row(number, name))
            if change.batch is not None:
                self._insert_row("log", log_row(change.batch))
            if change.requests is not None:
                delete = "DELETE FROM requests WHERE lsn_to < ?"
                self._db.execute(delete, (change.forget,))
                self._insert_row("requests", requests_row(change.requests))
            settled = {a.dispatcher: (a.dispatcher, a.epoch, a.settled) for a in change.answers}
            delete = "DELETE FROM answers WHERE dispatcher = ? AND (epoch, seq) < (?, ?)"
            self._db.executemany(delete, settled.values())
            for answer in change.answers:
                self._put_row("answers", answer_row(answer))
            if change.watermark > self._watermark:
                self._put_row("meta", meta_row("watermark", str(change.watermark)))
            if change.plan is not None:
                self._put_row("meta", meta_row("plan", change.plan))
            if change.pending is not None:
                self._put_row("meta", meta_row("pending_plan", change.pending))
            if change.mergers is not None:
                self._put_row("meta", meta_row("mergers", str(change.mergers)))
            if change.moves is not None:
                self._put_row("meta", meta_row("moves", change.moves))
            if change.dispatchers is not None:
                self._put_row("meta", meta_row("dispatchers", change.dispatchers))
        self._watermark = max(self._watermark, change.watermark)
        rows = change.batch.lsn_to - change.batch.lsn_from + 1 if change.batch else 0
        self._grow_extent(LedgerExtent(rows, len(change.sessions), 0))

    def replace(self, batch: LedgerBatch) -> None:
        with self._run_transaction():
            span = batch.lsn_from, batch.lsn_to
            self._db.execute("DELETE FROM log WHERE lsn_from BETWEEN ? AND ?", span)
            self._insert_row("log", log_row(batch))

    def note_logs(self, notes: Mapping[str, LogNote]) -> None:
        with self._run_transaction():
            self._put_row("meta", notes_row(notes))

    def _grow_extent(self, more: LedgerExtent) -> None:
        (a, b, c), (d, e, f) = self._extent, more
        self._extent = LedgerExtent(a + d, b + e, c + f)
        with contextlib.suppress(OSError):  # a mark that lags behind is still true
            self._mark.set(self._extent)

    @contextlib.contextmanager
    def _run_transaction(self) -> Iterator[None]:
        if self._failed:
            raise StoreFailed(self._describe_failure())
        try:
            self._check_in_place()
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except apsw.FullError as error:
            self._roll_back()
            raise self._refusal.note(f"the disk of {self.path} is full") from error
        except apsw.Error as error:
            self._roll_back()
            self._failed = str(error)
            raise StoreFailed(f"the ledger cannot be written: {error}") from error
        except BaseException:
            self._roll_back()
            raise
        self._refusal.end()

    def find_problem(self) -> str:
        if self._failed:
            return self._describe_failure()
        with contextlib.suppress(Unavailable):
            self._check_in_place()
            if self._refusal.problem and shutil.disk_usage(self.path).free >= ROOM_BYTES:
                with self._run_transaction():
                    self._put_row("meta", meta_row("watermark", str(self._watermark)))
        return self._describe_failure() if self._failed else self._refusal.problem

    def _describe_failure(self) -> str:
        return f"the ledger accepts no updates until a restart: {self._failed}"

    def _check_in_place(self) -> None:
        """Raises Unavailable where the ledger's name is no longer that of its file: what would be
        committed, the next start would not find."""
        try:
            if os.path.samestat(Path(self.place).stat(), self._file):
                return
        except FileNotFoundError:
            pass
        raise self._refusal.note(f"{self.place} was removed or replaced; put it back, or restart")

    def compact(self) -> bool:
        """Rewrites the log, atomically, without the queries deleted at or below the watermark when
        more than half of its rows are dead; reads and checks all of it. Returns whether it was
        rewritten. Nobody may follow the log meanwhile: an actor that has applied a part of it
        would miss deletes."""
        deleted = find_outlived(self.replay(), self._watermark)
        if not len(deleted):
            return False
        run = self._db.execute
        try:
            run("BEGIN IMMEDIATE")
            run(f"CREATE TABLE compacted {SCHEMA['log']}")
            for batch in compact_log(self.replay(), deleted):
                self._insert_row("compacted", log_row(batch))
            run("DROP TABLE log")
            run("ALTER TABLE compacted RENAME TO log")
            run("COMMIT")
            run("VACUUM")
        except apsw.FullError:
            self._roll_back()  # the longer log serves as well
            return False
        return True

    def _insert_row(self, table: str, row: Row, verb: str = "INSERT") -> None:
        self._db.execute(f"{verb} INTO {table} VALUES ({', '.join('?' * len(row))})", row)

    def _put_row(self, table: str, row: Row) -> None:
        self._insert_row(table, row, "INSERT OR REPLACE")

    def _roll_back(self) -> None:
        with contextlib.suppress(apsw.Error):
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    # --- the directory -----------------------------------------------------------

    def _create_tables(self, analysis: str, created: str) -> None:
        db = self._db
        db.pragma("page_size", 16384)
        with db:
            for name, columns in SCHEMA.items():
                db.execute(f"CREATE TABLE {name} {columns}")
            for key, value in (
                ("format", str(self.FORMAT)),
                ("analysis", analysis),
                ("created", created),
                ("watermark", "0"),
                ("identity", str(secrets.randbits(63))),
            ):
                self._put_row("meta", meta_row(key, value))
            self._put_row("meta", notes_row({}))

    def _check_content(self) -> None:
        """Checks all tables, and that nothing acknowledged is missing at the end; `open` reads
        the log itself."""
        schema = "SELECT name, replace(sql, '\"', '') FROM sqlite_schema WHERE type = 'table'"
        want = {name: f"CREATE TABLE {name} {columns}" for name, columns in SCHEMA.items()}
        self._check_sound(dict(self._db.execute(schema)) == want, "the schema")
        deque(self.requests(), maxlen=0)
        self.answers()
        epochs = sum(epoch for _, _, epoch in self._read_epochs())
        lsn = self._db.execute("SELECT ifnull(max(lsn_to), 0) FROM log").get
        self._extent = LedgerExtent(lsn, len(self.sessions()), epochs)
        self._mark.check(self._extent)
        try:
            self._mark.set(self._extent, sync=True)
        except OSError as error:
            raise DataDirectoryError(f"{self.path} cannot be used: {error.strerror}") from error


def _describe_removal(path: Path) -> DataDirectoryError:
    return DataDirectoryError(
        f"{path / 'ledger.db'} was removed while the service runs; put it back, or restart the "
        "service"
    )


def recorded(path: str | os.PathLike[str], key: str) -> str | None:
    """Returns what the directory's ledger keeps under this key; None when there is no ledger yet,
    or no such key. Raises DataDirectoryError when it cannot be read."""
    file = Path(path) / "ledger.db"
    with translate_ledger_errors(Path(path)):
        if not file.exists():
            return None
        db = connect(file, apsw.SQLITE_OPEN_READWRITE)
        try:
            if db.execute("SELECT count(*) FROM sqlite_schema").get == 0:
                return None  # left empty by a start that was refused
            found = db.execute("SELECT value, crc32 FROM meta WHERE key = ?", (key,)).get
        finally:
            db.close()
        if found is None:
            return None
        value, crc = found
        if zlib.crc32(value.encode()) != crc:
            raise ValueError(f"the checksum of {key} does not match")
    return str(value)
