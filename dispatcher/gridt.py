"""gridt: the dispatcher's index, a grid with H1 and H2 in every cell (section IV-C).

H1 says which worker owns a unit (cell, term). H2 says which units hold a query at all, with a
count so that deletes can take queries back (algorithms.md 7.3). The owner of a replicated or
sharded unit is a group of workers, of which each object goes to one, or to all
(replica_kernels.py).

While two plans coexist (section V-B), the queries of the new plan are counted in the same table
under keys of their own, as if they lived NEWER levels higher. Objects probe these levels too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ps2stream.dispatcher.h2 import H2, CountedUnits
from ps2stream.dispatcher.h2_kernels import ALL
from ps2stream.dispatcher.hot_unit_kernels import count_stored, list_met_units
from ps2stream.dispatcher.kernels import (
    NEWER,
    Routes,
    count_candidates,
    count_postings,
    count_queries,
    route_objects,
)
from ps2stream.dispatcher.shedding_columns import NOTHING_SHED, SheddingColumns
from ps2stream.dispatcher.waits import WorkerWaits
from ps2stream.language.object_terms import NO_VALUES
from ps2stream.protocol.frame import F64, I64, U8, U32, U64, sealed
from ps2stream.protocol.rows import ObjectRows, QueryRows
from ps2stream.routing.h1 import H1
from ps2stream.routing.plan_follower import CompiledRoutes
from ps2stream.routing.tags import QueryTagger, QueryTags, TagShare
from ps2stream.routing.unit_kernels import LEVEL_SHIFT, U16
from ps2stream.space.grid import Grid

_NEWER_BIT = np.uint32(NEWER << LEVEL_SHIFT)
_ALL_TERMS = np.zeros(0, np.uint8)


class GridtError(RuntimeError):
    """The error of removing a query from H2 that it does not hold: an invariant is broken."""


class ObjectShare(NamedTuple):
    """The objects of a batch that one worker must match, in their order, with all their terms;
    chosen, value: see RoutedObjects."""

    worker: int
    row: U32
    lon: F64
    lat: F64
    term_off: I64
    term: U64
    chosen: U8
    value_off: I64 = NO_VALUES.off
    value: U64 = NO_VALUES.word


class Gridt:
    """The index of one dispatcher: H1 and H2."""

    def __init__(self, h1: H1, grid: Grid) -> None:
        self.h1 = h1
        self.workers = h1.workers
        self.grid = grid
        self._tagger = QueryTagger(h1, grid)
        self._newer = h1
        self._h2 = H2()

    def __len__(self) -> int:
        """Returns the number of units (cell, term) with a query."""
        return len(self._h2)

    @property
    def levels(self) -> list[int]:
        """The levels of the grid on which some query lives; objects probe only these."""
        return self._h2.levels

    def clear(self) -> None:
        """Removes all queries. Many come next, until `trim`."""
        self._h2 = H2(fills=True)

    def expect(self, share: float) -> None:
        """Notes that the queries up to the next ones inserted are this share of all that come."""
        self._h2.expect(share)

    def trim(self) -> None:
        """Gives memory back that was taken so that many queries could be inserted fast."""
        self._h2.trim()

    def follow(self, routes: CompiledRoutes) -> None:
        """Takes the owners of units from `routes` from now on."""
        if routes.serving is not self.h1 and self._h2.used[NEWER:ALL].any():
            self._h2 = self._h2.merge_levels(_NEWER_BIT)
        self.h1 = routes.serving
        self._newer = routes.young or routes.serving
        self.workers = routes.workers
        newer = routes.young, routes.apart
        self._tagger = QueryTagger(routes.serving, self.grid, routes.other, *newer)

    @property
    def _routes(self) -> Routes:
        """Both H1, as kernels take them."""
        return self.h1.arrays, self._newer.arrays, (self.h1.workers, self._newer.workers)

    def expand(self, rows: QueryRows) -> QueryTags:
        """Returns the tags of inserts or deletes: cells of the bounding boxes times posting
        terms."""
        return self._tagger.expand(rows)

    def split(self, tags: QueryTags) -> list[TagShare]:
        """Returns the tags of each worker, by worker number; a share may be empty."""
        return self._tagger.split(tags)

    def list_holders(self, tags: QueryTags) -> QueryTags:
        """Returns the tags with all workers that hold them, which are more than their owners where
        units are replicated, and during a migration."""
        return self._tagger.list_holders(tags)

    def insert(self, tags: QueryTags, handle: I64 | None = None) -> None:
        """Counts the tags of inserted queries in H2. Their handles matter while plans coexist."""
        self._h2.add(self._find_places(tags, handle), tags.term)

    def _find_places(self, tags: QueryTags, handle: I64 | None) -> U32:
        """Returns the cells of tags as the table has them."""
        if self._tagger.young is None or handle is None:
            return tags.cell
        is_newer = np.repeat(handle > self._tagger.apart, np.diff(tags.off))
        return tags.cell | is_newer * _NEWER_BIT

    def retire(self, tags: QueryTags, handle: I64 | None = None) -> None:
        """Removes the tags of deleted queries. Raises GridtError if a count would drop below
        zero."""
        failed = self._h2.remove(self._find_places(tags, handle), tags.term)
        if failed is not None:
            raise GridtError(
                f"H2 has no query at cell {tags.cell[failed]}, term {tags.term[failed]}"
            )

    def route(
        self, lon: F64, lat: F64, term_off: I64, term: U64, waits: WorkerWaits | None = None,
        shedding: SheddingColumns = NOTHING_SHED,
    ) -> tuple[list[ObjectShare], int]:  # fmt: skip
        """Returns (a share for each worker that has a query under one of an object's units, the
        number of objects that go to no worker). Of the workers of a replicated unit one is chosen,
        by `waits`, or in turns; of a sharded one, all. Load is shed as `shedding` says, whose
        columns say then what was.

        lon and lat are degrees, float64[n]; terms are ragged, uint64.
        """
        objects = sealed(lon), sealed(lat), sealed(term_off), sealed(term)
        waiting = np.zeros(self.workers), 1.0
        if waits is not None and len(self.h1.groups):
            waiting = waits.waits, waits.time
        discarded, *starts, row, out_lon, out_lat, off, out_term, chosen = route_objects(
            self._h2.arrays, self._h2.used, self.grid.lines, objects, self._routes,
            (*self.h1.groups,), waiting, (*shedding,),
        )  # fmt: skip
        if self.workers == 1:  # it has all that is not discarded
            all_ = ObjectShare(0, row, out_lon, out_lat, off, out_term, chosen)
            return ([all_] if len(row) else []), discarded
        shares: list[ObjectShare] = []
        row_at, term_at, byte_at = (column.tolist() for column in starts)
        for w in range(self.workers):
            a, b = row_at[w : w + 2]
            if a < b:
                i, terms = len(shares), slice(term_at[w], term_at[w + 1])
                columns = row[a:b], out_lon[a:b], out_lat[a:b], off[a + i : b + i + 1]
                bits_of = chosen[byte_at[w] : byte_at[w + 1]]
                shares.append(ObjectShare(w, *columns, out_term[terms], bits_of))
        return shares, discarded

    def list_met_units(
        self, lon: F64, lat: F64, term_off: I64, term: U64, first: int, stride: int
    ) -> U64:
        """Returns the keys of the units that every `stride`-th object from `first` on meets (see
        hot_unit_kernels.py); columns as in `route`."""
        objects = sealed(lon), sealed(lat), sealed(term_off), sealed(term)
        parts, *_ = self._h2.arrays
        keys: U64 = list_met_units(
            parts, self._h2.used, self.grid.lines, self._routes, objects, (first, stride)
        )
        return keys

    def count_stored(self, cell: U32, word: U64) -> tuple[I64, I64, int]:
        """Counts the live queries under each of some cells of the base level, under each of some
        words in all cells, of which TERM_BITS are given, and under all units. Both are ascending,
        each once. Looks at all of H2."""
        by_cell, by_word = np.zeros(len(cell), np.int64), np.zeros(len(word), np.int64)
        columns = sealed(cell), sealed(word)
        stored = 0
        for units in self._h2:
            stored += int(count_stored((*units,), *columns, by_cell, by_word))
        return by_cell, by_word, stored

    def candidates(self, lon: F64, lat: F64, term_off: I64, term: U64) -> I64:
        """Counts for each worker the pairs of an object and a posting that it would check if
        these objects were routed now, int64[workers]; columns as in `route`."""
        met = np.zeros(self.workers, np.int64)
        count_candidates(
            self._h2.arrays, self._find_cells(lon, lat), (term_off, term), self._routes,
            (*self.h1.groups,), met,
        )  # fmt: skip
        return met

    def queries(self, cell: U32, term: U64) -> I64:
        """Returns the number of live queries under each (tag cell, term), int64[n]."""
        out = np.empty(len(cell), np.int64)
        count_queries(self._h2.arrays, cell, term, out)
        return out

    @property
    def bytes(self) -> int:
        """The memory of H1 and H2, slack included."""
        return self.h1.bytes + self._h2.nbytes

    @property
    def h2_bytes(self) -> int:
        """The memory of H2, slack included."""
        return self._h2.nbytes

    def held(self) -> tuple[U32, U16, U32]:
        """Returns the units with a query as columns: tag cell, worker, live queries. Of a
        replicated unit the first worker is named."""
        parts = [
            (units.cell, self.h1.choose_first(self._list_owners(units)), units.queries)
            for units in self._h2
        ]
        cell, owner, count = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return cell, owner, count

    def _list_owners(self, units: CountedUnits) -> U16:
        """Returns what owns units, workers or groups, uint16[n]."""
        is_newer = (units.cell & _NEWER_BIT) != 0
        owner = self.h1.holders(units.cell & ~_NEWER_BIT, units.term)
        if is_newer.any():
            newer = units.cell[is_newer] & ~_NEWER_BIT
            owner[is_newer] = self._newer.holders(newer, units.term[is_newer])
        return owner

    def postings(self, deleted: Iterable[QueryTags]) -> I64:
        """Counts the postings of live queries that each worker should hold, and at last those of
        sharded units, of which H2 does not know who has which, int64[workers + 1]. `deleted`: the
        tags of deleted queries that H2 still counts."""
        out = np.zeros(self.workers + 1, np.int64)
        for units in self._h2:
            count_postings(self._list_owners(units), units.queries, (*self.h1.groups,), out)
        for tags in deleted:
            *alone, sharded = self.h1.count_postings(tags.cell, tags.term)
            out[: self.h1.workers] -= alone
            out[-1] -= sharded
        return out

    def counts(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Returns {(tag cell, term): (worker or group, live queries)}, for tests and inspection."""
        found: dict[tuple[int, int], tuple[int, int]] = {}
        for units in self._h2:
            keys = zip(units.cell.tolist(), units.term.tolist(), strict=True)
            owner = self._list_owners(units).tolist()
            found |= zip(keys, zip(owner, units.queries.tolist(), strict=True), strict=True)
        return found

    def _find_cells(self, lon: F64, lat: F64) -> U32:
        """Returns uint32[levels in use, n]: the tag cell of each point on each of them."""
        levels = self.levels
        cells = np.empty((len(levels), len(lon)), np.uint32)
        for i, level in enumerate(levels):
            cells[i] = self.grid.cells(lon, lat, level % NEWER)
            if level >= NEWER:
                cells[i] |= _NEWER_BIT
        return cells


def share_all(rows: ObjectRows) -> ObjectShare:
    """Returns a batch as the share of the first worker, to which all of it goes, without a look at
    H2."""
    row = np.arange(len(rows), dtype=np.uint32)
    return ObjectShare(0, row, rows.lon, rows.lat, rows.term_off, rows.term, _ALL_TERMS)
