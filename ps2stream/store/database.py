"""Connections to a ledger's SQLite file, and the errors that say what is wrong with it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import apsw

from ps2stream.errors import DataDirectoryError
from ps2stream.protocol.frame import FrameError
from ps2stream.store.access import explain_denial, find_obstacle

_REFUSED = (
    apsw.BusyError,
    apsw.CantOpenError,
    apsw.FullError,
    apsw.PermissionsError,
    apsw.ReadOnlyError,
)


def connect(
    file: Path, flags: int = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
) -> apsw.Connection:
    """Opens a connection that leaves the write-ahead log where it is when it closes: until all is
    checked, the log may be the only trace of what is lost."""
    if flags & apsw.SQLITE_OPEN_CREATE and not file.exists():
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    db = apsw.Connection(str(file), flags=flags)
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    return db


@contextlib.contextmanager
def translate_ledger_errors(path: Path) -> Iterator[None]:
    """Turns damage, however SQLite or a frame reports it, into a DataDirectoryError, and a file
    that may not be written into one that says so."""
    try:
        yield
    except OSError as error:
        why = explain_denial(path / "ledger.db", error)
        raise DataDirectoryError(f"{path}: ledger.db cannot be used: {why}") from error
    except _REFUSED as error:
        obstacle = next(filter(None, map(find_obstacle, sorted(path.glob("ledger.db*")))), None)
        why = str(error) if obstacle is None else explain_denial(Path(obstacle.filename), obstacle)
        raise DataDirectoryError(f"{path}: ledger.db cannot be opened to write: {why}") from error
    except (apsw.Error, FrameError, ValueError) as error:
        raise DataDirectoryError(
            f"{path}: ledger.db cannot be read ({error}); it is damaged or not a ledger"
        ) from error
