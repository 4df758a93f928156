"""The file `identity` in a log's folder names the log, and the ledger that it belongs to.

The ledger keeps the other half (ports.LogNote), so that a log that is missing, or a ledger that
is older than its logs, is noticed at the next start (pairing.py). Versions that know nothing of
the file leave it alone.
"""

from __future__ import annotations

import errno
import json
import zlib
from pathlib import Path
from typing import NamedTuple

from ps2stream.errors import DataDirectoryError, Unavailable
from ps2stream.store.disk import FULL, Disk, OsDisk

NAME = "identity"
_HEAD = b"ps2stream log 1 %08x\n"
_MOST_BYTES = 1024


class LogIdentity(NamedTuple):
    """Identity of a log. ledger: the identity of its ledger; incarnation: a random number, drawn
    when the log was made; generation: of the last start of the service that opened it; lsn: an
    LSN that the ledger had by then."""

    ledger: int
    incarnation: int
    generation: int
    lsn: int


def read_identity(folder: Path, disk: Disk | None = None) -> LogIdentity | None:
    """Returns the identity; None where the log is new, or of a version that wrote none. Raises
    DataDirectoryError when it cannot be read or is damaged."""
    path = folder / NAME
    try:
        file = (disk or OsDisk()).open(path)
        raw = file.pread(_MOST_BYTES, 0)
        file.close()
    except OSError as error:
        if error.errno == errno.ENOENT:
            return None
        raise DataDirectoryError(f"{path} cannot be read: {error.strerror}") from error
    head, _, body = raw.partition(b"\n")
    if head + b"\n" != _HEAD % zlib.crc32(body):
        raise DataDirectoryError(
            f"{path} is damaged. Restore a copy; to continue without it, remove this file and "
            "start once with --accept-loss"
        )
    return LogIdentity(**json.loads(body))


def write_identity(folder: Path, identity: LogIdentity, disk: Disk | None = None) -> None:
    """Replaces the file; durable when it returns. On a full disk an older one stays, which is
    still true. Raises Unavailable where there is none, DataDirectoryError after any other
    error."""
    disk = disk or OsDisk()
    path, new = folder / NAME, folder / f"{NAME}.new"
    body = json.dumps(identity._asdict()).encode()
    raw = _HEAD % zlib.crc32(body) + body
    try:
        names = disk.list(folder)
        if new.name in names:
            disk.remove(new)
        try:
            file = disk.create(new, len(raw))
        except OSError as error:
            if error.errno not in FULL:
                raise
            if NAME in names:
                return
            raise Unavailable(f"{path} cannot be written: {error.strerror}") from error
        file.pwritev([raw], 0)
        file.sync()
        file.close()
        disk.rename(new, path)
        disk.sync(folder)
    except OSError as error:
        raise DataDirectoryError(f"{path} cannot be written: {error.strerror}") from error
