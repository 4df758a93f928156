"""The tables of a ledger in SQL, and their reading, which lets nothing damaged pass."""

from __future__ import annotations

import abc
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

from ps2stream.errors import DataDirectoryError
from ps2stream.protocol.frame import Frame, FrameError
from ps2stream.protocol.messages.updates import LedgerBatch, UpdateDecision
from ps2stream.protocol.ports import LogNote, NamedUpdates, SettledAnswer

Row = tuple[Any, ...]
Kind = TypeVar("Kind", bound=Frame)

PAGE = 64  # batches of the log that are read at a time


def log_row(batch: LedgerBatch) -> Row:
    """Returns (lsn_from, lsn_to, crc32, blob)."""
    blob = batch.encode()
    return batch.lsn_from, batch.lsn_to, zlib.crc32(blob), blob


def session_row(number: int, name: bytes) -> Row:
    """Returns (number, name, crc32)."""
    return number, name, zlib.crc32(name, number & 0xFFFFFFFF)


def requests_row(seen: NamedUpdates) -> Row:
    """Returns (lsn_to, crc32, blob)."""
    blob = seen.encode()
    return seen.last, zlib.crc32(blob), blob


def answer_row(answer: SettledAnswer) -> Row:
    """Returns (dispatcher, epoch, seq, settled, crc32, blob)."""
    return _answer_row(*answer[:4], answer.decision.encode())


def epoch_row(role: str, index: int, epoch: int) -> Row:
    """Returns (role, number, epoch, crc32)."""
    return role, index, epoch, zlib.crc32(f"{role}.{index}.{epoch}".encode())


def meta_row(key: str, value: str) -> Row:
    """Returns (key, value, crc32)."""
    return key, value, zlib.crc32(value.encode())


def notes_row(notes: Mapping[str, LogNote]) -> Row:
    """Returns (key, value, crc32) of what is known of the logs."""
    return meta_row("logs", json.dumps(notes))


def _answer_row(dispatcher: int, epoch: int, seq: int, settled: int, blob: bytes) -> Row:
    crc = zlib.crc32(blob, zlib.crc32(b"%d.%d.%d.%d" % (dispatcher, epoch, seq, settled)))
    return dispatcher, epoch, seq, settled, crc, blob


class LedgerTables(abc.ABC):
    """The reading half of a Store. `place` names it in errors; `FORMAT` is the format that this
    version reads and writes."""

    FORMAT: ClassVar[int]

    def __init__(self, place: str) -> None:
        self.place = place

    @abc.abstractmethod
    def _select_rows(self, query: str, *values: int) -> Iterable[Row]:
        """Returns all rows. Raises DataDirectoryError when they cannot be read."""

    def sessions(self) -> list[tuple[int, bytes]]:
        found = list(self._select_rows("SELECT number, name, crc32 FROM sessions ORDER BY number"))
        for row in found:
            self._check_sound(row == session_row(*row[:2]), f"session {row[0]}")
        return [(number, name) for number, name, _ in found]

    def replay(self, after: int = 0) -> Iterator[LedgerBatch]:
        first = "SELECT coalesce(max(lsn_from), 1) FROM log WHERE lsn_from <= $1"
        page = "SELECT lsn_from, lsn_to, crc32, blob FROM log WHERE lsn_from >= $1 "
        page += f"ORDER BY lsn_from LIMIT {PAGE}"
        [(start,)] = self._select_rows(first, after + 1)
        while rows := list(self._select_rows(page, start)):
            for lsn_from, lsn_to, crc, blob in rows:
                where = f"the log at LSN {start}"
                self._check_sound(zlib.crc32(blob) == crc, where)
                batch = self._decode_frame(LedgerBatch, blob, where)
                same = (batch.lsn_from, batch.lsn_to) == (lsn_from, lsn_to)
                self._check_sound(same and lsn_from == start <= lsn_to, where)
                start = lsn_to + 1
                if lsn_to > after:
                    yield batch

    def requests(self) -> Iterator[NamedUpdates]:
        for lsn, crc, blob in self._select_rows(
            "SELECT lsn_to, crc32, blob FROM requests ORDER BY 1"
        ):
            where = f"the requests at LSN {lsn}"
            self._check_sound(zlib.crc32(blob) == crc, where)
            seen = self._decode_frame(NamedUpdates, blob, where)
            self._check_sound(seen.lsn[-1:].tolist() == [lsn], where)
            yield seen

    def answers(self) -> list[SettledAnswer]:
        out: list[SettledAnswer] = []
        query = "SELECT dispatcher, epoch, seq, settled, crc32, blob FROM answers ORDER BY 1, 2, 3"
        for row in self._select_rows(query):
            dispatcher, epoch, seq, settled, _, blob = row
            where = f"the answer {dispatcher}.{epoch}.{seq}"
            self._check_sound(row == _answer_row(dispatcher, epoch, seq, settled, blob), where)
            decision = self._decode_frame(UpdateDecision, blob, where)
            out.append(SettledAnswer(dispatcher, epoch, seq, settled, decision))
        return out

    def pending_plan(self) -> str:
        query = "SELECT key, value, crc32 FROM meta WHERE key = 'pending_plan'"
        for row in self._select_rows(query):
            self._check_sound(row == meta_row(*row[:2]), "meta 'pending_plan'")
            return str(row[1])
        return ""

    def log_notes(self) -> dict[str, LogNote] | None:
        query = "SELECT key, value, crc32 FROM meta WHERE key = 'logs'"
        for row in self._select_rows(query):
            self._check_sound(row == meta_row(*row[:2]), "meta 'logs'")
            found: dict[str, list[int]] = json.loads(row[1])
            return {name: LogNote(*note) for name, note in found.items()}
        return None

    def _read_epochs(self) -> list[tuple[str, int, int]]:
        """Returns (role, index, epoch) of all."""
        found = list(self._select_rows("SELECT role, number, epoch, crc32 FROM epochs"))
        for row in found:
            self._check_sound(row == epoch_row(*row[:3]), f"the epoch of {row[0]} {row[1]}")
        return [row[:3] for row in found]

    def _read_meta(self, analysis: str) -> tuple[int, int]:
        """Returns watermark and identity. Raises DataDirectoryError, also when what is stored has
        another format or was made with another text analysis."""
        found = list(self._select_rows("SELECT key, value, crc32 FROM meta"))
        for row in found:
            self._check_sound(row == meta_row(*row[:2]), f"meta {row[0]!r}")
        meta = {key: value for key, value, _ in found}
        self._check_sound(
            {"format", "analysis"} <= meta.keys() and meta["format"].isdigit(), "meta"
        )
        if (old := int(meta["format"])) != self.FORMAT:
            age = "newer" if old > self.FORMAT else "older"
            raise DataDirectoryError(
                f"{self.place} has format {old}, {age} than {self.FORMAT}, the one that this "
                "version reads; use the version that wrote it, or another place"
            )
        for key in ("watermark", "identity"):
            self._check_sound(meta.get(key, "").isdigit(), "meta")
        if json.loads(meta["analysis"]) != json.loads(analysis):
            raise DataDirectoryError(
                f"{self.place} was created with the text analysis {meta['analysis']}, not "
                f"{analysis}; its queries would match other words. Use its settings, or another "
                "place"
            )
        return int(meta["watermark"]), int(meta["identity"])

    def _decode_frame(self, kind: type[Kind], blob: bytes, what: str) -> Kind:
        try:
            return kind.decode(blob)
        except FrameError as error:
            raise self._damage_error(what) from error

    def _check_sound(self, good: bool, what: str) -> None:
        if not good:
            raise self._damage_error(what)

    def _damage_error(self, what: str) -> DataDirectoryError:
        return DataDirectoryError(f"{self.place}: {what} is damaged; restore a copy")
