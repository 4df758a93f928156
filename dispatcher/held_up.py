"""Which open batches are held up: only silent workers keep them open.

They do not count as under way, so that small publications to other workers need not wait for them
(intake.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ps2stream.dispatcher.open_batch import OpenBatch

EARLY: Final = 16
"""Batches that are held up between two ticks. Many small ones would come to a worker that is only
slow, if none waited there for others to join."""


class HeldUpBatches:
    """The batches that are held up; size: the bytes of their objects."""

    def __init__(self) -> None:
        self.size = 0
        self._batches: set[int] = set()
        self._early = EARLY

    def __len__(self) -> int:
        return len(self._batches)

    def find_all(self, open_batches: Mapping[int, OpenBatch], silent: set[int]) -> None:
        """Notes which batches these silent workers hold up, at a tick or when one is found to be
        silent."""
        self._early = EARLY
        if silent:
            for batch, open_ in open_batches.items():
                self._add(batch, open_, silent)

    def add_early(self, batch: int, open_: OpenBatch, silent: set[int]) -> None:
        """Notes a batch between two ticks, if these silent workers hold it up."""
        if silent and self._early and self._add(batch, open_, silent):
            self._early -= 1

    def _add(self, batch: int, open_: OpenBatch, silent: set[int]) -> bool:
        if not open_.shares or open_.releases or open_.answers or batch in self._batches:
            return False
        if not open_.shares.keys() <= silent:
            return False
        self._batches.add(batch)
        self.size += open_.size
        return True

    def discard(self, batch: int, open_: OpenBatch) -> None:
        """Forgets a batch that is closed."""
        if batch in self._batches:
            self._batches.discard(batch)
            self.size -= open_.size
