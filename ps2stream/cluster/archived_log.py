"""An object log whose objects also go to the archive, on a thread beside the dispatcher's."""

from __future__ import annotations

import logging
import threading
from typing import Any

from ps2stream.archive.layout import ArchiveLimits
from ps2stream.cluster.archive_writer import ArchiveWriter
from ps2stream.cluster.later_trims import TrimmedLater
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.ports import Log

log = logging.getLogger("ps2stream.cluster")
LOOK_S = 1.0
"""Time between two looks at what has become durable."""


class ArchivedLog(TrimmedLater):
    """The log `inner`, which `writer` follows on a thread of its own until `close`. It is trimmed
    no further than the archive has come, or than the writer gave up."""

    def __init__(self, inner: Log, writer: ArchiveWriter) -> None:
        super().__init__(inner)
        self._writer = writer
        self._asked = 0
        self._is_hurried = False  # whether the next look takes everything in
        self._trimming = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow_log, daemon=True, name="archive")
        self._thread.start()

    def trim(self, before: int) -> None:
        """Has records before this position dropped as soon as the archive needs none of them."""
        with self._trimming:
            self._asked = max(self._asked, before)
            super().trim(min(self._asked, self._writer.keep_from))

    def settle(self, end: int) -> bool:
        """Has the archive take in soon what is durable before this position, and what that says of
        withdrawals. Returns whether it has, or cannot be written now."""
        if self._writer.settled >= end or self._writer.problem:
            return True
        self._is_hurried = True
        return False

    def close(self) -> None:
        """Archives what is durable, ends the thread, and closes the log."""
        self._stopping.set()
        self._thread.join()
        super().close()

    def status(self) -> dict[str, Any]:
        """Returns figures of the archive for the dispatcher's status."""
        return self._writer.status()

    @classmethod
    def follow(
        cls, inner: Log, limits: ArchiveLimits, address: Address, identity: str
    ) -> ArchivedLog:
        """Returns the log of the dispatcher at `address` with an archive; see ArchiveWriter."""
        return cls(inner, ArchiveWriter(inner, limits, address.index, identity))

    def _follow_log(self) -> None:
        try:
            while not self._stopping.wait(LOOK_S):
                is_hurried, self._is_hurried = self._is_hurried, False
                self._look_once(is_last=is_hurried)
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
