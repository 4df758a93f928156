"""The worker machine: applies updates in LSN order, matches objects as of their LSN.

Pure (ARCHITECTURE.md): frames in, `Send`s out. Updates that come early wait for the gap
before them, objects stamped ahead of what is applied wait for it; what got lost is fetched
from the sequencer. Lists are purged once every dispatcher's watermark has passed the delete
(semantics.md, as-of matching).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from ps2stream.batch import I64, U32, U64, Frame, take_ragged
from ps2stream.grid import Grid
from ps2stream.load_messages import LoadRequest
from ps2stream.messages import (
    ROLES,
    Address,
    Applied,
    Begin,
    Hot,
    Loaded,
    MatchBatch,
    Postings,
    RoutedObjects,
    Send,
    Stale,
    Tip,
    Watermark,
    WorkerUpdates,
    nothing,
)
from ps2stream.rows import Kind, QueryRows
from ps2stream.strategy import Routes, Step, Strategist, step_of
from ps2stream.tags import Tagger, TagShare, starts
from ps2stream.tail import Follower
from ps2stream.workers.gi2 import GI2
from ps2stream.workers.index import Census, Index, IndexStats, Mask, Parts, Saved
from ps2stream.workers.load import LoadCounter
from ps2stream.workers.loading import Loading

CONTROLLER = Address("controller", 0)
SEQUENCER = Address("sequencer", 0)
STRATEGY = "strategy"  # among the parts of what is saved
HOT_TICKS = 10  # after which it is said again
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
    follows changes of the plan: what a following plan gives this worker is loaded while it goes
    on, what a former one gave it is dropped.
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
        self.route = route
        self._mergers = mergers
        self._tagger = tagger
        self._make = store
        self._strategist = strategist
        self._routes = Routes(tagger.h1, route, known=frozenset((route,)))
        self._asked: LoadRequest | None = None  # what is weighed for
        self._census: Iterator[Census | None] | None = None
        self._store = store(tagger.grid, None if saved is None else self._resumed(saved))
        self._frozen = False
        self._watermarks = [0] * dispatchers
        self._stream: Follower[WorkerUpdates] = Follower(
            "worker", index, 0 if saved is None else saved.lsn
        )
        self._held: list[tuple[int, int, RoutedObjects]] = []
        self._newest: dict[tuple[int, int], RoutedObjects] = {}  # of `_held`, by batch
        self._ticket = itertools.count()  # heap order among equal LSNs: arrival
        self._suspects: dict[tuple[int, int], RoutedObjects] = {}
        self._begun: RoutedObjects | None = None  # the suspect that comes at the next tick
        self._behind: list[RoutedObjects] = []  # what came since it was announced
        self._loading: Loading | None = None
        self._gained = (0, 0)  # queries and bytes of columns that the following plan gave it
        self._ended: list[Send] = []  # what it held at the end of the last move
        self._ticks = 0
        self._load = LoadCounter(index, tagger.grid)
        self.objects = self.batches = self.matches = 0  # matched, and the pairs that came of it

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
        begun = self._begun is not None
        return len(self._newest) + len(self._suspects) + len(self._behind) + begun

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
        if self._stream.amid or not self.applied or self._routes.other is not None:
            return None
        self._frozen = True
        record = nothing() if self._strategist is None else self._strategist.strategy.record()
        return Saved(self.applied, {**self._store.hold(), STRATEGY: record}, self.route)

    def _resumed(self, saved: Saved) -> Parts:
        """The parts of the index; the strategy is that of before."""
        parts = dict(saved.parts)
        record = parts.pop(STRATEGY)
        if self._strategist is not None and len(record):
            self._turn(self._strategist.take(record, saved.lsn))
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
        out = self._stream.tick() + self._strive() + self._weigh()
        if self._begun is not None:
            begun, self._begun = self._begun, None
            over = Send(Address("dispatcher", begun.dispatcher), Begin(self.index, -1, 0))
            return [*out, *self._look(begun), over]
        if self._behind:
            behind, self._behind = self._behind, []
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
            self._store = self._make(self._tagger.grid)
            self._loading = None  # a state has it all
            if self._strategist is not None:
                self._turn(self._strategist.reset())
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
        while self._held and self._held[0][0] <= self.applied:
            objects = heapq.heappop(self._held)[2]
            if self._newest.get((objects.dispatcher, objects.batch)) is objects:
                del self._newest[objects.dispatcher, objects.batch]
                out += self._receive(objects)
        return out

    def _apply(self, updates: WorkerUpdates | Applied) -> None:
        rows, tags = self._share(updates)
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
            if self._loading is not None:
                self._loading.note(rows.handle[gone], rows.lsn[gone])
            self._store.purge(self.watermark)
        stats = self._store.stats()
        forced = stats.tombstones > FORCED * stats.live
        self._store.sweep(FORCED_SWEEP if forced else SWEEP)

    def _share(self, updates: WorkerUpdates | Applied) -> tuple[QueryRows, tuple[I64, U32, U64]]:
        """The rows that this worker holds, and their tags."""
        rows = QueryRows.decode(updates.rows.data)
        if isinstance(updates, WorkerUpdates):
            return rows, (updates.tag_off, updates.tag_cell, updates.tag_term)
        share = self._of_mine(self._tagger.split(self._tagger.expand(rows)))
        rows = rows.take(share.row)
        if updates.state and self._routes.other is not None and len(rows):
            gained = np.logical_or.reduceat(~self._is_mine(share.cell, share.term), share.off[:-1])
            new = np.flatnonzero(gained & (rows.handle <= self._routes.upto))
            off, cell = take_ragged(share.off, share.cell, new)
            term = take_ragged(share.off, share.term, new)[1]
            self._count(rows.take(new), off, cell, term)
        return rows, (share.off, share.cell, share.term)

    def _of_mine(self, shares: list[TagShare]) -> TagShare:
        """Of a worker that the plan does not know any more, or not yet: nothing."""
        if self.index < len(shares):
            return shares[self.index]
        none = np.zeros(0, np.int64)
        return TagShare(none, np.zeros(1, np.int64), none.astype(np.uint32), none.astype(np.uint64))

    # --- another plan ----------------------------------------------------------------

    def _follow(self, updates: WorkerUpdates | Applied) -> list[Send]:
        """A change of the strategy."""
        if self._strategist is None:
            raise TypeError("this worker follows no change of strategy")
        before, loading = self._routes, self._loading
        routes = self._strategist.take(updates.strategy, updates.lsn_to)
        out: list[Send] = []
        self._gained, self._ended = (0, 0), []
        self._turn(routes)
        another = routes.route != before.route
        if another and step_of(updates.strategy) is Step.SET and not _is_state(updates):
            # The service was started anew under a plan; what a snapshot holds is another's.
            self._loading = None
            return self._stream.forget()
        if loading is not None and not loading.done and routes.serving is not before.serving:
            # An earlier incarnation was hot, whose snapshot is from before the move.
            out += self._stream.forget()
        if routes.other is None:
            self._loading = None
            if before.other is not None and routes.young is None:
                self._store.drop(self._is_mine)
                self._ended = self._held_at(updates.lsn_to)
            return out + self._ended
        if routes.switched or _is_state(updates):
            return out
        box = self._strategist.gained(self.index)
        self._loading = Loading(self.index, routes.upto, box)
        return self._loading.ask() or self._hot()

    def _held_at(self, lsn: int) -> list[Send]:
        """What it holds as of the end of a move; what was loaded may have told of later deletes.
        Nothing, where the watermark has passed it: of what lived then some may be purged."""
        if self.watermark > lsn:
            return []
        held = np.array([self._store.postings(lsn)])
        return [Send(SEQUENCER, Postings(ROLES.index("worker"), self.index, lsn, held))]

    def _turn(self, routes: Routes) -> None:
        """Go by these from now on."""
        if self._census is not None and self._asked is not None:  # of what may be dropped now
            self._census = self._store.census(max(self._asked.within // 4, 1))
        self._routes, self.route = routes, routes.route
        young = routes.young, routes.apart
        self._tagger = Tagger(routes.serving, self._tagger.grid, routes.other, *young)

    def _count(self, rows: QueryRows, off: I64, cell: U32, term: U64) -> None:
        queries, size = self._gained
        size += rows.nbytes + off.nbytes + cell.nbytes + term.nbytes
        self._gained = queries + len(rows), size

    def _is_mine(self, cell: U32, term: U64) -> Mask:
        mine: Mask = self._routes.serving.owners(cell, term) == self.index
        return mine

    def _loaded(self, frame: Loaded) -> list[Send]:
        """Hold what the following plan gives here and the present one does not."""
        routes, loading = self._routes, self._loading
        if self._frozen:
            return []  # it is asked for again
        taken = None if loading is None else loading.take(frame)
        if loading is None or taken is None or routes.other is None:
            return []
        rows, handle, lsn = taken
        tags = Tagger(routes.other, self._tagger.grid).expand(rows)
        gained = (tags.worker == self.index) & ~self._is_mine(tags.cell, tags.term)
        held = np.diff(starts(gained.astype(np.int64))[tags.off])
        some = np.flatnonzero(held)
        off = starts(held[some])
        rows, cell, term = rows.take(some), tags.cell[gained], tags.term[gained]
        self._store.extend(rows, off, cell, term)
        self._count(rows, off, cell, term)
        self._store.delete(handle, lsn)
        self._store.purge(self.watermark)
        return loading.ask() or self._hot()

    def _hot(self) -> list[Send]:
        if self._routes.other is None or self._routes.switched or self._stream.amid:
            return []
        return [Send(SEQUENCER, Hot(self.index, self._routes.begun, *self._gained))]

    def _strive(self) -> list[Send]:
        """Go on loading, or say that it is done."""
        self._ticks += 1
        if self._loading is not None and not self._loading.done:
            return self._loading.tick()
        return self._hot() + self._ended if self._ticks % HOT_TICKS == 0 else []

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
        routes = self._routes
        moving = routes.other is not None or routes.young is not None
        return [Send(CONTROLLER, self._load.report(ask, census, routes.route, moving))]

    # --- objects ---------------------------------------------------------------------

    def _receive(self, objects: RoutedObjects) -> list[Send]:
        self._stream.expect(objects.lsn)
        if objects.suspect:
            self._suspects[objects.dispatcher, objects.batch] = objects
        elif self._begun is not None:
            self._behind.append(objects)
        else:
            return self._look(objects)
        return []

    def _serves(self, objects: RoutedObjects) -> bool:
        """Whether it holds, or will as of the objects' LSN, what this plan gives it."""
        routes = self._routes
        loaded = routes.other is not None and (self._loading is None or self._loading.done)
        known = routes.serves(objects.route, objects.lsn)
        return known or (loaded and objects.route == routes.coming)

    def _look(self, objects: RoutedObjects) -> list[Send]:
        """Match, or wait for the updates to the objects' LSN, with which their plan may come."""
        if not self._stream.amid and self.applied >= objects.lsn:
            if self._serves(objects):
                return self._match(objects)
            stale = Stale(self.index, objects.batch, objects.attempt, self.route)
            return [Send(Address("dispatcher", objects.dispatcher), stale)]
        self._newest[objects.dispatcher, objects.batch] = objects
        heapq.heappush(self._held, (objects.lsn, next(self._ticket), objects))
        return []

    def _announce(self) -> list[Send]:
        """Nothing is matched between this and the suspect, so that its dispatcher knows what
        the worker died of."""
        ready = 0 if self._stream.amid else self.applied + 1
        for key, objects in self._suspects.items():
            if objects.lsn < ready:
                self._begun = self._suspects.pop(key)
                begin = Begin(self.index, objects.batch, objects.attempt)
                return [Send(Address("dispatcher", objects.dispatcher), begin)]
        return []

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


def _is_state(updates: WorkerUpdates | Applied) -> bool:
    return isinstance(updates, Applied) and updates.state > 0
