"""Why a store refuses updates for now."""

from __future__ import annotations

import logging

from ps2stream.errors import Unavailable

log = logging.getLogger("ps2stream.store")


class StoreRefusal:
    """The reason why the store at `place` refuses updates for now, `problem`; empty while it takes
    them. The log tells once of each reason, and when updates are taken again."""

    def __init__(self, place: str) -> None:
        self.problem = ""
        self._place = place

    def note(self, problem: str) -> Unavailable:
        """Notes that an update is refused, and returns the error of that call alone."""
        if problem != self.problem:
            log.warning("%s: updates are refused", problem)
            self.problem = problem
        return Unavailable(problem)

    def end(self) -> None:
        """Notes that an update was taken."""
        if self.problem:
            log.info("%s is written again", self._place)
            self.problem = ""
