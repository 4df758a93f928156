"""An object log whose objects also go to the archive, on a thread beside the dispatcher's."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

from ps2stream.archive.layout import ArchiveLimits
from ps2stream.cluster.archive_writer import ArchiveWriter
from ps2stream.cluster.later_trims import TrimmedLater
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.ports import Log

log = logging.getLogger("ps2stream.cluster")
LOOK_S = 1.0
"""Time between two looks at what has become durable."""


class ArchivedLog(Log):
    """The log `inner`, which `writer` follows on a thread of its own until `close`. It is trimmed
    no further than the archive has come, or than the writer gave up."""

    def __init__(self, inner: TrimmedLater, writer: ArchiveWriter) -> None:
        self._inner = inner
        self._writer = writer
        self._wanted = 0
        self._trimming = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow_log, daemon=True, name="archive")
        self._thread.start()

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
        """Has records before this position dropped as soon as the archive needs none of them."""
        with self._trimming:
            self._wanted = max(self._wanted, before)
            self._inner.trim(min(self._wanted, self._writer.keep_from))

    @property
    def bytes(self) -> int:
        return self._inner.bytes

    def close(self) -> None:
        """Archives what is durable, ends the thread, and closes the log."""
        self._stopping.set()
        self._thread.join()
        self._inner.close()

    def status(self) -> dict[str, Any]:
        """Returns figures of the archive for the dispatcher's status."""
        return self._writer.status()

    @classmethod
    def follow(
        cls, inner: Log, limits: ArchiveLimits, address: Address, identity: str
    ) -> ArchivedLog:
        """Returns the log of the dispatcher at `address` with an archive; see ArchiveWriter."""
        later = inner if isinstance(inner, TrimmedLater) else TrimmedLater(inner)
        return cls(later, ArchiveWriter(later, limits, address.index, identity))

    def _follow_log(self) -> None:
        try:
            while not self._stopping.wait(LOOK_S):
                self._look_once(is_last=False)
            self._look_once(is_last=True)
        except Exception:
            # The service goes on without its archive, and keeps nothing for it.
            log.exception("the archive is not written any more")
            self._writer.problem = "an error, which the log of the service tells"
            self._writer.keep_from = 1 << 62
            self.trim(0)
        finally:
            self._writer.close()

    def _look_once(self, is_last: bool) -> None:
        before = self._writer.keep_from
        self._writer.look(is_last)
        if self._writer.keep_from != before:
            self.trim(0)
