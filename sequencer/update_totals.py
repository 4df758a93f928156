"""What a sequencer has decided since its start, as numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ps2stream.protocol.frame import Array
from ps2stream.protocol.messages.updates import UpdateStatus


class UpdateTotals:
    """Counts the updates that were committed, and those that were refused by their reason."""

    def __init__(self) -> None:
        self._inserts = self._deleted = 0
        self.ended = 0  # deletes of queries whose end had come
        self._refused = np.zeros(len(UpdateStatus), np.int64)

    def note_committed(self, inserts: int, deletes: int) -> None:
        """Notes what one commit has inserted and deleted."""
        self._inserts += inserts
        self._deleted += deletes

    def note_outcomes(self, status: Array) -> None:
        """Notes the status, uint8[n], of updates of which some were refused."""
        self._refused += np.bincount(status, minlength=len(self._refused))

    @property
    def counters(self) -> dict[str, Any]:
        """Totals since the start."""
        refused = zip(UpdateStatus, self._refused.tolist(), strict=True)
        return {
            "inserts": self._inserts,
            "deletes": self._deleted,
            "ended": self.ended,
            "refused_updates": {s.name.lower(): n for s, n in refused if s != UpdateStatus.OK},
        }
