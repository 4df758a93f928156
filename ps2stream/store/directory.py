"""A data directory beside its database: its one owner, and the mark of how far it had come.

SQLite takes a write-ahead log that is damaged or missing for one whose end was never
written, and silently goes back to the last sound commit. The mark tells the two
apart: what it names had been acknowledged.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ps2stream.errors import DataDirectoryError
from ps2stream.store.access import close_files, explain_denial, make_private

MANIFEST = "backup.json"
"""Name of the file that makes a folder a backup."""
_BODY = struct.Struct("<qqq")  # an Extent
_HEAD = struct.Struct("<4sI")  # magic, CRC-32 of the body
_MAGIC = b"PS2m"


class LedgerExtent(NamedTuple):
    """Extent of a ledger: its last LSN, and the numbers of its sessions and of epochs given."""

    lsn: int
    sessions: int
    epochs: int

    def __str__(self) -> str:
        return f"LSN {self.lsn}, {self.sessions} sessions and {self.epochs} epochs"


class LedgerMark:
    """The file `mark`, which says how much is durable at least. It is written in place after a
    commit and not synced then, so it may lag behind the database but is never ahead of it."""

    def __init__(self, directory: Path) -> None:
        """Opens the mark, or makes one that names nothing. Raises DataDirectoryError."""
        self.path = directory / "mark"
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            why = explain_denial(self.path, error)
            raise DataDirectoryError(f"{self.path} cannot be used: {why}") from error

    def check(self, found: LedgerExtent) -> None:
        """Raises DataDirectoryError if a database of this extent lacks something, or if the
        mark cannot be read."""
        raw = os.pread(self._file, 1 + _HEAD.size + _BODY.size, 0)
        if not raw:
            return
        body = raw[_HEAD.size :]
        if len(body) != _BODY.size or _HEAD.unpack_from(raw) != (_MAGIC, zlib.crc32(body)):
            raise DataDirectoryError(
                f"{self.path} is damaged, so it is unknown whether the ledger is complete. "
                "Restore a copy; to continue with the existing data, remove this file"
            )
        known = LedgerExtent(*_BODY.unpack(body))
        if any(a < b for a, b in zip(found, known, strict=True)):
            raise DataDirectoryError(
                f"{self.path.parent}: the end of the ledger is damaged or missing (ledger.db, "
                f"ledger.db-wal): it ends at {found}, but {known} were acknowledged. Restore a "
                f"copy; to continue without the rest, remove {self.path}"
            )

    def set(self, extent: LedgerExtent, sync: bool = False) -> None:
        """Records that the database has this extent. Raises OSError."""
        body = _BODY.pack(*extent)
        os.pwrite(self._file, _HEAD.pack(_MAGIC, zlib.crc32(body)) + body, 0)
        if sync:
            os.fsync(self._file)

    def close(self) -> None:
        """Closes the file; idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def replace_file(path: Path, data: bytes) -> None:
    """Replaces the file, 0600, as a whole; durable when it returns. Raises OSError, with the old
    file in its place."""
    fresh = path.with_name(f"{path.name}.new")
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(file)
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def lock_directory(path: Path) -> BinaryIO:
    """Locks the directory and returns the lock file. The directory is made if need be, and closed
    to other users with the files in it. Raises DataDirectoryError, also for a backup: a service
    that wrote into it would give numbers twice."""
    try:
        if (path / MANIFEST).exists():
            raise DataDirectoryError(
                f"{path} is a backup; make a data directory from it with `ps2stream restore`"
            )
        make_private(path)
        opened = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        file = os.fdopen(opened, "a+b")
    except (FileExistsError, NotADirectoryError) as error:
        raise DataDirectoryError(f"{path} is not a directory") from error
    except OSError as error:
        raise DataDirectoryError(
            f"{path} cannot be used: {explain_denial(path / 'lock', error)}"
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        owner = file.read(32).decode("ascii", "replace").strip()
        file.close()
        raise DataDirectoryError(
            f"{path} is in use by process {owner or 'unknown'}; stop it, or use another directory"
        ) from error
    try:
        close_files(path)
    except OSError as error:
        file.close()
        raise DataDirectoryError(
            f"{path}: other users could not be denied access to its files: {error}"
        ) from error
    file.truncate(0)
    file.write(b"%d\n" % os.getpid())
    file.flush()
    return file
