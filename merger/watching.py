"""Some of the matches, for those who watch the service. While nobody does, it costs a test."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ps2stream.merger.names import Names
from ps2stream.merger.records import Matched
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import I64, take_ragged
from ps2stream.protocol.messages.watch import Allowance, Seen, Watching, beginnings

LEASE_TICKS = 30


class Watched:
    """Keeps some of a tick's pairs, to tell them to the dispatchers where somebody watches.
    `names` gives the queries' names as they are now."""

    def __init__(self, names: Callable[[], Names]) -> None:
        self._names = names
        self._until: dict[int, int] = {}  # by dispatcher: the tick that it is told to
        self._ticks = 0
        self._pairs = 0
        self._parts: list[Seen] = []
        self._allowance = Allowance()

    def on(self, frame: Watching) -> None:
        """Somebody watches at this dispatcher."""
        self._until[frame.dispatcher] = self._ticks + LEASE_TICKS

    def add(self, record: Matched) -> None:
        """Pairs that were found."""
        if not self._until:
            return
        self._pairs += len(record.handle)
        rows = self._allowance.of(len(record.handle))
        if len(rows) or not self._parts:  # one at least carries the number of pairs
            rows = rows[self._names().known(record.handle[rows])]
            self._parts.append(_seen(record, rows, self._names()))

    def tick(self) -> list[Send]:
        """Ten times a second."""
        self._ticks += 1
        if not self._until:
            return []
        self._until = {d: tick for d, tick in self._until.items() if tick >= self._ticks}
        self._allowance.tick()
        parts, self._parts = self._parts, []
        pairs, self._pairs = self._pairs, 0
        if not parts:
            return []
        seen = Seen.concat(parts, pairs)
        return [Send(Address("dispatcher", d), seen) for d in self._until]


def _seen(record: Matched, rows: I64, names: Names) -> Seen:
    at = record.index[rows].astype(np.int64)
    handle = record.handle[rows]
    id_off, ids = take_ragged(record.id_off, record.id, at)
    text_off, texts = beginnings(record.text_off, record.text, at)
    query_off, queries = names.kept(handle)
    return Seen(
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
