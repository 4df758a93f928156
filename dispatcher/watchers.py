"""The watchers of a dispatcher's stream: they get a few objects and matches ten times a second.

Without watchers a batch costs one test here, and mergers get no requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ps2stream.dispatcher.instructions import Instruction, ShowSample
from ps2stream.errors import ResourceExhausted
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import I64, U8, column_to_strings, take_ragged
from ps2stream.protocol.messages.watch import (
    SeenMatches,
    SeenObjects,
    WatchAllowance,
    WatchNotice,
    WatchSample,
    beginnings,
)
from ps2stream.protocol.rows import ObjectRows
from ps2stream.protocol.ticks import TICKS_PER_S
from ps2stream.tenants import key, key_of

MAX_WATCHERS = 16
TIMED = 1024
"""The number of batches of which the latency of matches is measured at a time."""


class StreamWatcher:
    """A watcher of `tenant`, which gets the matches of that tenant's queries. `handle` is the
    shell's."""

    def __init__(self, tenant: str, handle: Any) -> None:
        self.key = key(tenant)
        self.handle = handle
        self.allowance = WatchAllowance()

    def own(self, seen: SeenMatches) -> SeenMatches:
        """Returns the matches that this watcher may see: those of its tenant, and not too many."""
        names = column_to_strings(seen.query_off, seen.query)
        mine = [i for i, name in enumerate(names) if key_of(name.encode()) == self.key]
        rows = np.array(mine, np.int64)
        return seen.take(rows[self.allowance.of(len(rows))])


class StreamWatchers:
    """All watchers of dispatcher `index`, which see the matches of this number of mergers;
    instructions go to `out`. Times are seconds."""

    def __init__(self, index: int, mergers: int, out: list[Instruction]) -> None:
        self._index = index
        self.mergers = mergers
        self._out = out
        self._all: list[StreamWatcher] = []
        self._ticks = 0
        self._allowance = WatchAllowance()
        self._objects: list[SeenObjects] = []
        self._matches: list[SeenMatches] = []
        self._accepted = self._matched = 0
        self._latency: list[float] = []
        self._withdrawn: list[str] = []
        self._waiting: dict[int, float] = {}  # batch: since when

    def __len__(self) -> int:
        return len(self._all)

    def add(self, watcher: StreamWatcher) -> None:
        """Raises ResourceExhausted when there are MAX_WATCHERS."""
        if len(self._all) >= MAX_WATCHERS:
            raise ResourceExhausted(f"{MAX_WATCHERS} clients watch, the limit (watchers)")
        self._all.append(watcher)
        self._request_matches()

    def drop(self, handle: Any) -> None:
        """Removes a watcher, which may have been removed before."""
        self._all = [watcher for watcher in self._all if watcher.handle is not handle]
        if not self._all:
            self._clear_gathered()
            self._waiting.clear()

    def accepted(self, rows: ObjectRows, offset: int, routed: bool, now: float) -> None:
        """Notes an accepted batch; `routed` says whether it went to workers."""
        if not self._all:
            return
        self._accepted += len(rows)
        if routed and len(self._waiting) < TIMED:
            self._waiting[offset] = now
        chosen = self._allowance.of(len(rows))
        if len(chosen):
            id_off, ids = take_ragged(rows.id_off, rows.id, chosen)
            text_off, texts = beginnings(rows.text_off, rows.text, chosen)
            some = SeenObjects(
                partition=np.full(len(chosen), self._index, np.uint32),
                offset=offset + chosen,
                time=rows.time[chosen],
                lon=rows.lon[chosen],
                lat=rows.lat[chosen],
                id_off=id_off,
                id=ids,
                text_off=text_off,
                text=texts,
            )
            self._objects.append(some)

    def completed(self, batches: Sequence[int], now: float) -> None:
        """Notes that all matches of these batches are durable."""
        if self._waiting:
            found = (self._waiting.pop(batch, None) for batch in batches)
            self._latency += [now - since for since in found if since is not None]

    def withdrawn(self, id_off: I64, id: U8) -> None:
        """Notes that the objects with these ids (ragged) are withdrawn."""
        if self._all:
            self._withdrawn += column_to_strings(id_off, id)

    def on(self, seen: SeenMatches) -> None:
        """Gathers matches from a merger."""
        if self._all:
            self._matched += seen.pairs
            self._matches.append(seen)

    def tick(self) -> None:
        """Shows the watchers, ten times a second, what was gathered; once a second also nothing."""
        if not self._all:
            return
        self._ticks += 1
        full = self._ticks % TICKS_PER_S == 0
        if full:
            self._request_matches()
        self._allowance.tick()
        is_due = full or self._accepted or self._latency or self._withdrawn
        # If the matches of other tenants caused a glimpse, it would reveal that there are some.
        matched = self._matched if is_due else 0
        for watcher in self._all:
            watcher.allowance.tick()
            matches = [own for seen in self._matches if len((own := watcher.own(seen)).handle)]
            if is_due or matches:
                counts = (self._accepted, matched, self._latency, tuple(self._withdrawn))
                sample = WatchSample(self._objects, matches, *counts)
                self._out.append(ShowSample(watcher.handle, sample))
        matched = self._matched - matched
        self._clear_gathered()
        self._matched = matched

    def _clear_gathered(self) -> None:
        self._objects, self._matches, self._latency, self._withdrawn = [], [], [], []
        self._accepted = self._matched = 0

    def _request_matches(self) -> None:
        """Requests matches from the mergers."""
        request = WatchNotice(self._index)
        self._out += [Send(Address("merger", merger), request) for merger in range(self.mergers)]
