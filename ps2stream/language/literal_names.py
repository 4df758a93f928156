"""The texts of watched literals of which only the terms are known, from objects that have them.

A dispatcher knows a phrase, a prefix, a predicate or a pair by its term, its kind and its size.
Whoever is to list it in a plan needs its text, which is among those that an object with this term
offers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

import numpy as np

from ps2stream.language.analyzer import Analyzer
from ps2stream.language.attribute_values import values_of
from ps2stream.language.expression import hash_literals
from ps2stream.language.literal_texts import TextWords, phrase_text, prefix_text
from ps2stream.language.literals import LiteralKind, WatchedLiterals
from ps2stream.language.object_terms import find_terms
from ps2stream.language.pairs import pair_text
from ps2stream.language.predicate_terms import mark_name
from ps2stream.language.predicates import (
    COMPARED,
    EXISTS,
    Attributes,
    Predicate,
    equality_text,
    predicate_text,
)
from ps2stream.protocol.frame import I64, U8, U64, row_of
from ps2stream.protocol.opaque import split_opaque
from ps2stream.v1 import object_pb2


def name_literals(
    literals: WatchedLiterals, text: tuple[I64, U8], opaque: tuple[I64, U8], analyzer: Analyzer
) -> dict[int, str]:
    """Returns the texts of those watched literals that one of some objects has, by term; of an
    attribute that is compared the name of the unit, `mag COMPARED`. text, opaque: ragged columns as
    in ObjectRows, the latter perhaps without offsets."""
    if not len(literals.term):
        return {}
    off, term = find_terms(analyzer, text, opaque, literals.view())
    order = np.argsort(literals.term, kind="stable")
    at = np.minimum(np.searchsorted(literals.term[order], term), len(order) - 1)
    found = np.flatnonzero(literals.term[order][at] == term)
    which, first = np.unique(order[at[found]], return_index=True)
    row = row_of(off)[found[first]]
    columns = row, literals.kind[which], literals.size[which]
    offers = {*zip(*(column.tolist() for column in columns), strict=True)}
    names = sorted(_list_offers(offers, text, opaque, analyzer))
    wanted = {*literals.term.tolist()}
    hashes = hash_literals(analyzer, names).tolist()
    return {hashed: n for hashed, n in zip(hashes, names, strict=True) if hashed in wanted}


def _list_offers(
    offers: Iterable[tuple[int, int, int]],
    text: tuple[I64, U8],
    opaque: tuple[I64, U8],
    analyzer: Analyzer,
) -> set[str]:
    """Returns the literals of each kind and size that the objects of these rows offer."""
    found, last = set[str](), -1
    words, equalities = TextWords((), frozenset(), frozenset()), dict[str, str]()
    columns = split_opaque(*opaque, len(text[0]) - 1)
    for row, kind, size in sorted(offers):
        if row != last:
            raw = text[1][text[0][row] : text[0][row + 1]].tobytes().decode(errors="replace")
            entries = _read_row(columns.attributes_off, columns.attributes, row)
            words = analyzer.text_words(raw, values_of(entries))
            equalities, last = _list_equalities(words.attributes), row
        match kind:
            case LiteralKind.PHRASE:
                found.update(_list_phrases(words.sequence, size))
            case LiteralKind.PREFIX:
                found.update(_list_prefixes(words.plain, size & 0xFF))
            case LiteralKind.PAIR:
                found.update(_list_pairs(equalities, size, analyzer.keys))
            case LiteralKind.EQUAL:
                found.update(equalities)
            case _:
                op = EXISTS if kind == LiteralKind.PRESENT else COMPARED
                found.update(predicate_text(Predicate(name, op)) for name in words.attributes)
    return found


def _read_row(off: I64, data: U8, row: int) -> object_pb2.Attributes:
    raw = data[off[row] : off[row + 1]].tobytes() if len(off) else b""
    return object_pb2.Attributes.FromString(raw)


def _list_phrases(words: tuple[str, ...], size: int) -> Iterator[str]:
    for first in range(len(words) - size + 1):
        yield phrase_text(words[first : first + size])


def _list_prefixes(words: Iterable[str], size: int) -> Iterator[str]:
    for word in words:
        begun = word.encode()[:size]
        text = begun.decode(errors="ignore")
        if len(begun) == len(text.encode()) == size:
            yield prefix_text(text)


def _list_equalities(attributes: Attributes) -> dict[str, str]:
    """Returns the names of attributes by their equalities."""
    texts = {equality_text(name, value): name for name, value in attributes.items()}
    return {text: name for text, name in texts.items() if text is not None}


def _list_pairs(equalities: dict[str, str], marks: int, keys: U64) -> Iterator[str]:
    """Yields the pairs of equalities whose names have these marks."""
    of_mark: dict[int, list[str]] = {}
    for text, name in equalities.items():
        of_mark.setdefault(mark_name(keys, name), []).append(text)
    for a, b in product(of_mark.get(marks >> 8, ()), of_mark.get(marks & 0xFF, ())):
        if equalities[a] != equalities[b]:
            yield pair_text(a, b)
