"""The watched literals of live queries, by which the objects of a dispatcher are searched.

A literal is watched from when an insert that has it is applied until the last query with it is
removed from H2. So an object has been searched for the literals of every query that it may be
matched with, also when it is replayed.

An object that was analysed before an insert and is routed after it is searched again only if it
is in a box of that query, as nowhere else can they match, and only for what that insert added. The
last inserts are kept for that.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from ps2stream.language.analyzer import Analyzer
from ps2stream.language.literal_kernels import count_down, count_up
from ps2stream.language.literals import (
    NO_LITERALS,
    LiteralView,
    WatchedLiterals,
)
from ps2stream.language.object_terms import (
    NO_VALUES,
    ComparedValues,
    list_compared,
    search_near,
    search_rows,
)
from ps2stream.protocol.frame import I64, U8, U16, U64, sealed
from ps2stream.protocol.rows import ObjectRows

_LEAST = 64  # places of a table
_RECENT = 512  # literals or boxes of inserts; objects that are older are searched wherever they are


def _size_of(literals: WatchedLiterals) -> int:
    return max(len(literals.term), len(literals.box))


class LiteralTable:
    """The watched literals of a dispatcher, counted. Any thread may read `view`, and use it later:
    terms are only ever added to its table."""

    def __init__(self) -> None:
        self.view: LiteralView = NO_LITERALS
        # By the place of a term in view.term: its queries, its kind and its size.
        self._count: I64 = np.zeros(0, np.int64)
        self._kind: U8 = np.zeros(0, np.uint8)
        self._size: U16 = np.zeros(0, np.uint16)
        self._held = 0  # terms in the table, those that no query has among them
        self._used = 0
        # The literals of each insert after the version `_since`, by the version that it made.
        self._recent: deque[tuple[int, WatchedLiterals]] = deque()
        self._since, self._kept = 0, 0

    def __len__(self) -> int:
        """Returns the number of literals that some query has."""
        return self._used

    @property
    def nbytes(self) -> int:
        """The bytes of the table."""
        view = self.view
        columns = view.term, view.area, view.seen, self._count, self._kind, self._size
        return sum(column.nbytes for column in columns)

    def clear(self) -> None:
        """Removes all literals. Objects that were searched before count as not searched once
        others are added."""
        version = self.view.version
        self.view, self._held, self._used = NO_LITERALS._replace(version=version), 0, 0
        self._count, self._kind, self._size = self._count[:0], self._kind[:0], self._size[:0]
        self._recent.clear()
        self._since, self._kept = version + 1, 0

    def add(self, literals: WatchedLiterals) -> None:
        """Counts the literals of queries that were inserted."""
        if not len(literals.term):
            return
        if 2 * (self._held + len(literals.term)) > len(self.view.term):
            self._make_room(len(literals.term))
        self._held += self._count_up(self.view, literals, np.ones(len(literals.term), np.int64))
        self.view = self.view._replace(version=self.view.version + 1)
        self._recent.append((self.view.version, literals))
        self._kept += _size_of(literals)
        while self._kept > _RECENT:
            self._since, oldest = self._recent.popleft()
            self._kept -= _size_of(oldest)

    def retire(self, literals: WatchedLiterals) -> None:
        """Takes the literals of deleted queries back. What no query has any more stays in the
        table until it is made anew, since it does no harm to find it in a text."""
        if len(literals.term):
            self._used -= count_down(self.view.term, self._count, sealed(literals.term))

    def describe(self, term: U64) -> tuple[U8, U16]:
        """Returns the kinds (LiteralKind) and sizes of terms, uint8[n] and uint16[n]; 0 for those
        that are no watched literals."""
        table = self.view.term
        if not len(table):
            return np.zeros(len(term), np.uint8), np.zeros(len(term), np.uint16)
        mask = np.uint64(len(table) - 1)  # as literal_kernels.find_literal, for few terms at a time
        at = term & mask
        left = np.arange(len(term))
        while len(left):
            here = table[at[left]]
            left = left[(here != term[left]) & (here != 0)]
            at[left] = (at[left] + np.uint64(1)) & mask
        held = table[at] == term
        return np.where(held, self._kind[at], 0), np.where(held, self._size[at], 0)

    def search(self, rows: ObjectRows, analyzer: Analyzer | None) -> ObjectRows:
        """Returns objects with all watched literals that hold for them; the same objects if they
        were searched since literals were last added."""
        view = self.view
        if rows.searched >= view.version:
            return rows
        if analyzer is None:
            raise TypeError("this dispatcher has no analyzer, and so does not support literals")
        if rows.searched < self._since or not len(rows.term_off):
            return search_rows(rows, analyzer, view)
        later = [literals for version, literals in self._recent if version > rows.searched]
        return search_near(rows, WatchedLiterals.join(later), analyzer, view.version)

    def list_compared(self, rows: ObjectRows, analyzer: Analyzer | None) -> ComparedValues:
        """Returns the values of objects that queries compare."""
        if analyzer is None:
            return NO_VALUES
        return list_compared((rows.opaque_off, rows.opaque), analyzer, self.view)

    def _make_room(self, more: int) -> None:
        """Makes the table anew, without what no query has, for so many terms more."""
        held = np.flatnonzero(self._count)
        literals = WatchedLiterals(
            self.view.term[held], self._kind[held], self._size[held], self.view.area[held]
        )
        count, self._held, self._used = self._count[held], len(held), 0
        # A fifth is free for more, so that this is seldom done; and it is small, for each text is
        # compared with all of it.
        room = max(_LEAST, 2 << int((len(held) + more) * 5 // 4).bit_length())
        self._count = np.zeros(room, np.int64)
        self._kind, self._size = np.zeros(room, np.uint8), np.zeros(room, np.uint16)
        view = LiteralView.make_empty(room, self.view.version)
        self._count_up(view, literals, count)
        self.view = view  # only now: others may read it meanwhile, and its version says it is whole

    def _count_up(self, view: LiteralView, literals: WatchedLiterals, count: I64) -> int:
        """Adds to the counts of literals; returns how many the view's table did not hold."""
        term, kind, size, area = (sealed(column) for column in literals[:4])
        fresh, begun = count_up(
            (view.term, view.area, view.seen),
            (self._count, self._kind, self._size),
            (term, kind, size, area),
            sealed(count),
            (view.words, view.heads, view.kinds, view.pairs),
        )
        self._used += begun
        return int(fresh)
