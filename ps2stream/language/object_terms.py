"""The terms of objects: those of their texts, and the watched literals that hold for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ps2stream.language.analyzer import Analyzer
from ps2stream.language.area_kernels import find_areas, find_inside
from ps2stream.language.attribute_kernels import list_values, search_attributes
from ps2stream.language.batch_tokenizer import is_always_wanted
from ps2stream.language.literals import NO_LITERALS, LiteralKind, LiteralView, WatchedLiterals
from ps2stream.language.search_again_kernels import search_again
from ps2stream.language.search_kernels import add_found, add_to_rows
from ps2stream.language.simple_characters import simple_characters
from ps2stream.protocol.frame import (
    F64,
    I64,
    U8,
    U64,
    Array,
    sealed,
    take_ragged,
)
from ps2stream.protocol.opaque import take_opaque
from ps2stream.protocol.rows import ObjectRows, no_offsets


class ComparedValues(NamedTuple):
    """The values of objects that queries compare, a ragged column of words, see
    `attribute_kernels.list_values`; `off` is empty where no query compares any."""

    off: I64
    word: U64

    def take(self, rows: Array) -> tuple[I64, U64]:
        """Returns the values of some rows."""
        if not len(self.off) or len(rows) == len(self.off) - 1:
            return self
        return take_ragged(self.off, self.word, rows)


NO_VALUES = ComparedValues(no_offsets(), np.zeros(0, np.uint64))


def find_terms(
    analyzer: Analyzer,
    text: tuple[I64, U8],
    opaque: tuple[I64, U8],
    literals: LiteralView = NO_LITERALS,
    is_wanted: Callable[[], bool] = is_always_wanted,
    place: tuple[F64, F64] | None = None,
) -> tuple[I64, U64]:
    """Returns the terms of objects as a ragged column, see `Analyzer.analyse`, by their texts and
    what is opaque (protocol/opaque.py, perhaps absent). place: their longitudes and latitudes,
    float64[n] degrees; then phrases and prefixes are left out that no query has there."""
    area = None
    if place is not None and len(literals.term):
        area = find_areas(sealed(place[0]), sealed(place[1]))
    terms = analyzer.analyse(*text, is_wanted, literals, area)
    table = literals.of_attributes
    if not len(table) or not len(opaque[0]):
        return terms
    off, data = opaque
    found = search_attributes(
        sealed(off), sealed(data), table, literals.attribute_kinds, literals.of_pairs,
        sealed(analyzer.keys),
    )  # fmt: skip
    return add_found(*terms, *found) if len(found[1]) else terms


def search_rows(rows: ObjectRows, analyzer: Analyzer, literals: LiteralView) -> ObjectRows:
    """Returns objects that have been searched for the literals that queries have where they
    are."""
    text, opaque = (rows.text_off, rows.text), (rows.opaque_off, rows.opaque)
    terms = find_terms(analyzer, text, opaque, literals, place=(rows.lon, rows.lat))
    return rows.with_terms(*terms, literals.version)


def search_near(
    rows: ObjectRows, later: WatchedLiterals, analyzer: Analyzer, version: int
) -> ObjectRows:
    """Returns objects that were searched for all other literals of this version, of which those in
    the boxes of later ones have been searched for these."""
    place, boxes = (sealed(rows.lon), sealed(rows.lat)), sealed(later.box.ravel())
    literals = later.view()._replace(version=version)
    is_simple = analyzer.simple and len(literals.of_texts[0]) > 0
    if is_simple and not (len(literals.of_attributes) and len(rows.opaque_off)):
        text = sealed(rows.text_off), sealed(rows.text)
        terms = sealed(rows.term_off), sealed(rows.term)
        off, term, some = search_again(
            boxes, place, text, terms,
            simple_characters(analyzer.foldings), sealed(analyzer.keys), literals.of_texts,
        )  # fmt: skip
        rows = rows.with_terms(off, term, version)
    else:
        some = find_inside(*place, boxes)
    return search_some(rows, some, analyzer, literals)


def search_some(
    rows: ObjectRows, some: I64, analyzer: Analyzer, literals: LiteralView
) -> ObjectRows:
    """Returns objects of which some, by their rows, which rise, have been searched for these
    literals besides."""
    if not len(some):
        return rows.with_terms(rows.term_off, rows.term, literals.version)
    text = take_opaque(rows.text_off, rows.text, some)
    opaque, place = (
        take_opaque(rows.opaque_off, rows.opaque, some),
        (rows.lon[some], rows.lat[some]),
    )
    off, term = find_terms(analyzer, text, opaque, literals, place=place)
    old = sealed(rows.term_off), sealed(rows.term)
    terms = add_to_rows(*old, some, off, term)
    return rows.with_terms(*terms, literals.version)


def list_compared(
    opaque: tuple[I64, U8], analyzer: Analyzer, literals: LiteralView
) -> ComparedValues:
    """Returns the values of objects that queries with these literals compare."""
    if not literals.kinds[LiteralKind.COMPARED] or not len(opaque[0]):
        return NO_VALUES
    off, data = sealed(opaque[0]), sealed(opaque[1])
    return ComparedValues(*list_values(off, data, literals.term, sealed(analyzer.keys)))
