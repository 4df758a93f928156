"""A sample of the matches, for those who watch the service. If nobody does, it costs a test."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ps2stream.merger.names import QueryNames
from ps2stream.merger.records import MatchedRecord
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import I64, take_ragged
from ps2stream.protocol.messages.watch import SeenMatches, WatchAllowance, WatchNotice, beginnings

LEASE_TICKS = 30  # how long a dispatcher is sent pairs after it has asked


class WatchedMatches:
    """Keeps a sample of a tick's pairs, for the dispatchers where somebody watches. `names`
    returns the queries' names as they are now."""

    def __init__(self, names: Callable[[], QueryNames]) -> None:
        self._names = names
        self._until: dict[int, int] = {}  # by dispatcher: the last tick at which it is sent pairs
        self._ticks = 0
        self._pairs = 0
        self._parts: list[SeenMatches] = []
        self._allowance = WatchAllowance()

    def on(self, frame: WatchNotice) -> None:
        """Notes that somebody watches at this dispatcher."""
        self._until[frame.dispatcher] = self._ticks + LEASE_TICKS

    def add(self, record: MatchedRecord) -> None:
        """Counts the pairs of a record, and keeps some of them."""
        if not self._until:
            return
        self._pairs += len(record.handle)
        rows = self._allowance.of(len(record.handle))
        if len(rows) or not self._parts:  # at least one part must carry the number of pairs
            rows = rows[self._names().known(record.handle[rows])]
            self._parts.append(_make_seen(record, rows, self._names()))

    def tick(self) -> list[Send]:
        """Sends the pairs of the last tick. Called ten times a second."""
        self._ticks += 1
        if not self._until:
            return []
        self._until = {d: tick for d, tick in self._until.items() if tick >= self._ticks}
        self._allowance.tick()
        parts, self._parts = self._parts, []
        pairs, self._pairs = self._pairs, 0
        if not parts:
            return []
        seen = SeenMatches.concat(parts, pairs)
        return [Send(Address("dispatcher", d), seen) for d in self._until]


def _make_seen(record: MatchedRecord, rows: I64, names: QueryNames) -> SeenMatches:
    """Returns these pairs of a record as a message."""
    at = record.index[rows].astype(np.int64)
    handle = record.handle[rows]
    id_off, ids = take_ragged(record.id_off, record.id, at)
    text_off, texts = beginnings(record.text_off, record.text, at)
    query_off, queries = names.kept(handle)
    return SeenMatches(
        partition=np.full(len(rows), record.dispatcher, np.uint32),
        offset=record.offset[at],
        time=record.time[at],
        lon=record.lon[at],
        lat=record.lat[at],
        id_off=id_off,
        id=ids,
        text_off=text_off,
        text=texts,
        pairs=0,
        handle=handle,
        session=record.session[np.searchsorted(record.cut, rows, "right") - 1],
        query_off=query_off,
        query=queries,
    )
