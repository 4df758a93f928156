"""The writer of one dispatcher's part of the archive: it follows the durable object log, and
writes what it finds to Parquet files (docs/decisions/0028). It has no thread of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import logging
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ps2stream.archive.departed import find_departed, forget_ended, note_ended
from ps2stream.archive.layout import (
    HEAD,
    MARK,
    ArchiveLimits,
    ArchiveMark,
    RawFile,
    check_head,
    dispatcher_folder,
    encode_head,
    list_raw,
    read_mark,
)
from ps2stream.cluster.withdrawal_upkeep import WithdrawalUpkeep
from ps2stream.errors import DataDirectoryError, Ps2StreamError
from ps2stream.observability.process import wall_clock_ms
from ps2stream.protocol.frame import column_to_strings, decode
from ps2stream.protocol.log_records import IdentifiedRecord, ObjectRecord, WithdrawalRecord
from ps2stream.protocol.ports import Log
from ps2stream.protocol.rows import ObjectRows
from ps2stream.store.access import explain_denial, make_private
from ps2stream.store.directory import lock_directory, replace_file

log = logging.getLogger("ps2stream.cluster")
FILE_ROWS = 200_000
FILE_BYTES = 32 << 20
"""A file is written when so many rows or bytes of columns wait, or the oldest has waited for the
delay."""
LAG_BYTES = 256 << 20
"""The most that the log may keep for an archive that cannot be written; then objects are lost to
the archive, and counted."""
RESERVE_BYTES = 256 << 20
"""Space on the disk that the archive leaves to others: four segments of a log."""
_HOUR_MS = 3_600_000
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def free_bytes(folder: Path) -> int:
    """Returns the free space of the folder's disk. Raises OSError."""
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize


def check_folder(root: Path) -> None:
    """Makes the archive's folder if need be, and writes a file to it that is gone afterwards. A
    full disk passes: it may have room again, and a service must start without.

    Raises DataDirectoryError that names the setting, the folder and the reason.
    """
    try:
        make_private(root)
        with tempfile.TemporaryFile(dir=root) as file:  # rights alone tell nothing to root
            file.write(b"ps2stream")
            file.flush()
            os.fsync(file.fileno())
    except DataDirectoryError as error:
        raise DataDirectoryError(f"archive: {error}") from None
    except OSError as error:
        if error.errno not in _FULL:
            why = explain_denial(root, error)
            raise DataDirectoryError(f"archive: {root} cannot be written: {why}") from error


class ArchiveWriter:
    """Writes what becomes durable in `log` to the archive, for dispatcher `partition`.

    `identity` names the log: with another one, a new series begins. `clock_ms` returns the time,
    `free` the free bytes of the disk. `keep_from` is the position from which on the archive still
    needs the log; all before `settled` is in it.
    """

    def __init__(
        self,
        log: Log,
        limits: ArchiveLimits,
        partition: int,
        identity: str,
        clock_ms: Callable[[], int] = wall_clock_ms,
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        self.folder = dispatcher_folder(limits.path, partition)
        self.keep_from = 0
        self.problem = ""
        self.settled = 0
        self._has_ended = False  # as noted in the folder
        self._log = log
        self._limits = limits
        self._clock_ms = clock_ms
        self._free = free
        self._begun = ArchiveMark(partition, identity)  # of an archive without objects
        self._mark = self._begun  # as it will be once `_waiting` is written
        self._written = self._begun  # as it is on the disk
        self._read_to = -1  # everything before this position was read
        self._waiting: list[Any] = []  # of ArchivedBatch
        self._rows = self._bytes = 0
        self._oldest_ms: int | None = None
        self._files: list[RawFile] = []
        self._sizes: dict[RawFile, tuple[int, int]] = {}  # bytes, and Unix ms when written
        self._held: Any = None
        self._removed = 0
        self._withdrawals = WithdrawalUpkeep(limits.path, self.folder, partition, clock_ms)
        with contextlib.suppress(OSError):
            forget_ended(self.folder)  # before anything more comes into the log

    # --- from outside ---------------------------------------------------------

    def look(self, is_last: bool = False) -> None:
        """Reads what has become durable, and writes what is due; with `is_last`, everything, and
        that this is all. What fails is tried again at the next look. Never raises for the archive's
        sake."""
        try:
            if self._held is None:
                self._open()
            self._write_due(is_last=False)  # if it fails again, no more is read
            for _ in self._read_log():
                self._write_due(is_last=False)
            self._write_due(is_last)
            self._note_settled(is_last)
            self._remove_old()
            self._look_after_withdrawals()
            self._note_problem("")
        except (OSError, Ps2StreamError) as error:
            self._note_problem(str(error))
        self._give_up_late()

    def close(self) -> None:
        """Lets another writer have the folder; idempotent."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def status(self) -> dict[str, Any]:
        """Returns figures for the dispatcher's status."""
        behind = max(self._log.synced - max(self._written.last, 0), 0)
        return {
            "archived_objects": self._written.objects,
            "archive_lost_objects": self._mark.lost,
            "archive_removed_files": self._removed,
            "archive_bytes": sum(size for size, _ in list(self._sizes.values())),
            "archive_lag_bytes": behind if self._waiting or self.problem else 0,
            "archive_problem": self.problem,
            "archive_failing": int(bool(self.problem)),
            "archive_damaged_withdrawals": self._withdrawals.damaged,
        }

    # --- opening --------------------------------------------------------------

    def _open(self) -> None:
        root = self._limits.path
        make_private(root)
        with contextlib.suppress(FileExistsError):
            # Two dispatchers that begin at once write the same.
            if not (root / HEAD).exists():
                replace_file(root / HEAD, encode_head())
        check_head(root)
        held = lock_directory(self.folder)
        try:
            self._forget_ended()
            self._resume()
        except BaseException:
            held.close()
            raise
        self._held = held

    def _resume(self) -> None:
        """Goes on behind the mark, or begins a new series if the log is another one."""
        self._forget_waiting()
        self._mark, self._read_to = self._begun, -1
        found = read_mark(self.folder)
        if found is not None:
            self._mark = dataclasses.replace(found, identity=self._begun.identity)
        for path in self.folder.glob("*.parquet*"):  # what no mark names was not finished
            file = RawFile.parse(path.name)
            if file is None or file.reaches > self._mark.point:
                path.unlink()
        if found is not None:
            if not self._continues(found):
                self._mark = self._mark.begin_series()
            elif self._log.first > found.last >= 0:
                self._mark = self._mark.add_gap(found.offset, None)
        self._files = list_raw(self.folder)
        self._sizes = {}
        for file in self._files:
            stat = (self.folder / file.name).stat()
            self._sizes[file] = stat.st_size, round(stat.st_mtime * 1000)
        self._write_mark()

    def _continues(self, found: ArchiveMark) -> bool:
        """Returns whether the log is the one that the mark was made of, and has what it names."""
        if found.identity != self._begun.identity or found.last >= self._log.end:
            return False
        if not 0 <= self._log.first <= found.last:
            return True  # nothing was read, or what was read last is gone
        try:
            position, record = next(self._log.scan(found.last))
        except (StopIteration, DataDirectoryError):
            return False
        return position == found.last and zlib.crc32(record) == found.crc

    # --- reading the log ------------------------------------------------------

    def _read_log(self) -> Iterator[None]:
        """Takes in what is durable behind the last record; yields after each batch of objects."""
        synced, last = self._log.synced, self._mark.last
        if synced == self._read_to:
            return
        for position, data in self._log.scan(max(last, 0)):
            if position >= synced:
                break
            if position > last:
                has_objects = self._take_record(position, data)
                if has_objects:
                    yield
        self._read_to = synced

    def _take_record(self, position: int, data: bytes) -> bool:
        record = decode(data)
        if isinstance(record, WithdrawalRecord):
            from ps2stream.archive.withdrawn import append_withdrawn  # pyarrow, as below

            # Before the mark passes the record, which is read again if this fails.
            ids, departed = column_to_strings(record.id_off, record.id), []
            if record.counted:
                root, identity = self._limits.path, self._mark.identity
                departed = find_departed(root, record.counted, record.lsn, identity)
            append_withdrawn(self.folder, self._mark.point, ids, departed)
        mark = self._mark = self._mark.passing(position, zlib.crc32(data))
        if not isinstance(record, ObjectRecord | IdentifiedRecord):
            return False
        from ps2stream.archive.columns import ArchivedBatch  # pyarrow, which others do without

        if self._has_ended:
            self._forget_ended()
        rows = ObjectRows.decode(record.rows.data)
        if not self._waiting:
            self._oldest_ms = self._clock_ms()
        self._waiting.append(ArchivedBatch(record.batch, record.lsn, rows))
        self._rows += len(rows)
        self._bytes += rows.nbytes
        end = record.batch + len(rows)
        self._mark = dataclasses.replace(mark, offset=end, lsn=record.lsn)
        return True

    # --- writing --------------------------------------------------------------

    def _write_due(self, is_last: bool) -> None:
        now = self._clock_ms()
        delay_ms = self._limits.delay_s * 1000
        if self._waiting:
            waited = now - (now if self._oldest_ms is None else self._oldest_ms)
            is_full = self._rows >= FILE_ROWS or self._bytes >= FILE_BYTES
            # A clock that was set back must not hold a file back.
            if is_full or is_last or not 0 <= waited < delay_ms:
                self._write_file(now)
            return
        # There was nothing but notes in the log, which it may drop.
        has_waited = is_last or not 0 <= now - self._written.time_ms < delay_ms
        if self._mark.last != self._written.last and has_waited:
            self._write_mark()

    def _write_file(self, now: int) -> None:
        from ps2stream.archive.columns import make_table

        mark = self._mark
        table = make_table(self._waiting, mark.partition, mark.series, now)
        data = encode_file(table)
        self._check_room(len(data))
        file = RawFile(mark.series, self._waiting[0].offset, mark.offset)
        self._mark = dataclasses.replace(mark, objects=mark.objects + self._rows)
        try:
            replace_file(self.folder / file.name, data)
            self._write_mark()
        except BaseException:
            # How far it came is unknown: the next look begins with what is on the disk.
            self.close()
            raise
        self._files.append(file)
        self._sizes[file] = len(data), now
        self._forget_waiting()

    def _write_mark(self) -> None:
        mark = dataclasses.replace(self._mark, time_ms=self._clock_ms())
        replace_file(self.folder / MARK, mark.encode())
        self._written = self._mark = mark
        self.keep_from = max(mark.last, 0)

    def _check_room(self, size: int) -> None:
        """Raises OSError if the disk has no room for a file and the reserve."""
        if self._free(self.folder) < size + RESERVE_BYTES:
            raise OSError(
                f"the disk of {self._limits.path} has less than {RESERVE_BYTES >> 20} MiB left, "
                "which the archive leaves to others"
            )

    def _note_settled(self, is_last: bool) -> None:
        if not self._waiting:
            self.settled = max(self.settled, self._read_to)
        if is_last and not self._has_ended and self._read_to == self._log.end:
            note_ended(self.folder, self._written.point, replace_file)
            self._has_ended = True

    def _forget_ended(self) -> None:
        forget_ended(self.folder)
        self._has_ended = False

    def _forget_waiting(self) -> None:
        self._waiting, self._rows, self._bytes, self._oldest_ms = [], 0, 0, None

    # --- bounds ---------------------------------------------------------------

    def _remove_old(self) -> None:
        """Removes the oldest files beyond the limits; of the bytes, the newest may have more."""
        oldest = self._clock_ms() - self._limits.hours * _HOUR_MS
        total = sum(size for size, _ in self._sizes.values())
        while self._files:
            size, made_ms = self._sizes[self._files[0]]
            is_over = total > self._limits.size_bytes and len(self._files) > 1
            if not is_over and made_ms >= oldest:
                return
            (self.folder / self._files[0].name).unlink(missing_ok=True)
            del self._sizes[self._files.pop(0)]
            total -= size
            self._removed += 1

    def _look_after_withdrawals(self) -> None:
        waiting = [RawFile(self._mark.series, batch.offset, 1 << 62) for batch in self._waiting[:1]]
        self._withdrawals.look([*self._files, *waiting])

    def _give_up_late(self) -> None:
        """Counts as lost what could not be written, once the log would have to keep too much: so
        much of the oldest that half of the bound is left."""
        if not self.problem or self._log.synced - self.keep_from <= LAG_BYTES:
            return
        if self._held is None:  # nothing can be counted: the gap will say so
            self.keep_from = self._log.synced
            return
        first = self._waiting[0].offset if self._waiting else None
        lost = self._rows
        self._forget_waiting()
        try:
            for _ in self._read_log():
                first = self._waiting[0].offset if first is None else first
                lost += self._rows
                self._forget_waiting()
                if self._log.synced - self._mark.last <= LAG_BYTES // 2:
                    break
        except (OSError, Ps2StreamError) as error:
            self.problem = str(error)
        if first is not None:
            self._mark = self._mark.add_gap(first, lost)
            log.warning(
                "%s objects of dispatcher %d are not in the archive: %s",
                f"{lost:,}", self._mark.partition, self.problem,
            )  # fmt: skip
        self.keep_from = max(self._mark.last, 0)
        with contextlib.suppress(OSError):
            self._write_mark()

    def _note_problem(self, problem: str) -> None:
        if problem and not self.problem:
            log.warning("the archive cannot be written, and is tried again: %s", problem)
        elif self.problem and not problem:
            log.warning("the archive is written again")
        self.problem = problem


def encode_file(table: Any) -> bytes:
    """Returns a table as a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ps2stream.archive.columns import REPEATED

    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=1,
        use_dictionary=list(REPEATED),
        write_page_checksum=True,
    )
    data: bytes = sink.getvalue().to_pybytes()
    return data
