"""What the plan gives one worker to hold, and what a following plan will (contract.md 3)."""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.addresses import ROLES, SEQUENCER, Send, nothing
from ps2stream.protocol.follower import LedgerFollower
from ps2stream.protocol.frame import I64, U8, U32, U64
from ps2stream.protocol.messages.objects import RoutedObjects
from ps2stream.protocol.messages.plan import PostingCounts, TransferChunk, TransferDone
from ps2stream.protocol.messages.updates import LedgerBatch, WorkerUpdates
from ps2stream.protocol.rows import QueryRows
from ps2stream.protocol.ticks import TRANSFER_TICKS
from ps2stream.routing.plan_changes import step_of
from ps2stream.routing.plan_follower import CompiledRoutes, PlanFollower
from ps2stream.routing.plan_states import PlanStep
from ps2stream.routing.tags import QueryTagger, TagShare, measure_gain, starts
from ps2stream.workers.index import Index, Mask
from ps2stream.workers.transfer import QueryTransfer

Tags = tuple[I64, U32, U64]
"""Offsets by row, cells and terms."""


class OwnedUnits:
    """The queries that worker `index` holds by the plan. `tagger` and `route` are the plan and
    its number; `strategist` follows plan changes: what a following plan gives this worker is
    transferred while it goes on, what a former one gave it is dropped. `updates` is the stream
    that its index is made from."""

    def __init__(
        self,
        index: int,
        tagger: QueryTagger,
        route: int,
        strategist: PlanFollower | None,
        updates: LedgerFollower[WorkerUpdates],
    ) -> None:
        self.routes = CompiledRoutes(tagger.h1, route, known=frozenset((route,)))
        self._index = index
        self._tagger = tagger
        self._strategist = strategist
        self._updates = updates
        self._transfer: QueryTransfer | None = None
        self._gained = (0, 0)  # queries and bytes of columns that the following plan gave it
        self._end_report: list[Send] = []  # how many postings the last migration left
        self._ticks = 0

    @property
    def is_migrating(self) -> bool:
        """Returns whether the worker holds queries by more than one plan."""
        return self.routes.other is not None or self.routes.young is not None

    def plan_record(self) -> U8:
        """Returns the record of the plans that the worker follows."""
        return nothing() if self._strategist is None else self._strategist.strategy.record()

    def resume_plan(self, record: U8, lsn: int) -> None:
        """Goes on with the plans of such a record."""
        if self._strategist is not None and len(record):
            self._use_routes(self._strategist.take(record, lsn))

    def reset_plan(self) -> None:
        """Goes back to the plan of the start: a state follows, which names the changes and holds
        all that was to be transferred."""
        self._transfer = None
        if self._strategist is not None:
            self._use_routes(self._strategist.reset())

    def serves(self, objects: RoutedObjects) -> bool:
        """Returns whether the worker holds, or will as of the LSN of the objects, what their
        plan gives it."""
        routes = self.routes
        loaded = routes.other is not None and (self._transfer is None or self._transfer.done)
        known = routes.serves(objects.route, objects.lsn)
        return known or (loaded and objects.route == routes.coming)

    def select_rows(self, updates: WorkerUpdates | LedgerBatch) -> tuple[QueryRows, Tags]:
        """Returns the rows that this worker holds, and their tags."""
        rows = QueryRows.decode(updates.rows.data)
        if isinstance(updates, WorkerUpdates):
            return rows, (updates.tag_off, updates.tag_cell, updates.tag_term)
        tags = self._tagger.expand(rows)
        share = self._own_share(self._tagger.split(tags))
        if len(share.row) < len(rows):
            rows = rows.take(share.row)
        if updates.state and self.routes.other is not None and len(rows):
            place = np.repeat(tags.place[share.row], np.diff(share.off))
            owned = self._is_owned(share.cell, share.term, place)
            gained = np.logical_or.reduceat(~owned, share.off[:-1])
            new = np.flatnonzero(gained & (rows.handle <= self.routes.upto))
            self._count_gained(rows.take(new), starts(np.diff(share.off)[new]))
        return rows, (share.off, share.cell, share.term)

    def note_deletes(self, handle: I64, lsn: I64) -> None:
        """Notes that these queries were deleted, in case a transfer is under way."""
        if self._transfer is not None:
            self._transfer.note(handle, lsn)

    def follow_change(
        self, updates: WorkerUpdates | LedgerBatch, store: Index, watermark: int
    ) -> list[Send]:
        """Follows a plan change. Where `store` holds what another plan gave, all is fetched
        anew."""
        if self._strategist is None:
            raise TypeError("this worker does not support plan changes")
        before, transfer, plans = self.routes, self._transfer, self._strategist.strategy
        routes = self._strategist.take(updates.strategy, updates.lsn_to)
        self._gained, self._end_report = (0, 0), []
        self._use_routes(routes)
        state = isinstance(updates, LedgerBatch) and updates.state > 0
        another = routes.route != before.route
        if another and step_of(updates.strategy) is PlanStep.SET and not state:
            # The service was started anew under this plan; the snapshot is of another.
            self._transfer = None
            return self._updates.forget()
        out: list[Send] = []
        if transfer is not None and not transfer.done and routes.serving is not before.serving:
            # An earlier incarnation had completed the transfer; its snapshot is from before.
            out = self._updates.forget()
        if routes.other is None:
            self._transfer = None
            if before.other is not None and routes.young is None:
                if self._strategist.has_lost(self._index, plans):
                    self._drop_lost(store)
                self._end_report = self._report_postings(updates.lsn_to, store, watermark)
            return out + self._end_report
        if routes.switched or state:
            return out
        gained = self._strategist.gained(self._index)
        self._transfer = QueryTransfer(self._index, routes.upto, gained)
        return out + (self._transfer.ask() or self._report_transfer_done())

    def take_chunk(self, frame: TransferChunk, store: Index) -> list[Send]:
        """Stores what the following plan gives this worker and the present one does not, if this
        chunk was requested."""
        routes, transfer = self.routes, self._transfer
        taken = None if transfer is None else transfer.take(frame)
        if transfer is None or taken is None or routes.other is None:
            return []
        rows, handle, lsn = taken
        tags = QueryTagger(routes.other, self._tagger.grid).expand(rows)
        place = tags.tag_place
        given = routes.other.held_by(self._index, tags.worker, tags.term, place)
        gained = given & ~self._is_owned(tags.cell, tags.term, place)
        held = np.diff(starts(gained.astype(np.int64))[tags.off])
        some = np.flatnonzero(held)
        off = starts(held[some])
        rows, cell, term = rows.take(some), tags.cell[gained], tags.term[gained]
        store.extend(rows, off, cell, term)
        self._count_gained(rows, off)
        store.delete(handle, lsn)
        return transfer.ask() or self._report_transfer_done()

    def tick(self) -> list[Send]:
        """Continues the transfer, or reports now and then that it is complete."""
        self._ticks += 1
        if self._transfer is not None and not self._transfer.done:
            return self._transfer.tick()
        if self._ticks % TRANSFER_TICKS != 0:
            return []
        return self._report_transfer_done() + self._end_report

    def _report_transfer_done(self) -> list[Send]:
        """Reports that the worker holds what it is to serve."""
        if self.routes.other is None or self.routes.switched or self._updates.amid:
            return []
        return [Send(SEQUENCER, TransferDone(self._index, self.routes.begun, *self._gained))]

    def _report_postings(self, lsn: int, store: Index, watermark: int) -> list[Send]:
        """Reports the postings that the worker holds as of the end of a migration, at `lsn`:
        transferred rows may bring later deletes. Nothing is reported where the watermark has
        passed `lsn`, as some of the queries that lived then may be purged."""
        if watermark > lsn:
            return []
        held = np.array([store.postings(lsn)])
        return [Send(SEQUENCER, PostingCounts(ROLES.index("worker"), self._index, lsn, held))]

    def _use_routes(self, routes: CompiledRoutes) -> None:
        """Goes by these routes from now on."""
        self.routes = routes
        young = routes.young, routes.apart
        self._tagger = QueryTagger(routes.serving, self._tagger.grid, routes.other, *young)

    def _count_gained(self, rows: QueryRows, off: I64) -> None:
        queries, size = self._gained
        size += int(measure_gain(rows.measure_rows(), np.diff(off)).sum())
        self._gained = queries + len(rows), size

    def _is_owned(self, cell: U32, term: U64, place: U64) -> Mask:
        serving = self.routes.serving
        return serving.held_by(self._index, serving.holders(cell, term), term, place)

    def _drop_lost(self, store: Index) -> None:
        """Drops what the plan does not give this worker any more."""
        if self.routes.serving.groups.sharded.any():
            store.drop_shards(self._is_owned)
        else:  # whole units
            store.drop(lambda cell, term: self._is_owned(cell, term, np.zeros_like(term)))

    def _own_share(self, shares: list[TagShare]) -> TagShare:
        """Returns the share of this worker: nothing for one that the plan does not know any
        more, or not yet."""
        if self._index < len(shares):
            return shares[self._index]
        none = np.zeros(0, np.int64)
        return TagShare(none, np.zeros(1, np.int64), none.astype(np.uint32), none.astype(np.uint64))
