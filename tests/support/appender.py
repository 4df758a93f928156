"""A thread that appends to a log and notes what was acknowledged."""

from __future__ import annotations

import threading
import time

from ps2stream.errors import Unavailable
from ps2stream.protocol.ports import Log


class Appender(threading.Thread):
    """Appends and syncs until `stop`; `acked` is what was acknowledged."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self.acked: list[tuple[int, bytes]] = []
        self.refused = 0
        self.stop = threading.Event()
        self.unexpected: list[BaseException] = []
        self._log = log

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                record = b"%d" % len(self.acked) * 40
                try:
                    position = self._log.append(record)
                except Unavailable:
                    self.refused += 1
                    time.sleep(0.05)
                    continue
                self._log.sync()
                self.acked.append((position, record))
        except BaseException as error:  # noqa: BLE001
            self.unexpected.append(error)

    def finish(self) -> None:
        self.stop.set()
        self.join()
        assert self.unexpected == []

    def wait_for_more(self, count: int) -> None:
        wanted, deadline = len(self.acked) + count, time.monotonic() + 60
        while len(self.acked) < wanted:
            assert not self.unexpected, self.unexpected
            assert time.monotonic() < deadline
            time.sleep(0.01)
