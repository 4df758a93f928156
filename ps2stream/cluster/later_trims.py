"""A log that is trimmed by another thread, since removing a segment takes many milliseconds."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from ps2stream.errors import Unavailable
from ps2stream.protocol.ports import Log

log = logging.getLogger("ps2stream.cluster")


class TrimmedLater(Log):
    """The log `inner`, which a thread trims: one that is rarely needed and starts then."""

    def __init__(self, inner: Log) -> None:
        self._inner = inner
        self._threads = ThreadPoolExecutor(1, "ps2stream-trim")
        self._wanted = 0

    @property
    def first(self) -> int:
        return self._inner.first

    @property
    def end(self) -> int:
        return self._inner.end

    @property
    def synced(self) -> int:
        return self._inner.synced

    def append(self, record: bytes) -> int:
        return self._inner.append(record)

    def sync(self) -> int:
        return self._inner.sync()

    def read(self, position: int) -> bytes:
        return self._inner.read(position)

    def scan(self, start: int = 0) -> Iterator[tuple[int, bytes]]:
        return self._inner.scan(start)

    def trim(self, before: int) -> None:
        """Has records before this position dropped soon. A failure shows at the next append or
        sync."""
        if before > self._wanted:
            self._wanted = before
            self._threads.submit(self._trim, before)

    @property
    def problem(self) -> str:
        return self._inner.problem

    @property
    def bytes(self) -> int:
        return self._inner.bytes

    def close(self) -> None:
        self._threads.shutdown()
        self._inner.close()

    def _trim(self, before: int) -> None:
        if before < self._wanted:
            return  # a later trim follows
        try:
            with contextlib.suppress(Unavailable):  # for good, as the log remembers
                self._inner.trim(before)
        except Exception:
            log.exception("the log could not be trimmed")
