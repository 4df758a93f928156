"""What the ledger notes of how far logs have come."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.errors import StoreFailed, Unavailable
from ps2stream.protocol.ports import LogNote, LogReached
from ps2stream.sequencer.log_progress import note_log_reached
from ps2stream.store.memory import MemoryStore


def reached(name: str, position: int, highest: int) -> LogReached:
    return LogReached(position, highest, np.frombuffer(name.encode(), np.uint8))


def test_the_highest_position_and_number_are_noted() -> None:
    store = MemoryStore()
    store.note_logs({"matches-0": LogNote(5, 100, 7)})
    for position, highest in ((300, 5), (200, 9)):
        note_log_reached(store, reached("matches-0", position, highest))
    assert store.log_notes() == {"matches-0": LogNote(5, 300, 9)}


def test_a_log_that_the_ledger_does_not_know_is_not_noted() -> None:
    store = MemoryStore()
    note_log_reached(store, reached("matches-1", 300, 5))
    assert not store.log_notes()


@pytest.mark.parametrize("error", [StoreFailed, Unavailable])
def test_a_full_disk_is_passed_over_and_a_failed_one_is_not(error: type[Exception]) -> None:
    class Broken(MemoryStore):
        def note_logs(self, _notes: object) -> None:
            raise error("it takes nothing")

    store = Broken()
    MemoryStore.note_logs(store, {"matches-0": LogNote(5, 100, 7)})
    if error is StoreFailed:
        with pytest.raises(StoreFailed):
            note_log_reached(store, reached("matches-0", 300, 5))
    else:
        note_log_reached(store, reached("matches-0", 300, 5))
    assert store.log_notes() == {"matches-0": LogNote(5, 100, 7)}
