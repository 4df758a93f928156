"""The counts of objects per unit, and the few objects per cell that stand for all.

The same code runs under NumPy and on Spark's executors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ps2stream.language.analyzer import Analyzer
from ps2stream.language.expression import watch_literals
from ps2stream.language.object_terms import find_terms
from ps2stream.planner.counting import find, ragged
from ps2stream.planner.objects import opaque_of
from ps2stream.planner.statistics import I32, SIGNATURES
from ps2stream.protocol.frame import F64, I64, U64, concat_ragged, row_of, take_ragged
from ps2stream.routing.plan import hash_units
from ps2stream.space.grid import Grid

_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_ODD = np.uint64(0x9E3779B97F4A7C15)
_ROWS = 1 << 15  # of signatures


class UnitNumbers:
    """Finds the number of the unit of a cell and a term. cell int[u]; term int32[u], a number in
    `terms`, which are distinct. `literals` are the phrases, prefixes and predicates among them."""

    def __init__(
        self, cell: I64 | I32, term: I32, terms: Sequence[str], analyzer: Analyzer
    ) -> None:
        self._hashes = hash_units(analyzer, terms)
        key = _make_keys(cell, self._hashes[term])
        self.literals = watch_literals(analyzer, terms).view()
        self._order = np.argsort(key).astype(np.int32)
        self._key, self._cell, self._term = (x[self._order] for x in (key, cell, term))

    def __len__(self) -> int:
        return len(self._key)

    def find(self, cell: I64, term: U64) -> I64:
        """Returns the numbers of the units, -1 for none; int64[n]."""
        if not len(self):
            return np.full(len(cell), -1)
        at, held = find(self._key, _make_keys(cell, term))
        held &= (self._cell[at] == cell) & (self._hashes[self._term[at]] == term)
        return np.where(held, self._order[at], -1).astype(np.int64)


class Vocabulary(NamedTuple):
    """The terms that any query is posted under: words, their hashes, uint64[w] ascending; literals,
    the phrases, prefixes and predicates among them."""

    words: U64
    literals: Any

    @classmethod
    def of(cls, terms: Sequence[str], analyzer: Analyzer) -> Vocabulary:
        """Returns that of distinct terms."""
        words = np.unique(hash_units(analyzer, terms))
        return cls(words, watch_literals(analyzer, terms).view())


def _make_keys(cell: I64 | I32, term: U64) -> U64:
    return term ^ (cell.astype(np.uint64) * _ODD)


@dataclasses.dataclass(frozen=True, eq=False)
class ObjectSignatures:
    """Objects as sets of units. cell, hash int64[n], hash >= 0; unit ragged int64: the number of
    a unit, or -1 - w for word w of a vocabulary that is no known unit's in the cell."""

    cell: I64
    hash: I64
    unit_off: I64
    unit: I64 | I32

    def smallest(self, limit: int | None = None) -> ObjectSignatures:
        """Returns the objects with the smallest hashes, by cell and hash: `limit` per cell, by
        default SIGNATURES."""
        limit = SIGNATURES if limit is None else limit
        order = np.lexsort((self.hash, self.cell))
        cell = self.cell[order]
        rank = np.arange(len(cell)) - np.searchsorted(cell, cell)
        rows = order[rank < limit]
        # Some at a time: on the way, each unit takes many times its bytes.
        parts = [
            take_ragged(self.unit_off, self.unit, rows[first : first + _ROWS])
            for first in range(0, max(len(rows), 1), _ROWS)
        ]
        return ObjectSignatures(self.cell[rows], self.hash[rows], *concat_ragged(parts))


class UnitHits:
    """Adds up batches of objects (objects.OBJECTS): how many are in each cell of `grid`, how many
    have the term of each unit in its cell, and the signatures of those that have any. vocabulary:
    of more units than those that are known; the signatures then have its other words too."""

    KEEP = 1 << 17  # signatures, before they are cut to the smallest

    def __init__(
        self,
        units: UnitNumbers,
        analyzer: Analyzer,
        grid: Grid,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        self._known, self._analyzer, self._grid = units, analyzer, grid
        self._vocabulary = vocabulary
        self._literals = units.literals if vocabulary is None else vocabulary.literals
        self.cells: I64 = np.zeros(grid.rows() * grid.columns(), np.int64)
        self.units: I64 = np.zeros(len(units), np.int64)
        self._parts: list[ObjectSignatures] = []
        self._held = 0

    def add(self, objects: Any) -> None:
        """Counts a batch."""
        lon, lat = (objects.column(name).to_numpy() + 0.0 for name in ("lon", "lat"))
        cell = self._grid.cells(lon, lat, 0).astype(np.int64)
        some, count = np.unique(cell, return_counts=True)
        self.cells[some] += count
        texts, opaque = ragged(objects.column("text")), opaque_of(objects)
        off, term = find_terms(self._analyzer, texts, opaque, self._literals)
        row = row_of(off)
        unit = self._known.find(cell[row], term)
        hit = unit >= 0
        self.units += np.bincount(unit[hit], minlength=len(self.units))
        if self._vocabulary is not None:
            word, listed = find(self._vocabulary.words, term)
            unit, hit = np.where(hit, unit, -1 - word), hit | listed
        size = np.bincount(row[hit], minlength=len(lon))
        rows = np.flatnonzero(size)
        unit_off = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(size[rows], out=unit_off[1:])
        time = objects.column("time").fill_null(0).to_numpy()
        hashed = _hash_rows(lon, lat, time, off, term)
        self._parts.append(ObjectSignatures(cell[rows], hashed[rows], unit_off, unit[hit]))
        self._held += len(rows)
        if self._held > self.KEEP:
            self._parts = [self.signatures()]
            # What is left cannot be cut further soon, so counting starts again.
            self._held = 0

    def signatures(self) -> ObjectSignatures:
        """Returns the smallest signatures so far."""
        cell, hash, unit = (
            np.concatenate([np.zeros(0, kind), *(getattr(p, name) for p in self._parts)])
            for name, kind in (("cell", np.int64), ("hash", np.int64), ("unit", np.int64))
        )
        off = np.zeros(len(cell) + 1, np.int64)
        sizes = [np.zeros(0, np.int64), *(np.diff(p.unit_off) for p in self._parts)]
        np.cumsum(np.concatenate(sizes), out=off[1:])
        return ObjectSignatures(cell, hash, off, unit).smallest()


def _hash_rows(lon: F64, lat: F64, time: I64, off: I64, term: U64) -> I64:
    """Hashes what an object is (place, time, terms), not its position in a file."""
    out: U64 = np.add.reduceat(_mix_bits(term), off[:-1]) if len(lon) else np.zeros(0, np.uint64)
    for column in (lon, lat, time.astype(np.int64)):
        out = _mix_bits(out + _ODD ^ np.ascontiguousarray(column).view(np.uint64))
    return (out >> np.uint64(1)).astype(np.int64)


def _mix_bits(x: U64) -> U64:
    """Applies the finaliser of splitmix64."""
    x = (x ^ (x >> np.uint64(30))) * _MIX[0]
    x = (x ^ (x >> np.uint64(27))) * _MIX[1]
    return x ^ (x >> np.uint64(31))
