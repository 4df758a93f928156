"""Watched literals: phrases and prefixes, which are terms of an object only if a live query has
them.

A literal of an expression is a term like any other: a phrase is the hash of the hashes of its
words, a prefix the hash of its bytes, marked. An object has those that hold for its text and that
some live query uses, so nothing is added where no query uses any (docs/decisions/0019).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np

from ps2stream.language.literal_kernels import hold_terms, list_watched
from ps2stream.limits import PHRASE_WORDS, TOKEN_BYTES
from ps2stream.protocol.frame import U8, U64, sealed
from ps2stream.protocol.rows import QueryRows


class LiteralKind(IntEnum):
    """The kind of a watched literal, and what its size counts."""

    PHRASE = 1  # words
    PREFIX = 2  # bytes of UTF-8


class LiteralView(NamedTuple):
    """The watched literals that texts are searched for, as kernels take them, C-contiguous.

    term uint64[2^k]: a table with open addressing, 0 = free; empty if nothing is searched for.
    words uint8[PHRASE_WORDS + 1] and bytes uint8[TOKEN_BYTES + 1]: 1 for each size that a phrase
    or a prefix has, and in the first place the largest of them. version: how often a literal was
    added; a later view holds all that an earlier one did, or none of it is in use any more.
    """

    term: U64
    words: U8
    bytes: U8
    version: int = 0


NO_LITERALS: Final = LiteralView(
    np.zeros(0, np.uint64),
    np.zeros(PHRASE_WORDS + 1, np.uint8),
    np.zeros(TOKEN_BYTES + 1, np.uint8),
)


def mark_sizes(of_size: U8, size: U8) -> None:
    """Marks sizes in a column of a LiteralView."""
    if len(size):
        of_size[size] = 1
        of_size[0] = max(of_size[0], size.max())


class WatchedLiterals(NamedTuple):
    """The watched literals of some queries: term uint64[n], kind and size uint8[n]."""

    term: U64
    kind: U8
    size: U8

    @classmethod
    def of(cls, rows: QueryRows) -> WatchedLiterals:
        """Returns those of these queries, one behind the other."""
        if not len(rows.prog):
            return _NONE
        programs = sealed(rows.prog_off), sealed(rows.prog)
        return cls(*list_watched(sealed(rows.term_off), sealed(rows.term), *programs))

    def view(self) -> LiteralView:
        """Returns a view of these literals alone."""
        if not len(self.term):
            return NO_LITERALS
        table = np.zeros(4 << len(self.term).bit_length(), np.uint64)
        words, sizes = np.zeros_like(NO_LITERALS.words), np.zeros_like(NO_LITERALS.bytes)
        hold_terms(table, self.term)
        mark_sizes(words, self.size[self.kind == LiteralKind.PHRASE])
        mark_sizes(sizes, self.size[self.kind == LiteralKind.PREFIX])
        return LiteralView(table, words, sizes)


_NONE: Final = WatchedLiterals(np.zeros(0, np.uint64), np.zeros(0, np.uint8), np.zeros(0, np.uint8))
