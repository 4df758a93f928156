"""The rest: the units of a large sample that the planner's driver holds as sums, not one by one.

Above `max_units` units, those with the most load are kept as they are. All others are summed by
cell, in up to 16 parts by the hash of their terms; each part is a unit of its own, under a term
that no query has (REST_TERMS). The sums are exact, so the candidates and updates of a cell are what
they are without a limit; its copies are estimated, as ever, here by those of its SIGNATURES sampled
objects that meet a unit. Where a plan divides a cell by terms, a rest's terms belong to the workers
of the leaf by hash, whereas a plan's prediction takes each part as one term: but for that estimate,
the load of no worker is off by more than that of the rests in such cells (load.bound_error), which
the plan states.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ps2stream.language.analyzer import Analyzer
from ps2stream.language.object_terms import find_terms
from ps2stream.planner.counting import find, ragged
from ps2stream.planner.hits import ObjectSignatures, Vocabulary
from ps2stream.planner.objects import opaque_of
from ps2stream.planner.postings import PostingTable
from ps2stream.planner.statistics import (
    I32,
    REST_TERMS,
    NumberedSignatures,
    NumberedUnits,
)
from ps2stream.protocol.frame import I64, U64, row_of
from ps2stream.routing.plan import hash_units
from ps2stream.space.grid import Grid

MAX_UNITS = 2_000_000
"""The most units that are held one by one, unless a job says otherwise."""
PAIRS = pa.schema([("cell", pa.int64()), ("hash", pa.int64()), ("objects", pa.int64())])
"""How many objects of a cell have a word of the vocabulary, by its hash."""
REST = pa.schema(
    [
        ("cell", pa.int64()),
        ("part", pa.int64()),
        *((name, pa.int64()) for name in ("units", "objects", "live", "inserts", "deletes")),
        ("candidates", pa.int64()),
    ]
)
"""Sums of the units of a rest; candidates: of objects times live."""
_CLASSES = 4  # of weights, per doubling
_ROWS = 1 << 15  # of signatures


class RestTable(NamedTuple):
    """The rest of a sample: sums by cell and part (REST, one row each); words: the vocabulary's
    hashes, by which the signatures' other words are numbered; cell, word int64[n]: the units of
    the rest by cell and word, at least those that signatures have; parts: their number."""

    sums: Any
    words: U64
    cell: I64
    word: I64
    parts: int


def count_pairs(objects: Any, analyzer: Analyzer, grid: Grid, known: Vocabulary) -> Any:
    """Returns PAIRS of a batch of objects.OBJECTS."""
    lon, lat = (objects.column(name).to_numpy() + 0.0 for name in ("lon", "lat"))
    texts, opaque = ragged(objects.column("text")), opaque_of(objects)
    off, term = find_terms(analyzer, texts, opaque, known.literals)
    cell = grid.cells(lon, lat, 0).astype(np.int64)[row_of(off)]
    word, held = find(known.words, term)
    key = cell[held] * max(len(known.words), 1) + word[held]
    key, count = np.unique(key, return_counts=True)
    hashes = known.words[key % max(len(known.words), 1)].view(np.int64)
    return pa.table([key // max(len(known.words), 1), hashes, count], schema=PAIRS)


def classify_units(objects: I64, live: I64, inserts: I64, deletes: I64) -> I64:
    """Returns the class of each unit by what it weighs, int64[u], higher for more: the candidates,
    half an object taken as sure to come, and the updates."""
    weight = (2 * objects + 1) * live + 2 * (inserts + deletes)
    found: I64 = np.floor(_CLASSES * np.log2(np.maximum(weight, 1))).astype(np.int64)
    return found


def find_least_class(classes: I64, units: I64, limit: int) -> int:
    """Returns the lowest class that is kept, so that at most `limit` units are; classes int64[k],
    distinct, and the units of each."""
    order = np.argsort(-classes)
    kept = int((np.cumsum(units[order]) <= limit).sum())
    return int(classes[order[kept - 1]]) if kept else int(classes.max(initial=0)) + 1


def choose_parts(cells: int, limit: int) -> int:
    """Returns into how many parts each rest is divided, a power of two, if so many cells have one:
    all parts are at most a quarter of `limit` units, or one per cell."""
    parts = len(REST_TERMS)
    while parts > 1 and 4 * cells * parts > limit:
        parts //= 2
    return parts


def separate_rest(
    postings: PostingTable, pairs: Any, known: Vocabulary, analyzer: Analyzer, limit: int
) -> tuple[PostingTable, RestTable]:
    """Returns (the units that are kept, the rest). pairs: PAIRS, one row per cell and word. The
    NumPy twin of spark_rest.RestSampling."""
    hashes = hash_units(analyzer, postings.terms)
    span = max(len(known.words), 1)
    word = find(known.words, hashes)[0][postings.term]
    cell = postings.cell.astype(np.int64)
    counted = pairs["cell"].to_numpy() * span + find(known.words, _read_hashes(pairs))[0]
    order = np.argsort(counted)
    at, held = find(counted[order], cell * span + word)
    objects = np.zeros(len(postings), np.int64)
    objects[held] = pairs["objects"].to_numpy()[order[at[held]]]
    live, inserts, deletes = (
        getattr(postings, name).astype(np.int64) for name in ("live", "inserts", "deletes")
    )
    classes = classify_units(objects, live, inserts, deletes)
    kept = classes >= find_least_class(*np.unique(classes, return_counts=True), limit)
    rest = ~kept
    parts = choose_parts(len(np.unique(cell[rest])), limit)
    part = (known.words[word[rest]] & np.uint64(parts - 1)).astype(np.int64)
    key, where = np.unique(cell[rest] * parts + part, return_inverse=True)
    ones = np.ones(len(where), np.int64)
    sums = []
    for column in (ones, objects[rest], live[rest], inserts[rest], deletes[rest],
                   (objects * live)[rest]):  # fmt: skip
        total = np.zeros(len(key), np.int64)
        np.add.at(total, where, column)
        sums.append(total)
    table = pa.table([key // parts, key % parts, *sums], schema=REST)
    return postings.keep(kept), RestTable(table, known.words, cell[rest], word[rest], parts)


def _read_hashes(pairs: Any) -> U64:
    found: U64 = pairs["hash"].to_numpy().view(np.uint64)
    return found


def add_rest(
    units: NumberedUnits, signatures: ObjectSignatures, rest: RestTable
) -> tuple[NumberedUnits, NumberedSignatures]:
    """Returns units and signatures with the rest's among them. signatures: with the other words
    that UnitHits has found."""
    sums = {name: rest.sums[name].to_numpy() for name in REST.names}
    terms = tuple(sorted({*units.terms, *REST_TERMS[: rest.parts]}))
    number = {term: n for n, term in enumerate(terms)}
    old = np.fromiter((number[t] for t in units.terms), np.int32, len(units.terms))
    of_part = np.array([number[t] for t in REST_TERMS[: rest.parts]], np.int32)
    cell = np.concatenate([units.cell, sums["cell"]]).astype(np.int32)
    term = np.concatenate([old[units.term], of_part[sums["part"]]])
    order = np.lexsort((term, cell))
    objects, live, inserts, deletes = (
        np.concatenate([getattr(units, name), sums[name]], dtype=np.float64)[order]
        for name in ("objects", "live", "inserts", "deletes")
    )
    met = units.objects * units.live.astype(np.float64)
    candidates = np.concatenate([met, sums["candidates"]])[order]
    found = NumberedUnits(
        terms, cell[order], term[order], objects, live, inserts, deletes, candidates
    )
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return found, _number_signatures(signatures, rest, place, len(units.cell))


def _number_signatures(
    signatures: ObjectSignatures, rest: RestTable, place: I64, kept: int
) -> NumberedSignatures:
    """Puts the units of the rest where signatures have words, and leaves out words that are no
    unit's. place: of each unit among all; kept: how many are none of the rest."""
    held = np.sort(rest.cell * max(len(rest.words), 1) + rest.word)
    keys = rest.sums["cell"].to_numpy() * rest.parts + rest.sums["part"].to_numpy()
    order = np.argsort(keys)
    known = _RestUnits(rest, held, keys[order], place[kept + order], place)
    off, parts = signatures.unit_off, list[NumberedSignatures]()
    # Some at a time: on the way, each word takes many times its bytes.
    for first in range(0, max(len(signatures.cell), 1), _ROWS):
        rows = slice(first, first + _ROWS)
        some = off[first : first + _ROWS + 1]
        unit = signatures.unit[some[0] : some[-1]]
        parts.append(_replace_words(signatures.cell[rows], some - some[0], unit, known))
    cell, unit, hits = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("cell", "unit", "hits")
    )
    found = np.zeros(len(cell) + 1, np.int64)
    np.cumsum(np.concatenate([np.diff(part.unit_off) for part in parts]), out=found[1:])
    return NumberedSignatures(cell, found, unit, hits)


class _RestUnits(NamedTuple):
    """What words are looked up in: held, cell * words + word of the rest's units, ascending; part,
    cell * parts + part of its sums, ascending, and unit, their places; place: of each unit."""

    rest: RestTable
    held: I64
    part: I64
    unit: I64
    place: I64


def _replace_words(cell: I64, off: I64, unit: I64 | I32, known: _RestUnits) -> NumberedSignatures:
    """Does what _number_signatures says for some rows."""
    rest, place, span = known.rest, known.place, max(len(known.rest.words), 1)
    row = row_of(off)
    code = unit.astype(np.int64)
    at_cell, word = cell[row], -1 - code
    held = find(known.held, at_cell * span + word)[1]
    part = (rest.words[np.maximum(word, 0)] & np.uint64(rest.parts - 1)).astype(np.int64)
    summed = known.unit[find(known.part, at_cell * rest.parts + part)[0]]
    some = (code >= 0) | held
    units = np.where(code >= 0, place[np.maximum(code, 0)], summed)[some]
    hits = np.bincount(row[some], minlength=len(cell))
    # An object may have several terms of one part.
    key = np.unique(row[some] * len(place) + units)
    size = np.bincount(key // max(len(place), 1), minlength=len(cell))
    rows = np.flatnonzero(size)
    found = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(size[rows], out=found[1:])
    numbers = (key % max(len(place), 1)).astype(np.int32)
    return NumberedSignatures(cell[rows], found, numbers, hits[rows].astype(np.int64))
