"""What the plan gives one worker to hold, and what a following plan will (contract.md 3)."""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.addresses import ROLES, Address, Send, nothing
from ps2stream.protocol.follower import Follower
from ps2stream.protocol.frame import I64, U8, U32, U64, take_ragged
from ps2stream.protocol.messages.objects import RoutedObjects
from ps2stream.protocol.messages.plan import Hot, Loaded, Postings
from ps2stream.protocol.messages.updates import Applied, WorkerUpdates
from ps2stream.protocol.rows import QueryRows
from ps2stream.routing.plan_changes import Routes, Step, Strategist, step_of
from ps2stream.routing.tags import Tagger, TagShare, starts
from ps2stream.workers.index import Index, Mask
from ps2stream.workers.loading import Loading

SEQUENCER = Address("sequencer", 0)
HOT_TICKS = 10  # after which it is said again

Tags = tuple[I64, U32, U64]
"""Offsets by row, cells and terms."""


class Portion:
    """Of worker `index`. `tagger` and `route` are the plan and its version; `strategist` follows
    changes of the plan: what a following plan gives this worker is loaded while it goes on, what
    a former one gave it is dropped. `stream`: what its index is made from."""

    def __init__(
        self,
        index: int,
        tagger: Tagger,
        route: int,
        strategist: Strategist | None,
        stream: Follower[WorkerUpdates],
    ) -> None:
        self.routes = Routes(tagger.h1, route, known=frozenset((route,)))
        self._index = index
        self._tagger = tagger
        self._strategist = strategist
        self._stream = stream
        self._loading: Loading | None = None
        self._gained = (0, 0)  # queries and bytes of columns that the following plan gave it
        self._ended: list[Send] = []  # what it held at the end of the last move
        self._ticks = 0

    @property
    def moving(self) -> bool:
        """Whether it holds by more than one plan."""
        return self.routes.other is not None or self.routes.young is not None

    def record(self) -> U8:
        """Of the strategy that it follows."""
        return nothing() if self._strategist is None else self._strategist.strategy.record()

    def resume(self, record: U8, lsn: int) -> None:
        """Go on with the strategy of before."""
        if self._strategist is not None and len(record):
            self._turn(self._strategist.take(record, lsn))

    def reset(self) -> None:
        """A state follows, which says what was changed, and has all that was to be loaded."""
        self._loading = None
        if self._strategist is not None:
            self._turn(self._strategist.reset())

    def serves(self, objects: RoutedObjects) -> bool:
        """Whether it holds, or will as of the objects' LSN, what this plan gives it."""
        routes = self.routes
        loaded = routes.other is not None and (self._loading is None or self._loading.done)
        known = routes.serves(objects.route, objects.lsn)
        return known or (loaded and objects.route == routes.coming)

    def share(self, updates: WorkerUpdates | Applied) -> tuple[QueryRows, Tags]:
        """The rows that this worker holds, and their tags."""
        rows = QueryRows.decode(updates.rows.data)
        if isinstance(updates, WorkerUpdates):
            return rows, (updates.tag_off, updates.tag_cell, updates.tag_term)
        share = self._mine_of(self._tagger.split(self._tagger.expand(rows)))
        rows = rows.take(share.row)
        if updates.state and self.routes.other is not None and len(rows):
            gained = np.logical_or.reduceat(~self._is_mine(share.cell, share.term), share.off[:-1])
            new = np.flatnonzero(gained & (rows.handle <= self.routes.upto))
            off, cell = take_ragged(share.off, share.cell, new)
            term = take_ragged(share.off, share.term, new)[1]
            self._count(rows.take(new), off, cell, term)
        return rows, (share.off, share.cell, share.term)

    def deleted(self, handle: I64, lsn: I64) -> None:
        """These queries were, while some are being loaded."""
        if self._loading is not None:
            self._loading.note(handle, lsn)

    def follow(self, updates: WorkerUpdates | Applied, store: Index, watermark: int) -> list[Send]:
        """A change of the strategy. Where `store` holds what is another plan's, all is fetched
        anew."""
        if self._strategist is None:
            raise TypeError("this worker follows no change of strategy")
        before, loading = self.routes, self._loading
        routes = self._strategist.take(updates.strategy, updates.lsn_to)
        self._gained, self._ended = (0, 0), []
        self._turn(routes)
        state = isinstance(updates, Applied) and updates.state > 0
        another = routes.route != before.route
        if another and step_of(updates.strategy) is Step.SET and not state:
            # The service was started anew under a plan; what a snapshot holds is another's.
            self._loading = None
            return self._stream.forget()
        out: list[Send] = []
        if loading is not None and not loading.done and routes.serving is not before.serving:
            # An earlier incarnation was hot, whose snapshot is from before the move.
            out = self._stream.forget()
        if routes.other is None:
            self._loading = None
            if before.other is not None and routes.young is None:
                store.drop(self._is_mine)
                self._ended = self._held_at(updates.lsn_to, store, watermark)
            return out + self._ended
        if routes.switched or state:
            return out
        box = self._strategist.gained(self._index)
        self._loading = Loading(self._index, routes.upto, box)
        return out + (self._loading.ask() or self._hot())

    def load(self, frame: Loaded, store: Index) -> list[Send]:
        """Hold what the following plan gives here and the present one does not, if this piece
        was asked for."""
        routes, loading = self.routes, self._loading
        taken = None if loading is None else loading.take(frame)
        if loading is None or taken is None or routes.other is None:
            return []
        rows, handle, lsn = taken
        tags = Tagger(routes.other, self._tagger.grid).expand(rows)
        gained = (tags.worker == self._index) & ~self._is_mine(tags.cell, tags.term)
        held = np.diff(starts(gained.astype(np.int64))[tags.off])
        some = np.flatnonzero(held)
        off = starts(held[some])
        rows, cell, term = rows.take(some), tags.cell[gained], tags.term[gained]
        store.extend(rows, off, cell, term)
        self._count(rows, off, cell, term)
        store.delete(handle, lsn)
        return loading.ask() or self._hot()

    def tick(self) -> list[Send]:
        """Go on loading, or say now and then that it is done."""
        self._ticks += 1
        if self._loading is not None and not self._loading.done:
            return self._loading.tick()
        return self._hot() + self._ended if self._ticks % HOT_TICKS == 0 else []

    def _hot(self) -> list[Send]:
        """It holds what it is to serve."""
        if self.routes.other is None or self.routes.switched or self._stream.amid:
            return []
        return [Send(SEQUENCER, Hot(self._index, self.routes.begun, *self._gained))]

    def _held_at(self, lsn: int, store: Index, watermark: int) -> list[Send]:
        """What it holds as of the end of a move; what was loaded may have told of later deletes.
        Nothing, where the watermark has passed it: of what lived then some may be purged."""
        if watermark > lsn:
            return []
        held = np.array([store.postings(lsn)])
        return [Send(SEQUENCER, Postings(ROLES.index("worker"), self._index, lsn, held))]

    def _turn(self, routes: Routes) -> None:
        """Go by these from now on."""
        self.routes = routes
        young = routes.young, routes.apart
        self._tagger = Tagger(routes.serving, self._tagger.grid, routes.other, *young)

    def _count(self, rows: QueryRows, off: I64, cell: U32, term: U64) -> None:
        queries, size = self._gained
        size += rows.nbytes + off.nbytes + cell.nbytes + term.nbytes
        self._gained = queries + len(rows), size

    def _is_mine(self, cell: U32, term: U64) -> Mask:
        mine: Mask = self.routes.serving.owners(cell, term) == self._index
        return mine

    def _mine_of(self, shares: list[TagShare]) -> TagShare:
        """Of a worker that the plan does not know any more, or not yet: nothing."""
        if self._index < len(shares):
            return shares[self._index]
        none = np.zeros(0, np.int64)
        return TagShare(none, np.zeros(1, np.int64), none.astype(np.uint32), none.astype(np.uint64))
