"""A Log in memory that forgets what was not synced, for tests of its owners."""

from __future__ import annotations

from collections.abc import Iterator

from ps2stream.errors import Unavailable


class MemoryLog:
    """Positions count bytes, as those of files do. It is trimmed by whole segments; it refuses
    all where `full`, frames of the kinds in `refused` otherwise."""

    def __init__(self, segment_bytes: int = 1) -> None:
        self.records: dict[int, bytes] = {}
        self.full = False
        self.refused: set[int] = set()
        self.syncs = 0
        self._segment = segment_bytes
        self._end = 0
        self._synced = 0

    @property
    def first(self) -> int:
        return next(iter(self.records), self._end)

    @property
    def end(self) -> int:
        return self._end

    @property
    def synced(self) -> int:
        return self._synced

    def append(self, record: bytes) -> int:
        if self.full or int.from_bytes(record[6:8], "little") in self.refused:
            raise Unavailable("the log has no room")
        position, self._end = self._end, self._end + len(record)
        self.records[position] = record
        return position

    def sync(self) -> int:
        self._synced = self._end
        self.syncs += 1
        return self._end

    def read(self, position: int) -> bytes:
        return self.records[position]

    def scan(self, start: int = 0) -> Iterator[tuple[int, bytes]]:
        return iter([(p, r) for p, r in self.records.items() if p >= start])

    def trim(self, before: int) -> None:
        before -= before % self._segment
        self.records = {p: r for p, r in self.records.items() if p >= before}

    def close(self) -> None:
        pass

    def crashed(self, torn: int = 0) -> MemoryLog:
        """The log as the next owner finds it: of what was not synced, `torn` records."""
        log = MemoryLog(self._segment)
        unsynced = [p for p in self.records if p >= self._synced]
        gone = set(unsynced[torn:])
        log.records = {p: r for p, r in self.records.items() if p not in gone}
        log._end = log._synced = min(gone, default=self._end)
        return log

    @property
    def problem(self) -> str:
        return "the log has no room" if self.full else ""

    @property
    def bytes(self) -> int:
        return sum(map(len, self.records.values()))
