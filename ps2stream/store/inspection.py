"""A look into a data directory that changes nothing, also while its service runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import apsw

from ps2stream.errors import DataDirectoryError
from ps2stream.protocol.ports import LogNote
from ps2stream.store.database import connect, translate_ledger_errors
from ps2stream.store.frames import MARK, LogMark
from ps2stream.store.identity import read_identity
from ps2stream.store.pairing import FoundLedger, FoundLog, LogMismatch, find_mismatches
from ps2stream.store.tables import meta_row

_LOG = re.compile(r"(objects|matches)-[0-9]+")


class DirectoryInspection(NamedTuple):
    """Result of an inspection: format and last LSN of the ledger, the names of the logs, and
    what does not fit. Records are not read, so a start sees more."""

    format: int
    lsn: int
    logs: Sequence[str]
    mismatches: Sequence[LogMismatch]


def inspect(
    folder: Path, list_logs: Callable[[], list[FoundLog]] | None = None
) -> DirectoryInspection:
    """Inspects the directory, which has a ledger. `list_logs` finds the logs where they are not in
    the directory. Raises DataDirectoryError when something cannot be read or is damaged, and what
    `list_logs` raises."""
    # The ledger is read before the logs, which may grow meanwhile: they have what it notes.
    with translate_ledger_errors(folder):
        db = connect(folder / "ledger.db", apsw.SQLITE_OPEN_READWRITE)
        try:
            db.set_busy_timeout(5000)
            with db:  # as of one moment
                rows = list(db.execute("SELECT key, value, crc32 FROM meta"))
                lsn: int = db.execute("SELECT ifnull(max(lsn_to), 0) FROM log").get
                starts = db.execute("SELECT epoch FROM epochs WHERE role = 'start'").get or 0
        finally:
            db.close()
    for row in rows:
        if row != meta_row(*row[:2]):
            raise DataDirectoryError(f"{folder}: ledger.db: meta {row[0]!r} is damaged")
    meta = {key: value for key, value, _ in rows}
    found = json.loads(meta["logs"]) if "logs" in meta else None
    notes = None if found is None else {name: LogNote(*note) for name, note in found.items()}
    if list_logs is not None:
        logs = list_logs()
    else:
        paths = (path for path in sorted(folder.iterdir()) if _LOG.fullmatch(path.name))
        logs = [_inspect_log(path) for path in paths]
    known = {log.name for log in logs}
    missing = sorted(set(notes or {}) - known)
    logs += [FoundLog(name, made=False, end=0, lsn=0, identity=None) for name in missing]
    ledger = FoundLedger(int(meta.get("identity", "0")), starts + 1, lsn, notes)
    problems = find_mismatches(ledger, logs)
    return DirectoryInspection(int(meta.get("format", "0")), lsn, sorted(known), problems)


def _inspect_log(folder: Path) -> FoundLog:
    identity = read_identity(folder)
    path = folder / "mark"
    try:
        raw = path.read_bytes()[: MARK + 1]
    except FileNotFoundError:
        return FoundLog(folder.name, True, 0, 0, identity)
    except OSError as error:
        raise DataDirectoryError(f"{path} cannot be read: {error.strerror}") from error
    return FoundLog(folder.name, True, LogMark.decode(raw, path, "").end, 0, identity)
