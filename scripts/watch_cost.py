"""Measures what watching costs a dispatcher and a merger, in CPU time: python
scripts/watch_cost.py

A second of stream is 200 batches of 1,024 objects, each of which one of a million queries
matches; no other work on them is included.
"""

from __future__ import annotations

import time

import numpy as np

from ps2stream.dispatcher.instructions import Instruction, ShowSample
from ps2stream.dispatcher.watchers import StreamWatcher, StreamWatchers
from ps2stream.merger.names import QueryNames
from ps2stream.merger.records import MatchedRecord
from ps2stream.merger.watching import WatchedMatches
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.messages.watch import SeenMatches, WatchNotice
from ps2stream.protocol.rows import ObjectRows, no_offsets
from ps2stream.protocol.ticks import TICKS_PER_S
from ps2stream.service.watch_calls import encode_glimpse

ROWS, BATCHES, SECONDS, QUERIES, SESSIONS = 1024, 200, 20, 1_000_000, 128
IDS = strings_to_column(f"id{i}" for i in range(ROWS))
TEXTS = strings_to_column(["some words of a post about a flood in town " * 3] * ROWS)
WHERE = (np.zeros(ROWS, np.int64), np.zeros(ROWS), np.zeros(ROWS))
TERMS = (np.arange(ROWS + 1), np.zeros(ROWS, np.uint64))
OBJECTS = ObjectRows(*IDS, *WHERE, *TEXTS, *TERMS)


def make_matches() -> MatchedRecord:
    """Returns the matches of one batch."""
    handle = np.random.default_rng(1).integers(1, QUERIES + 1, ROWS)
    index = np.arange(ROWS, dtype=np.uint32)
    sessions = np.arange(SESSIONS)
    cut = np.arange(0, ROWS + 1, ROWS // SESSIONS)
    columns = (sessions, np.zeros_like(sessions), cut, handle, index, np.arange(ROWS))
    opaque = no_offsets(), np.zeros(0, np.uint8)
    return MatchedRecord(0, 0, ROWS, 1, 0, *columns, *IDS, *WHERE, *TEXTS, *opaque)


def measure_ms(names: QueryNames, record: MatchedRecord, watched: bool) -> dict[str, float]:
    """Returns the CPU ms for a second of stream."""
    out: list[Instruction] = []
    dispatcher = StreamWatchers(0, 1, out)
    merger = WatchedMatches(lambda: names)
    if watched:
        dispatcher.add(StreamWatcher("", handle=None))
    spent = dict.fromkeys(("dispatcher", "merger", "stream"), 0.0)
    each = BATCHES // TICKS_PER_S
    for tick in range(SECONDS * TICKS_PER_S):
        if watched and tick % TICKS_PER_S == 0:
            merger.on(WatchNotice(0))
        begun = time.process_time()
        for at in range(0, each * ROWS, ROWS):
            dispatcher.accepted(OBJECTS, at, routed=True, now=begun)
            dispatcher.completed([at], begun)
        dispatched = time.process_time()
        for _ in range(each):
            merger.add(record)
        sends = merger.tick()
        merged = time.process_time()
        for send in sends:
            assert isinstance(send.frame, SeenMatches)
            dispatcher.on(send.frame)
        dispatcher.tick()
        ticked = time.process_time()
        for shown in out:
            if isinstance(shown, ShowSample):
                encode_glimpse(shown.sample, 0, True)
        out.clear()
        spent["dispatcher"] += dispatched - begun + ticked - merged
        spent["merger"] += merged - dispatched
        spent["stream"] += time.process_time() - ticked
    return {name: round(1000 * s / SECONDS, 3) for name, s in spent.items()}


if __name__ == "__main__":
    names = QueryNames()
    names.add(np.arange(1, QUERIES + 1), *strings_to_column(f"q{i}" for i in range(1, QUERIES + 1)))
    record = make_matches()
    measure_ms(names, record, watched=True)  # compiles
    for watched in (False, True):
        found = measure_ms(names, record, watched)
        shown = ", ".join(f"{name} {ms} ms" for name, ms in found.items())
        print(f"{'watched' if watched else 'not watched'}: {shown} a second")  # noqa: T201
