"""The numbers of updates that a sequencer reports."""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.messages.updates import UpdateStatus
from ps2stream.sequencer.update_totals import UpdateTotals


def test_what_is_committed_and_refused_adds_up() -> None:
    totals = UpdateTotals()
    totals.note_committed(3, 1)
    totals.note_committed(0, 2)
    totals.ended += 2
    for some in ([UpdateStatus.OK, UpdateStatus.UNAVAILABLE], [UpdateStatus.UNAVAILABLE] * 2):
        totals.note_outcomes(np.array(some, np.uint8))
    found = totals.counters
    assert (found["inserts"], found["deletes"], found["ended"]) == (3, 3, 2)
    refused = found["refused_updates"]
    assert refused.pop("unavailable") == 3
    assert "ok" not in refused
    assert set(refused.values()) == {0}
