"""What the ledger notes of how far logs have come."""

from __future__ import annotations

import logging

from ps2stream.errors import StoreFailed, Unavailable
from ps2stream.protocol.ports import LogReached, Store

log = logging.getLogger("ps2stream.store")


def note_log_reached(store: Store, reached: LogReached) -> None:
    """Notes the position that a log has reached. Raises StoreFailed; while the disk is full, it is
    not noted, and a later report has as much."""
    name, notes = reached.name.tobytes().decode(), dict(store.log_notes() or {})
    if (note := notes.get(name)) is None:
        return
    position = max(note.position, reached.position)
    highest = max(note.highest, reached.highest)
    notes[name] = note._replace(position=position, highest=highest)
    try:
        store.note_logs(notes)
    except StoreFailed:
        raise
    except Unavailable:
        log.warning("the progress of %s was not recorded: the disk is full", name)
