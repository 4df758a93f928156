"""The worker machine: applies updates in LSN order, matches objects as of their LSN.

Pure (ARCHITECTURE.md): frames in, `Send`s out. Updates that come early wait for the gap
before them, objects stamped ahead of what is applied wait for it; what got lost is fetched
from the sequencer. Lists are purged once every dispatcher's watermark has passed the delete
(semantics.md, as-of matching).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.follower import Follower
from ps2stream.protocol.frame import Frame, take_ragged
from ps2stream.protocol.messages.loads import LoadRequest
from ps2stream.protocol.messages.objects import Begin, MatchBatch, RoutedObjects, Stale, Watermark
from ps2stream.protocol.messages.plan import Loaded
from ps2stream.protocol.messages.updates import Applied, Tip, WorkerUpdates
from ps2stream.protocol.rows import Kind
from ps2stream.routing.plan_changes import Strategist
from ps2stream.routing.tags import Tagger
from ps2stream.space.grid import Grid
from ps2stream.workers.gi2 import GI2
from ps2stream.workers.index import Census, Index, IndexStats, Parts, Saved
from ps2stream.workers.load import LoadCounter
from ps2stream.workers.pending import Pending
from ps2stream.workers.portion import Portion

CONTROLLER = Address("controller", 0)
STRATEGY = "strategy"  # among the parts of what is saved
SWEEP = 64  # lists looked at with every update
FORCED_SWEEP = 1 << 15  # ... while more than FORCED of the live queries are tombstones
FORCED = 0.1


class Make(Protocol):
    """Makes an index, empty or from its parts."""

    def __call__(self, grid: Grid, parts: Parts | None = None, /) -> Index: ...


class WorkerMachine:
    """Worker `index` of a topology with that many dispatchers and mergers.

    `tagger` and `route` are the plan and its version; `store` makes the index that holds
    the queries. It goes on from `saved`, a cache of what it would fetch otherwise. `strategist`
    follows changes of the plan.
    """

    def __init__(
        self,
        index: int,
        dispatchers: int,
        mergers: int,
        tagger: Tagger,
        route: int,
        store: Make = GI2,
        saved: Saved | None = None,
        strategist: Strategist | None = None,
    ) -> None:
        self.index = index
        self._mergers = mergers
        self._grid = tagger.grid
        self._stream: Follower[WorkerUpdates] = Follower(
            "worker", index, 0 if saved is None else saved.lsn
        )
        self._portion = Portion(index, tagger, route, strategist, self._stream)
        self._make = store
        self._asked: LoadRequest | None = None  # what is weighed for
        self._census: Iterator[Census | None] | None = None
        self._store = store(tagger.grid, None if saved is None else self._resumed(saved))
        self._frozen = False
        self._watermarks = [0] * dispatchers
        self._pending = Pending()
        self._load = LoadCounter(index, tagger.grid)
        self.objects = self.batches = self.matches = 0  # matched, and the pairs that came of it

    @property
    def route(self) -> int:
        """The version of the plan that it goes by."""
        return self._portion.routes.route

    @property
    def applied(self) -> int:
        """LSN up to which updates are in the index."""
        return self._stream.applied

    @property
    def watermark(self) -> int:
        """No object below this LSN will come: the minimum over the dispatchers."""
        return min(self._watermarks)

    @property
    def held(self) -> int:
        """Object batches that wait."""
        return len(self._pending)

    @property
    def blocked(self) -> bool:
        """Whether updates wait for `thaw`."""
        return self._frozen and len(self._stream) > 0

    def stats(self) -> IndexStats:
        """Sizes of the index."""
        return self._store.stats()

    @property
    def counters(self) -> dict[str, int]:
        """Totals since the start, and sizes of the moment."""
        done = {"objects": self.objects, "batches": self.batches, "matches": self.matches}
        return {**done, "held": self.held, "applied": self.applied, **self.stats()._asdict()}

    def freeze(self) -> Saved | None:
        """The index as it is, which does not change until `thaw`; None when there is nothing to
        keep, or half of something. Objects are matched meanwhile, updates wait."""
        if self._stream.amid or not self.applied or self._portion.routes.other is not None:
            return None
        self._frozen = True
        parts = {**self._store.hold(), STRATEGY: self._portion.record()}
        return Saved(self.applied, parts, self.route)

    def _resumed(self, saved: Saved) -> Parts:
        """The parts of the index; the strategy is that of before."""
        parts = dict(saved.parts)
        self._portion.resume(parts.pop(STRATEGY), saved.lsn)
        return parts

    def thaw(self) -> list[Send]:
        """Go on with the updates."""
        self._frozen = False
        self._store.release()
        self._store.purge(self.watermark)
        return self._advance()

    def on(self, frame: Frame) -> list[Send]:
        """Take one frame. Raises TypeError for a kind that is not for workers."""
        match frame:
            case RoutedObjects():
                self._pass(frame.dispatcher, frame.watermark)
                return self._receive(frame)
            case WorkerUpdates():
                self._pass(frame.dispatcher, frame.watermark)
                self._stream.add(frame.lsn_from, frame.lsn_to, frame)
                return self._advance()
            case Applied():
                return self._fetched(frame)
            case Loaded():
                return self._loaded(frame)
            case Tip():
                return self._stream.hear(frame.lsn)
            case Watermark():
                self._pass(frame.dispatcher, frame.watermark)
                return []
            case LoadRequest():
                return self._tell_load(frame)
        raise TypeError(f"a worker takes no {type(frame).__name__}")

    def joined(self, address: Address) -> list[Send]:
        """Another actor was replaced: whoever misses something will say so."""
        return []

    def tick(self) -> list[Send]:
        """Periodic, ten times a second: fetch, if since the last tick nothing came of what was
        missing then; go on with the suspect batches, one step a tick, so that what was
        answered has left before anything dangerous begins."""
        out = self._stream.tick() + self._portion.tick() + self._weigh()
        if (begun := self._pending.take_announced()) is not None:
            over = Send(Address("dispatcher", begun.dispatcher), Begin(self.index, -1, 0))
            return [*out, *self._look(begun), over]
        if behind := self._pending.take_behind():
            return out + [send for objects in behind for send in self._receive(objects)]
        return out + self._announce()

    # --- updates ---------------------------------------------------------------------

    def _pass(self, dispatcher: int, watermark: int) -> None:
        """Note a dispatcher's watermark; it never falls, though messages may overtake."""
        before = self.watermark
        self._watermarks[dispatcher] = max(self._watermarks[dispatcher], watermark)
        if self.watermark > before:
            self._store.purge(self.watermark)

    def _fetched(self, frame: Applied) -> list[Send]:
        """A part of what was fetched; where it is not all, the next is asked for."""
        if self._stream.fetched(frame):
            self._store = self._make(self._grid)
            self._portion.reset()
            self._count_anew()
        return self._advance() + self._stream.ask()

    def _advance(self) -> list[Send]:
        """Apply what now follows on, then match what waited for it."""
        out: list[Send] = []
        while not self._frozen and (updates := self._stream.next()) is not None:
            if len(updates.strategy):
                out += self._follow(updates)
            self._apply(updates)
        if self._stream.amid:
            return out  # half a state is none
        for objects in self._pending.due(self.applied):
            out += self._receive(objects)
        return out

    def _apply(self, updates: WorkerUpdates | Applied) -> None:
        rows, tags = self._portion.share(updates)
        fresh = rows.lsn > self._stream.before
        if not fresh.all():  # the batch repeats some of the one before
            keep = np.flatnonzero(fresh)
            off, cell = take_ragged(tags[0], tags[1], keep)
            tags = off, cell, take_ragged(tags[0], tags[2], keep)[1]
            rows = rows.take(keep)
        if isinstance(updates, WorkerUpdates):  # what is fetched came before
            self._load.updates(rows.kind, tags[0], tags[1])
        gone = rows.kind == Kind.DELETE
        if not gone.all():
            self._store.insert(rows, *tags)
        if gone.any():
            # Inserts first is as good as LSN order: a handle is inserted and deleted once.
            self._store.delete(rows.handle[gone], rows.lsn[gone])
            self._portion.deleted(rows.handle[gone], rows.lsn[gone])
            self._store.purge(self.watermark)
        stats = self._store.stats()
        forced = stats.tombstones > FORCED * stats.live
        self._store.sweep(FORCED_SWEEP if forced else SWEEP)

    # --- another plan ----------------------------------------------------------------

    def _follow(self, updates: WorkerUpdates | Applied) -> list[Send]:
        """A change of the strategy."""
        out = self._portion.follow(updates, self._store, self.watermark)
        self._count_anew()
        return out

    def _loaded(self, frame: Loaded) -> list[Send]:
        """A piece of what the following plan gives; while frozen it is not taken, and asked for
        again."""
        if self._frozen:
            return []
        out = self._portion.load(frame, self._store)
        self._store.purge(self.watermark)
        return out

    # --- loads -----------------------------------------------------------------------

    def _tell_load(self, ask: LoadRequest) -> list[Send]:
        """Begin to count what is stored, or go on with it for this period."""
        if not self._load.asked(ask):
            return []
        self._asked = ask
        self._census = self._census or self._store.census(max(ask.within // 4, 1))
        return self._weigh()

    def _weigh(self) -> list[Send]:
        """A slice of that, so that matching never waits for long."""
        census = None if self._census is None else next(self._census)
        if census is None or self._asked is None:
            return []
        ask, self._asked, self._census = self._asked, None, None
        report = self._load.report(ask, census, self.route, self._portion.moving)
        return [Send(CONTROLLER, report)]

    def _count_anew(self) -> None:
        """What is being counted may be dropped now."""
        if self._census is not None and self._asked is not None:
            self._census = self._store.census(max(self._asked.within // 4, 1))

    # --- objects ---------------------------------------------------------------------

    def _receive(self, objects: RoutedObjects) -> list[Send]:
        self._stream.expect(objects.lsn)
        return [] if self._pending.sets_aside(objects) else self._look(objects)

    def _look(self, objects: RoutedObjects) -> list[Send]:
        """Match, or wait for the updates to the objects' LSN, with which their plan may come."""
        if not self._stream.amid and self.applied >= objects.lsn:
            if self._portion.serves(objects):
                return self._match(objects)
            stale = Stale(self.index, objects.batch, objects.attempt, self.route)
            return [Send(Address("dispatcher", objects.dispatcher), stale)]
        self._pending.wait(objects)
        return []

    def _announce(self) -> list[Send]:
        """Nothing is matched between this and the suspect, so that its dispatcher knows what
        the worker died of."""
        ready = 0 if self._stream.amid else self.applied + 1
        objects = self._pending.announce(ready)
        if objects is None:
            return []
        begin = Begin(self.index, objects.batch, objects.attempt)
        return [Send(Address("dispatcher", objects.dispatcher), begin)]

    def _match(self, objects: RoutedObjects) -> list[Send]:
        """One MatchBatch for every merger, also where it has no match."""
        found = self._store.match(
            objects.lsn, objects.lon, objects.lat, objects.term_off, objects.term
        )
        self._load.objects(objects.lon, objects.lat, self._store.met())
        self.objects += len(objects.row)
        self.batches += 1
        self.matches += len(found.row)
        row = objects.row[found.row]
        of = found.session % self._mergers
        out = []
        for merger in range(self._mergers):
            mine = slice(None) if self._mergers == 1 else of == merger
            batch = MatchBatch(
                worker=self.index,
                dispatcher=objects.dispatcher,
                batch=objects.batch,
                attempt=objects.attempt,
                row=row[mine],
                handle=found.handle[mine],
                session=found.session[mine],
            )
            out.append(Send(Address("merger", merger), batch))
        return out
