"""How SQLite is opened here, and how what is wrong with a file is told."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import apsw

from ps2stream.batch import FrameError
from ps2stream.errors import DataDirectoryError


def connect(
    file: Path, flags: int = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
) -> apsw.Connection:
    """A connection that leaves the write-ahead log where it is when it closes: until all is
    checked, the log may be the only trace of what is lost."""
    db = apsw.Connection(str(file), flags=flags)
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    return db


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Damage, however SQLite or a frame reports it, becomes a DataDirectoryError."""
    try:
        yield
    except (apsw.Error, FrameError, ValueError) as error:
        raise DataDirectoryError(
            f"{path}: ledger.db cannot be read ({error}); it is damaged or not a ledger"
        ) from error
