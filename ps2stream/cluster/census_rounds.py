"""The regular census in a service's own process, which it sends to the dispatchers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ps2stream.cluster.intervals import JOIN_S
from ps2stream.observability.census import CensusTaker, Statuses
from ps2stream.observability.process import wall_clock_ms

log = logging.getLogger("ps2stream.cluster")
EVERY_S = 2.0
"""Time between two censuses; the status that each asks for takes an actor under 1 ms."""


class CensusRounds:
    """Takes a census regularly until `stop`, on a thread of its own. `note` adds a part to the
    status of the dispatchers."""

    def __init__(
        self, status: Callable[[], Statuses], note: Callable[[Mapping[str, Any]], None]
    ) -> None:
        self._status = status
        self._note = note
        self._taker = CensusTaker()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._take_censuses, daemon=True, name="census")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(JOIN_S)

    def _take_censuses(self) -> None:
        failed = False
        while True:
            try:
                # Empty while Ray is being restarted, which shows in the age of the census.
                if statuses := self._status():
                    census = self._taker.take(statuses, time.monotonic(), wall_clock_ms())
                    self._note({"census": census})
                failed = False
            except Exception:
                if not failed and not self._stopping.is_set():
                    log.exception("the state of the actors could not be collected; retrying")
                failed = True
            if self._stopping.wait(EVERY_S):
                return
