"""Watched literals: phrases, prefixes, predicates and pairs of these, which are terms of an object
only if a live query has them.

A literal of an expression is a term like any other: a phrase is the hash of the hashes of its
words, a prefix the hash of its bytes, marked. An object has those that hold for it and that some
live query uses, so nothing is added where no query uses any (docs/decisions/0019).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np

from ps2stream.language.area_kernels import AREA_WORDS
from ps2stream.language.literal_kernels import (
    HEADS,
    OF_PAIR,
    OF_PHRASE,
    OF_PREFIX,
    PAIR_MARKS,
    hash_start,
    hold_literals,
    list_watched,
    mark_literals,
)
from ps2stream.limits import PHRASE_WORDS
from ps2stream.protocol.frame import F64, I64, U8, U16, U64, sealed
from ps2stream.protocol.rows import QueryRows


class LiteralKind(IntEnum):
    """The kind of a watched literal, and what its size is."""

    PHRASE = OF_PHRASE  # words
    PREFIX = OF_PREFIX  # bytes of UTF-8 | hash of the first two of them << 8
    PRESENT = 3  # an attribute; 0
    COMPARED = 4  # an attribute whose value is compared where the query is; 0
    EQUAL = 5  # an attribute and its value; 0
    PAIR = OF_PAIR  # two attributes and their values; the marks of their names


def size_prefix(prefix: str) -> int:
    """Returns the size of a prefix, which has two letters or more, as LiteralKind says."""
    text = prefix.encode()
    return len(text) | int(hash_start(text[0], text[1])) << 8


class LiteralView(NamedTuple):
    """The watched literals that objects are searched for, as kernels take them, C-contiguous.

    term uint64[2^k]: a table with open addressing, 0 = free; empty if nothing is searched for.
    words uint8[PHRASE_WORDS + 1]: 1 for each size that a phrase has, and in the first place the
    largest of them. heads uint8[HEADS + 1]: for each hash of the two bytes that a prefix begins
    with its sizes, as bits from two bytes on, the last of them for all from LONG_SIZE on; in the
    last place the largest size. kinds uint8[len(LiteralKind) + 1]:
    1 for each kind that a literal may have. pairs uint8[PAIR_MARKS]: 1 for each mark of a name that
    is in a pair, then a bit for each two of them. area uint64[2^k, 4]: in which areas of the world
    some query has the term in the same place (`find_areas`): phrases and prefixes are found for
    objects in these only, as no others can match. seen uint64[2^k / 4 + 1]: bits that say of
    phrases and prefixes in areas that they are not watched there, without a look at the table.
    version: how often literals of queries were added; a later view holds all that an earlier one
    did, or none of it is in use any more.
    """

    term: U64
    words: U8
    heads: U8
    kinds: U8
    pairs: U8
    area: U64
    seen: U64
    version: int = 0

    @classmethod
    def make_empty(cls, places: int, version: int = 0) -> LiteralView:
        """Returns a view of no literals, with a table of so many places."""
        sizes = np.zeros(PHRASE_WORDS + 1, np.uint8), np.zeros(HEADS + 1, np.uint8)
        kinds, pairs = np.zeros(_KINDS, np.uint8), np.zeros(PAIR_MARKS, np.uint8)
        term, area = np.zeros(places, np.uint64), np.zeros((places, AREA_WORDS), np.uint64)
        return cls(
            term, *sizes, kinds, pairs, area, np.zeros(max(places // 4, 1) + 1, np.uint64), version
        )

    def mark(self, kind: U8, size: U16) -> None:
        """Marks the kinds and sizes of literals."""
        mark_literals(sealed(kind), sealed(size), (self.words, self.heads, self.kinds, self.pairs))

    @property
    def of_texts(self) -> tuple[U64, U8, U8, U64, U64]:
        """What texts are searched by; an empty table if there are no phrases and prefixes."""
        term = self.term if self.words[0] or self.heads[HEADS] else _NO_TERMS
        return term, self.words, self.heads, self.area, self.seen

    @property
    def of_attributes(self) -> U64:
        """The table that attributes are searched by; empty if there are no predicates."""
        return self.term if any(self.kinds.tolist()[LiteralKind.PRESENT :]) else _NO_TERMS

    @property
    def attribute_kinds(self) -> tuple[bool, bool, bool]:
        """Whether there are literals of each of the kinds PRESENT, COMPARED and EQUAL."""
        present, compared, equal = self.kinds[LiteralKind.PRESENT : LiteralKind.PAIR].tolist()
        return bool(present), bool(compared), bool(equal)

    @property
    def of_pairs(self) -> U8:
        """What pairs are searched by; empty if there are none."""
        return self.pairs if self.kinds[LiteralKind.PAIR] else self.pairs[:0]


_NO_TERMS: Final = np.zeros(0, np.uint64)
_KINDS: Final = len(LiteralKind) + 1
NO_LITERALS: Final = LiteralView.make_empty(0)


_WORLD: Final = np.array([[-180.0, -90.0, 180.0, 90.0]])


class WatchedLiterals(NamedTuple):
    """The watched literals of some queries: term uint64[n], kind uint8[n], size uint16[n], area
    uint64[n, 4]: a bit for each area (`find_areas`) in which an object may match the query; box
    float64[m, 4]: what objects may match one of the queries are in one of these, in degrees,
    closed."""

    term: U64
    kind: U8
    size: U16
    area: U64
    box: F64 = _WORLD

    @classmethod
    def of(cls, rows: QueryRows) -> WatchedLiterals:
        """Returns those of these queries, one behind the other."""
        if not len(rows.prog):
            return _NONE
        terms, programs = (rows.term_off, rows.term), (rows.prog_off, rows.prog)
        boxes = rows.box_off, rows.box
        return cls(*list_watched(*(sealed(each) for each in (*terms, *programs, *boxes))))

    @classmethod
    def join(cls, parts: list[WatchedLiterals]) -> WatchedLiterals:
        """Returns the literals of several, at least one."""
        if len(parts) == 1:
            return parts[0]
        return cls(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    @classmethod
    def everywhere_of(cls, term: U64, kind: U8, size: U16) -> WatchedLiterals:
        """Returns literals as if objects anywhere could match the queries that have them."""
        return cls(term, kind, size, np.full((len(term), AREA_WORDS), ~np.uint64(0)))

    def everywhere(self) -> WatchedLiterals:
        """Returns these literals as if objects anywhere could match the queries."""
        return WatchedLiterals.everywhere_of(*self[:3])

    def take(self, rows: I64) -> WatchedLiterals:
        """Returns the literals of these rows, with all boxes."""
        return self._replace(
            term=self.term[rows], kind=self.kind[rows], size=self.size[rows], area=self.area[rows]
        )

    def view(self) -> LiteralView:
        """Returns a view of these literals alone."""
        if not len(self.term):
            return NO_LITERALS
        distinct = len(np.unique(self.term))
        view = LiteralView.make_empty(4 << distinct.bit_length())
        hold_literals(view.term, view.area, view.seen, self.term, self.kind, self.area)
        view.mark(self.kind, self.size)
        return view


_NONE: Final = WatchedLiterals(
    np.zeros(0, np.uint64),
    np.zeros(0, np.uint8),
    np.zeros(0, np.uint16),
    np.zeros((0, AREA_WORDS), np.uint64),
    np.zeros((0, 4)),
)
