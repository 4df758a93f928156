"""The match log as the merger uses it: records are frames, and those read last stay decoded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import TypeVar

from ps2stream.errors import Unavailable
from ps2stream.protocol.frame import Frame, decode
from ps2stream.protocol.ports import Log

CACHE_BYTES = 8 << 20

Record = TypeVar("Record", bound=Frame)


class MatchJournal:
    """Appends to and reads from a Log.

    `unsynced`: something was appended that must be durable before anything about it is sent, or
    the log refused a record, and only a sync shows whether it will take more. `fetched`: bytes read
    from the log so far.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._limit = CACHE_BYTES
        self._cache: OrderedDict[int, tuple[int, Frame]] = OrderedDict()
        self._cached = 0
        self.unsynced = False
        self.fetched = 0

    @property
    def end(self) -> int:
        return self._log.end

    def append(self, frame: Frame, lasting: bool = True) -> int | None:
        """Returns the record's position, None if the log takes nothing. lasting = False: losing
        the record does no harm."""
        try:
            position = self._log.append(frame.encode())
        except Unavailable:
            self.unsynced = True
            return None
        self.unsynced |= lasting
        return position

    def sync(self) -> None:
        """Makes all records durable. Raises Unavailable if the log has failed for good."""
        if self.unsynced:
            self._log.sync()
            self.unsynced = False

    def hand_over(self) -> bool:
        """Returns whether something was unsynced; from then on the caller must sync it."""
        unsynced, self.unsynced = self.unsynced, False
        return unsynced

    def read(self, position: int, *kinds: type[Record]) -> Record:
        """Reads the record at `position`, which must be of one of these kinds."""
        known = self._cache.get(position)
        if known is None:
            data = self._log.read(position)
            self.fetched += len(data)
            known = self._cache[position] = len(data), decode(data)
            self._cached += len(data)
            while self._cached > self._limit and len(self._cache) > 1:
                self._cached -= self._cache.popitem(last=False)[1][0]
        else:
            self._cache.move_to_end(position)
        frame = known[1]
        for kind in kinds:
            if isinstance(frame, kind):
                return frame
        raise TypeError(f"found a {type(frame).__name__} where a {kinds[0].__name__} is expected")

    def scan(self, start: int) -> Iterator[tuple[int, bytes]]:
        """Yields (position, record) from the record at `start` on, synced or not."""
        for position, data in self._log.scan(start):
            self.fetched += len(data)
            yield position, data

    def trim(self, before: int) -> None:
        """Syncs, then drops the records before this position. Raises Unavailable as `sync` does."""
        self._log.sync()
        self.unsynced = False
        self._log.trim(before)
