"""The worker machine: applies updates in LSN order, matches objects as of their LSN.

It is pure (ARCHITECTURE.md): frames in, `Send`s out. Updates that are ahead wait for those
before them, objects stamped ahead of what is applied wait for it; what got lost is fetched from
the sequencer. Lists are purged once every dispatcher's watermark has passed the delete
(semantics.md 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ps2stream.protocol.addresses import CONTROLLER, Address, Send
from ps2stream.protocol.follower import LedgerFollower
from ps2stream.protocol.frame import Frame, sealed, take_ragged
from ps2stream.protocol.messages.loads import LoadRequest
from ps2stream.protocol.messages.objects import (
    MatchBatch,
    RoutedObjects,
    SessionTable,
    StaleRoute,
    SuspectBegin,
    WatermarkNotice,
)
from ps2stream.protocol.messages.plan import TransferChunk
from ps2stream.protocol.messages.updates import LedgerBatch, LedgerTip, WorkerUpdates
from ps2stream.protocol.producer_map import count_marked
from ps2stream.protocol.rows import UpdateKind
from ps2stream.protocol.session_map import SessionMap
from ps2stream.routing.plan_follower import PlanFollower
from ps2stream.routing.tags import QueryTagger
from ps2stream.workers.gi2 import GI2
from ps2stream.workers.index import IndexStats, Parts, SavedIndex, StoredCensus
from ps2stream.workers.indexes import IndexFactory
from ps2stream.workers.load import LoadCounter
from ps2stream.workers.pending import WaitingObjects
from ps2stream.workers.portion import OwnedUnits

STRATEGY = "strategy"  # the part of a snapshot that holds the plans
SWEEP = 64  # lists searched with every update, and at every tick
FORCED_SWEEP = 1 << 15  # instead, while more than FORCED of the live queries are tombstones
FORCED = 0.1
DELETES_A_SWEEP = 1 << 9  # so that sweeps keep up with updates of many deletes


def choose_budget(stats: IndexStats) -> int:
    """Returns how many lists a sweep of an index with these sizes should search."""
    return FORCED_SWEEP if stats.tombstones > FORCED * stats.live else SWEEP


class WorkerMachine:
    """Worker `index` of a topology with that many dispatchers and mergers.

    `tagger` and `route` are the plan and its number; `store` makes the index that holds the
    queries. The worker goes on from `saved`, a cache of what it would fetch otherwise.
    `strategist` follows plan changes. `clock_us` returns microseconds, of which the machine only
    reports differences.
    """

    def __init__(
        self,
        index: int,
        dispatchers: int,
        mergers: int,
        tagger: QueryTagger,
        route: int,
        store: IndexFactory = GI2,
        saved: SavedIndex | None = None,
        strategist: PlanFollower | None = None,
        clock_us: Callable[[], int] = lambda: 0,
        cpu_us: Callable[[], int] = lambda: 0,
    ) -> None:
        self.index = index
        self._clock_us, self._cpu_us = clock_us, cpu_us
        # A guess: by the ledger, the first table may be one of another number of mergers.
        self._sessions = SessionMap.first(mergers)._replace(lsn=-1)
        self._mergers = mergers
        self._grid = tagger.grid
        self._stream: LedgerFollower[WorkerUpdates] = LedgerFollower(
            "worker", index, 0 if saved is None else saved.lsn
        )
        self._portion = OwnedUnits(index, tagger, route, strategist, self._stream)
        self._make_index = store
        self._load_request: LoadRequest | None = None  # what the census is for
        self._census: Iterator[StoredCensus | None] | None = None
        self._store = store(tagger.grid, None if saved is None else self._resume_parts(saved))
        self._frozen = False
        self._watermarks = [0] * dispatchers
        self._counted = 0  # the latest mark of their number
        self._pending = WaitingObjects()
        self._load = LoadCounter(index, tagger.grid)
        self.objects = self.batches = self.matches = 0  # matched, and the pairs found

    @property
    def route(self) -> int:
        """The number of the plan that the worker follows."""
        return self._portion.routes.route

    @property
    def applied(self) -> int:
        """The LSN up to which updates are in the index."""
        return self._stream.applied

    @property
    def watermark(self) -> int:
        """The LSN below which no object will arrive: the minimum over the dispatchers."""
        return min(self._watermarks)

    @property
    def held(self) -> int:
        """The number of object batches that wait."""
        return len(self._pending)

    @property
    def blocked(self) -> bool:
        """Returns whether updates wait for `thaw`."""
        return self._frozen and len(self._stream) > 0

    def stats(self) -> IndexStats:
        """Returns the sizes of the index."""
        return self._store.stats()

    @property
    def counters(self) -> dict[str, int]:
        """Totals since the start, and sizes of the moment."""
        done = {"objects": self.objects, "batches": self.batches, "matches": self.matches}
        return {**done, "held": self.held, "applied": self.applied, **self.stats()._asdict()}

    def freeze(self) -> SavedIndex | None:
        """Returns the index as it is, which does not change until `thaw`; None when there is
        nothing to keep, or only half of a state. Objects are matched meanwhile, updates wait."""
        if self._stream.amid or not self.applied or self._portion.routes.other is not None:
            return None
        self._frozen = True
        parts = {**self._store.hold(), STRATEGY: self._portion.plan_record()}
        return SavedIndex(self.applied, parts, self.route)

    def _resume_parts(self, saved: SavedIndex) -> Parts:
        """Returns the parts of the index, and goes on with the plans that were saved with them."""
        parts = dict(saved.parts)
        self._portion.resume_plan(parts.pop(STRATEGY), saved.lsn)
        return parts

    def thaw(self) -> list[Send]:
        """Goes on with the updates after `freeze`."""
        self._frozen = False
        self._store.release()
        self._store.purge(self.watermark)
        return self._apply_ready_updates()

    def on(self, frame: Frame) -> list[Send]:
        """Takes one frame in. Raises TypeError for a kind that is not for workers."""
        match frame:
            case RoutedObjects():
                self._note_watermark(frame)
                return self._receive_objects(frame)
            case WorkerUpdates():
                self._note_watermark(frame)
                self._stream.add(frame.lsn_from, frame.lsn_to, frame)
                return self._apply_ready_updates()
            case LedgerBatch():
                return self._add_fetched(frame)
            case TransferChunk():
                return self._store_chunk(frame)
            case LedgerTip():
                return self._stream.hear(frame.lsn)
            case SessionTable():
                if frame.lsn > self._sessions.lsn:
                    self._sessions = SessionMap(frame.lsn, sealed(frame.table))
                    self._mergers = self._sessions.mergers
                return []
            case WatermarkNotice():
                self._note_watermark(frame)
                more = self._stream.skip(frame.after, frame.lsn)
                return self._apply_ready_updates() if more else []
            case LoadRequest():
                return self._begin_load_report(frame)
        raise TypeError(f"a worker does not accept {type(frame).__name__}")

    def joined(self, address: Address) -> list[Send]:
        """Ignores that another actor was replaced: an actor that misses something requests it."""
        return []

    def tick(self) -> list[Send]:
        """Does the periodic work, ten times a second: fetches if nothing of what was missing at
        the last tick has arrived since; removes what may go, as no update may come that would; goes
        on with the suspect batches, one step a tick, so that all answers have left before anything
        dangerous begins."""
        self._sweep_index(1)
        out = self._stream.tick() + self._portion.tick() + self._continue_census()
        if (announced := self._pending.take_announced()) is not None:
            end = Send(Address("dispatcher", announced.dispatcher), SuspectBegin(self.index, -1, 0))
            return [*out, *self._match_or_wait(announced), end]
        if deferred := self._pending.take_deferred():
            return out + [send for objects in deferred for send in self._receive_objects(objects)]
        return out + self._announce_suspect()

    # --- updates ---------------------------------------------------------------------

    def _note_watermark(self, frame: RoutedObjects | WorkerUpdates | WatermarkNotice) -> None:
        """Notes a dispatcher's watermark; it never falls, though messages may overtake each
        other. A dispatcher that is new counts from the first message on whose watermark may be
        above the LSN from which on it accepts objects; one that has left has no open batch
        (docs/decisions/0037, 0038)."""
        before, marks, sender = self.watermark, self._watermarks, frame.dispatcher
        if frame.dispatchers > self._counted:
            self._counted, count = frame.dispatchers, count_marked(frame.dispatchers)
            marks += [before] * (count - len(marks))
            del marks[count:]
        if sender < len(marks):  # otherwise it has accepted nothing yet, or has left
            marks[sender] = max(marks[sender], frame.watermark)
        if self.watermark > before:
            self._store.purge(self.watermark)

    def _add_fetched(self, frame: LedgerBatch) -> list[Send]:
        """Adds a part of what was fetched; unless it was the last, requests the next."""
        if self._stream.fetched(frame):
            self._store = self._make_index(self._grid)
            self._portion.reset_plan()
            self._restart_census()
        return self._apply_ready_updates() + self._stream.ask()

    def _apply_ready_updates(self) -> list[Send]:
        """Applies the updates that now follow, then matches what waited for them."""
        out: list[Send] = []
        while not self._frozen and (updates := self._stream.next()) is not None:
            if len(updates.strategy):
                out += self._follow_plan_change(updates)
            self._apply_updates(updates)
        if self._stream.amid:
            return out  # half a state must not be matched with
        for objects in self._pending.take_due(self.applied):
            out += self._receive_objects(objects)
        return out

    def _apply_updates(self, updates: WorkerUpdates | LedgerBatch) -> None:
        rows, tags = self._portion.select_rows(updates)
        fresh = rows.lsn > self._stream.before
        if not fresh.all():  # the batch repeats some of the one before
            keep = np.flatnonzero(fresh)
            off, cell = take_ragged(tags[0], tags[1], keep)
            tags = off, cell, take_ragged(tags[0], tags[2], keep)[1]
            rows = rows.take(keep)
        if isinstance(updates, WorkerUpdates):  # what is fetched is no new work
            self._load.updates(rows.kind, tags[0], tags[1])
        gone = rows.kind == UpdateKind.DELETE
        if not gone.all():
            self._store.insert(rows, *tags)
        if gone.any():
            # Inserts first is as good as LSN order: a handle is inserted and deleted once.
            self._store.delete(rows.handle[gone], rows.lsn[gone])
            self._portion.note_deletes(rows.handle[gone], rows.lsn[gone])
            self._store.purge(self.watermark)
        self._sweep_index(1 + int(np.count_nonzero(gone)) // DELETES_A_SWEEP)

    def _sweep_index(self, calls: int) -> None:
        """Sweeps this often, unless nothing is left to be removed."""
        for _ in range(calls):
            stats = self._store.stats()
            if not stats.tombstones:
                return
            self._store.sweep(choose_budget(stats))

    # --- another plan ----------------------------------------------------------------

    def _follow_plan_change(self, updates: WorkerUpdates | LedgerBatch) -> list[Send]:
        """Follows a plan change."""
        out = self._portion.follow_change(updates, self._store, self.watermark)
        self._restart_census()
        return out

    def _store_chunk(self, frame: TransferChunk) -> list[Send]:
        """Stores a chunk of what the following plan gives; while frozen it is ignored, and later
        requested again."""
        if self._frozen:
            return []
        out = self._portion.take_chunk(frame, self._store)
        self._store.purge(self.watermark)
        return out

    # --- load ------------------------------------------------------------------------

    def _begin_load_report(self, request: LoadRequest) -> list[Send]:
        """Begins to count what is stored, or goes on with the count for this period."""
        if not self._load.accept_request(request):
            return []
        self._load_request = request
        self._census = self._census or self._store.census(max(request.within // 3, 1))
        return self._continue_census()

    def _continue_census(self) -> list[Send]:
        """Counts one slice of what is stored, so that matching never waits for long."""
        census = None if self._census is None else next(self._census)
        if census is None or self._load_request is None:
            return []
        request, self._load_request, self._census = self._load_request, None, None
        report = self._load.report(request, census, self.route, self._portion.is_migrating)
        return [Send(CONTROLLER, report)]

    def _restart_census(self) -> None:
        """Restarts a count under way: what it counted may be dropped now."""
        if self._census is not None and self._load_request is not None:
            self._census = self._store.census(max(self._load_request.within // 3, 1))

    # --- objects ---------------------------------------------------------------------

    def _receive_objects(self, objects: RoutedObjects) -> list[Send]:
        self._stream.expect(objects.needs)
        return [] if self._pending.set_aside(objects) else self._match_or_wait(objects)

    def _match_or_wait(self, objects: RoutedObjects) -> list[Send]:
        """Matches the objects, or waits for the updates that they need, with which their plan may
        come."""
        if not self._stream.amid and self.applied >= objects.needs:
            if self._portion.serves(objects):
                return self._match_batch(objects)
            stale = StaleRoute(self.index, objects.batch, objects.attempt, self.route)
            return [Send(Address("dispatcher", objects.dispatcher), stale)]
        self._pending.add(objects)
        return []

    def _announce_suspect(self) -> list[Send]:
        """Announces a suspect. Nothing is matched between this and the suspect, so that its
        dispatcher knows what the worker died of."""
        ready = 0 if self._stream.amid else self.applied + 1
        objects = self._pending.announce_suspect(ready)
        if objects is None:
            return []
        begin = SuspectBegin(self.index, objects.batch, objects.attempt)
        return [Send(Address("dispatcher", objects.dispatcher), begin)]

    def _match_batch(self, objects: RoutedObjects) -> list[Send]:
        """Returns the answer to the dispatcher, with the pairs in the order of their mergers."""
        begun, cpu_begun = self._clock_us(), self._cpu_us()
        found = self._store.match(
            objects.lsn, objects.lon, objects.lat, objects.term_off, objects.term, objects.chosen,
            objects.value_off, objects.value,
        )  # fmt: skip
        self._load.objects(objects.lon, objects.lat, self._store.met())
        self.objects += len(objects.row)
        self.batches += 1
        self.matches += len(found.row)
        row, handle, session = objects.row[found.row], found.handle, found.session
        count = np.array([len(row)], np.int64)
        if self._mergers > 1:
            of = self._sessions.mergers_of(session)  # which NumPy sorts by radix
            order = np.argsort(of, kind="stable")
            row, handle, session = row[order], handle[order], session[order]
            count = np.bincount(of, minlength=self._mergers)
        took_us, cpu_us = self._clock_us() - begun, self._cpu_us() - cpu_begun
        answer = MatchBatch(
            self.index, objects.batch, objects.attempt, took_us, cpu_us, self.held,
            count, row, handle, session, self._sessions.lsn,
        )  # fmt: skip
        return [Send(Address("dispatcher", objects.dispatcher), answer)]
