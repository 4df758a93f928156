"""Backups: consistent copies of data directories whose services may run, and their restore.

The order makes the copy consistent: object logs, then match logs, then the ledger. Each knows
everything that the ones before it refer to: an object that was complete when its log was copied
is in the match logs, and an LSN that a log is stamped with is in the ledger. What comes between
is matched again after a restore and recognised as done. The ledger's notes of the logs are set
to what was copied. Only while sessions move from one match log to another there is no such order.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from ps2stream import __version__
from ps2stream.errors import DataDirectoryError, FailedPrecondition
from ps2stream.protocol.ports import LogNote
from ps2stream.store import identity, tokens
from ps2stream.store.access import explain_denial, make_private
from ps2stream.store.database import connect, translate_ledger_errors
from ps2stream.store.directory import MANIFEST, replace_file
from ps2stream.store.disk import OsFile
from ps2stream.store.frames import FRAME, HEADER, MARK, LogMark, SegmentHeader, walk_frames
from ps2stream.store.ledger import recorded
from ps2stream.store.places import RESTORED
from ps2stream.store.recovery import damage_error, segment_path
from ps2stream.store.tables import meta_row, notes_row

FORMAT = 1
LEDGER = "ledger.db"
_LOG = re.compile(r"(objects|matches)-[0-9]+")
_KINDS = [str, int, dict]  # of created, lsn and files in the manifest
_ATTEMPTS = 20  # to open a log whose oldest segments are trimmed meanwhile
_STEP = 4 << 20  # bytes copied at a time
_WAIT_MS = 30_000  # for a writer of the ledger


class BackupContents(NamedTuple):
    """Contents of a copy: bytes of all files, the ledger's last LSN, and, after a backup, the
    logs' ends by name."""

    size: int
    lsn: int
    logs: dict[str, int]


def back_up(source: Path, target: Path) -> BackupContents:
    """Copies the data directory, whose service may run, into the new or empty folder `target`.

    Raises DataDirectoryError when something cannot be read or is damaged, FailedPrecondition
    when `target` holds something or lies in `source`, or the logs are elsewhere, or sessions have
    moved between mergers, or dispatchers joined or left, meanwhile. The manifest is written last: a
    copy without one is no backup.
    """
    if not (source / LEDGER).exists():
        raise DataDirectoryError(f"{source}: has no ledger.db, so it is not a data directory")
    _prepare_target(target, beside=source)
    try:
        moves = recorded(source, "moves")
        names = sorted(
            (path.name for path in source.iterdir() if _LOG.fullmatch(path.name)), reverse=True
        )  # objects before matches
        ends = {name: _copy_log(source / name, target / name) for name in names}
        lsn = _copy_ledger(source, target, ends)
        if recorded(target, "moves") != moves or (moves or "").endswith("moving"):
            raise FailedPrecondition(
                f"{source}: sessions moved between mergers, or dispatchers joined, while it was "
                "copied; repeat the backup when `ps2stream scale` is done"
            )
        if (source / tokens.NAME).exists():
            _write_file(target / tokens.NAME, (source / tokens.NAME).read_bytes())
        files = dict(_list_checksums(target))
        body = {
            "format": FORMAT,
            "version": __version__,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "lsn": lsn,
            "files": files,
        }
        replace_file(target / MANIFEST, json.dumps(body, indent=1).encode())
    except OSError as error:
        where = Path(error.filename or target)
        raise DataDirectoryError(f"{where}: {explain_denial(where, error)}") from error
    return BackupContents(sum(size for size, _ in files.values()), lsn, ends)


def restore(source: Path, target: Path) -> BackupContents:
    """Restores the backup `source` to the new or empty folder `target`, a data directory then.

    Its first start skips numbers that may have been given after the backup. Raises
    DataDirectoryError when `source` is damaged or no backup, FailedPrecondition when `target`
    holds something or lies in `source`. The ledger comes last: without it no service starts.
    """
    body = _read_manifest(source)
    files: dict[str, list[int]] = body["files"]
    try:
        for name, found in files.items():
            path = source / name
            if not path.is_file() or [path.stat().st_size, _compute_checksum(path)] != found:
                raise DataDirectoryError(f"{path} is damaged or missing; use another backup")
        _prepare_target(target, beside=source)
        for name in sorted(files, key=lambda name: name == LEDGER):
            if name == LEDGER:
                _write_file(target / RESTORED, f"{body['created']}\n".encode())
            make_private((target / name).parent)
            with (source / name).open("rb") as file:
                _write_parts(iter(lambda: file.read(_STEP), b""), target / name)
        for folder in {(target / name).parent for name in files} | {target.absolute().parent}:
            _sync_folder(folder)
    except OSError as error:
        where = Path(error.filename or target)
        raise DataDirectoryError(f"{where}: {explain_denial(where, error)}") from error
    return BackupContents(sum(size for size, _ in files.values()), int(body["lsn"]), {})


def _read_manifest(source: Path) -> dict[str, Any]:
    path = source / MANIFEST
    try:
        body: dict[str, Any] = json.loads(path.read_bytes())
        known = body["format"] == FORMAT
        good = not known or [type(body[name]) for name in ("created", "lsn", "files")] == _KINDS
    except FileNotFoundError:
        raise DataDirectoryError(f"{source} is not a backup: it has no {MANIFEST}") from None
    except OSError as error:
        raise DataDirectoryError(f"{path}: {explain_denial(path, error)}") from error
    except (ValueError, LookupError, TypeError) as error:
        raise DataDirectoryError(f"{path} is damaged; use another backup") from error
    if not known:
        raise DataDirectoryError(
            f"{path} has format {body['format']}, but this version reads {FORMAT}; restore it "
            f"with ps2stream {body.get('version')}"
        )
    if not good or any(Path(name).is_absolute() or ".." in name for name in body["files"]):
        raise DataDirectoryError(f"{path} is damaged; use another backup")
    return body


def _prepare_target(target: Path, beside: Path) -> None:
    try:
        if beside.resolve() in target.resolve().parents:
            raise FailedPrecondition(f"{target} is inside {beside}; name a folder outside of it")
        make_private(target)
        if any(target.iterdir()):
            raise FailedPrecondition(f"{target} is not empty; name a new or an empty folder")
    except OSError as error:
        raise DataDirectoryError(f"{target}: {explain_denial(target, error)}") from error


# --- logs ------------------------------------------------------------------------------------


def _copy_log(source: Path, target: Path) -> int:
    """Copies the durable part of a log that may be written meanwhile; returns where it ends."""
    make_private(target)
    held = identity.read_identity(source)
    if held is not None:
        identity.write_identity(target, held)
    mark, files = _open_log(source)
    first = mark.number
    for number, file, header, stop in _list_segments(source, mark, files):
        first = min(first, number)
        path = segment_path(target, number)
        _write_parts(_read_parts(file, HEADER + stop - header.base), path)
        copy = OsFile(path, 0)
        reached = _find_sound_end(copy, header.base, stop)
        copy.close()
        if reached < stop:
            raise damage_error(
                segment_path(source, number), header.base, reached, "its records are damaged"
            )
    for file in files.values():
        file.close()
    _write_file(target / "mark", mark._replace(first=first).encode())
    _sync_folder(target)
    return mark.end


def _open_log(source: Path) -> tuple[LogMark, dict[int, OsFile]]:
    """Returns the mark and the open files of all segments that it names, by number. A trim
    leaves an open file whole."""
    for _ in range(_ATTEMPTS):
        files: dict[int, OsFile] = {}
        try:
            held = OsFile(source / "mark", 0)
            mark = LogMark.decode(held.pread(MARK + 1, 0), source / "mark", "")
            held.close()
            for number in range(mark.first, mark.number + (mark.base < mark.end)):
                files[number] = OsFile(segment_path(source, number), 0)
        except (FileNotFoundError, DataDirectoryError) as error:
            for file in files.values():
                file.close()
            last = error
            continue
        return mark, files
    if isinstance(last, DataDirectoryError):
        raise last
    raise DataDirectoryError(f"{source}: {last.filename} is missing")


def _list_segments(
    source: Path, mark: LogMark, files: dict[int, OsFile]
) -> Iterator[tuple[int, OsFile, SegmentHeader, int]]:
    """Yields the number, file and header of each segment, and where its records end."""
    headers: dict[int, SegmentHeader] = {}
    for number, file in files.items():
        path = segment_path(source, number)
        header = SegmentHeader.decode(file.pread(HEADER, 0), path, "Use another copy")
        if header is None:
            raise DataDirectoryError(f"{path}: its header is missing")
        headers[number] = header
    for number, file in files.items():
        following = headers.get(number + 1)
        yield number, file, headers[number], mark.end if following is None else following.base


def _find_sound_end(file: OsFile, base: int, stop: int) -> int:
    """Returns where the sound frames from `base` end."""
    reached = base
    for position, record in walk_frames(file, base, base, stop):
        reached = position + FRAME + len(record)
    return reached


# --- the ledger ------------------------------------------------------------------------------


def _copy_ledger(source: Path, target: Path, ends: dict[str, int]) -> int:
    """Copies the ledger as of one moment, its notes as of the copied logs; returns its last LSN."""
    with translate_ledger_errors(source):
        live = connect(source / LEDGER, apsw.SQLITE_OPEN_READWRITE)
        try:
            live.set_busy_timeout(_WAIT_MS)
            copy = connect(target / LEDGER)
            try:
                with copy.backup("main", live, "main") as running:
                    running.step(-1)
                if copy.pragma("quick_check", 1) != "ok":
                    raise DataDirectoryError(f"{source / LEDGER} is damaged (quick_check)")
                found = copy.execute("SELECT key, value, crc32 FROM meta WHERE key = 'logs'").get
                if found is not None:
                    if found != meta_row(*found[:2]):
                        raise DataDirectoryError(f"{source / LEDGER}: meta 'logs' is damaged")
                    notes = {n: LogNote(*note) for n, note in json.loads(found[1]).items()}
                    if elsewhere := sorted(notes.keys() - ends.keys()):
                        raise FailedPrecondition(
                            f"{source}: {', '.join(elsewhere)}, to which the ledger refers, are "
                            "not in the directory; logs in Kafka (log_url) cannot be copied as of "
                            "the same moment as their ledger"
                        )
                    held = {
                        name: note._replace(position=min(note.position, ends[name]))
                        for name, note in notes.items()
                    }
                    put = "INSERT OR REPLACE INTO meta VALUES (?, ?, ?)"
                    copy.execute(put, notes_row(held))
                lsn: int = copy.execute("SELECT ifnull(max(lsn_to), 0) FROM log").get
                copy.pragma("journal_mode", "delete")  # one file
            finally:
                copy.close()
        finally:
            live.close()
    return lsn


# --- files -----------------------------------------------------------------------------------


def _read_parts(file: OsFile, size: int) -> Iterator[bytes]:
    """Yields the first `size` bytes of a file."""
    for at in range(0, size, _STEP):
        yield file.pread(min(_STEP, size - at), at)


def _write_parts(parts: Iterator[bytes], target: Path) -> None:
    """Writes the parts to a new file; durable when it returns."""
    out = OsFile(target, os.O_CREAT | os.O_EXCL)
    at = 0
    for part in parts:
        out.pwritev([part], at)
        at += len(part)
    out.sync()
    out.close()


def _write_file(path: Path, data: bytes) -> None:
    _write_parts(iter([data]), path)


def _sync_folder(folder: Path) -> None:
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(held)
    finally:
        os.close(held)


def _list_checksums(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yields the relative name of each file below the folder, with its bytes and CRC-32."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != "lock":
            yield str(path.relative_to(folder)), (path.stat().st_size, _compute_checksum(path))


def _compute_checksum(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while part := file.read(_STEP):
            crc = zlib.crc32(part, crc)
    return crc
