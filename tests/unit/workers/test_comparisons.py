"""Queries that compare values, in an index through all of its operations, against brute force."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from ps2stream.protocol.programs import write_comparison
from ps2stream.protocol.rows import (
    NEVER,
    PROG_AND,
    PROG_COMPARE,
    PROG_NOT,
    PROG_NOTES,
    PROG_OR,
    ExpressionForm,
)
from ps2stream.workers.index import ALL_TERMS, Index
from ps2stream.workers.indexes import IndexFactory
from ps2stream.workers.radix import arrays as radix_arrays
from ps2stream.workers.radix.division_kernels import WIDE_POSTINGS
from ps2stream.workers.radix.gi2 import RadixGI2
from tests.support.postings import (
    GRID,
    VOCABULARY,
    Query,
    columns,
    objects,
    random_query,
    touched,
)
from tests.support.programs import holds
from tests.support.shortening import choose_first

WORDS = VOCABULARY[:8]
ATTRIBUTES = [(3 << 40) + i for i in range(3)]
TYPES = {ATTRIBUTES[0]: [1], ATTRIBUTES[1]: [1, 1, 1, 2], ATTRIBUTES[2]: [2]}
KEYS = {
    1: [(k << 50).to_bytes(8) for k in range(12)] + [(5 << 50).to_bytes(8) + b"\0\1"],
    2: [b"", b"n", b"n\0", b"noaa", b"usgs", b"usgs.earthquakes", b"usgs.earthquaker"],
}
Values = dict[int, tuple[int, bytes]]


class Terms(set[int]):
    """The terms of an object, and its values."""

    def __init__(self, terms: Iterable[int], values: Values) -> None:
        super().__init__(terms)
        self.values = values


@dataclass
class ComparingQuery(Query):
    comparisons: dict[int, tuple[int, int, int, bytes]] = field(default_factory=dict)

    def satisfied(self, terms: set[int]) -> bool:
        assert isinstance(terms, Terms)
        if self.form != ExpressionForm.PROGRAM:
            return super().satisfied(terms)
        truth = {}
        for at, (term, order, type_, key) in self.comparisons.items():
            own = terms.values.get(term, (0, b""))
            orders = own[1] < key, own[1] <= key, own[1] > key, own[1] >= key, own[1] != key
            truth[at] = own[0] == type_ and orders[order]
        return holds(self.prog, dict(enumerate(t in terms for t in self.terms)), truth) is True


def draw_value(rng: np.random.Generator, term: int) -> tuple[int, bytes]:
    type_ = int(rng.choice(TYPES[term]))
    return type_, KEYS[type_][rng.integers(len(KEYS[type_]))]


def draw_comparing(rng: np.random.Generator, handle: int) -> ComparingQuery:
    """A query with words and comparisons, under AND in most cases; its region is any."""
    given = random_query(rng, handle)
    words = rng.choice(np.array(WORDS, np.uint64), int(rng.choice([0, 1, 1, 2, 3])), replace=False)
    compared = [ATTRIBUTES[rng.integers(3)] for _ in range(int(rng.choice([0, 1, 2, 2, 3, 4])))]
    if not len(words) + len(compared):
        words = rng.choice(np.array(WORDS, np.uint64), 1)
    terms = sorted({*words.tolist(), *compared})
    place = terms.index
    query = ComparingQuery(handle, ExpressionForm.PROGRAM, terms, 0, given.boxes, given.level)
    query.rect, query.circle, query.ring = given.rect, given.circle, given.ring
    joint, prog = (PROG_OR, PROG_AND)[rng.integers(2)], query.prog
    for n, word in enumerate(words.tolist()):
        negated = n > 0 and joint == PROG_AND and rng.random() < 0.2
        prog += [place(word), *[PROG_NOT] * negated, *[joint] * (n > 0)]
    loose = rng.random() < 0.15
    for n, term in enumerate(compared):
        value, order = draw_value(rng, term), int(rng.choice([0, 1, 2, 3, 2, 3, 4]))
        query.comparisons[len(prog)] = (term, order, *value)
        prog += write_comparison(place(term), order, *value)
        if n or len(words):
            prog.append(PROG_OR if loose else PROG_AND)
    equal = words.tolist() if rng.random() < 0.5 else []  # as if these were equalities
    query.notes = [v for t in compared for v in (place(t) | 4 << 8, 0)]
    query.notes += [v for t in equal for v in (place(t) | 5 << 8, 0)]
    noted = len(compared) + len(equal)
    query.notes.append(PROG_NOTES - noted) if noted else None
    choices = [
        post
        for post in range(1, 1 << len(terms))
        if all(posted(post, has) for has in satisfying(query))
    ]
    query.post = int(rng.choice(choices))
    if set(prog) <= {PROG_AND, *range(64)} and rng.random() < 0.5:
        query.form, query.prog = ExpressionForm.ALL, []
    units = itertools.product(
        sorted(touched(query)), (t for i, t in enumerate(terms) if query.post >> i & 1)
    )
    query.tags = {unit for unit in units if rng.random() < 0.9}
    return query


def posted(post: int, has: tuple[bool, ...]) -> bool:
    return any(post >> i & 1 and there for i, there in enumerate(has))


def satisfying(query: ComparingQuery) -> list[tuple[bool, ...]]:
    """The sets of terms with which a query can hold, whatever the values are."""
    every = itertools.product([False, True], repeat=len(query.terms))
    truth = dict.fromkeys(query.comparisons, True)
    return [has for has in every if holds(query.prog, dict(enumerate(has)), truth) is True]


def draw_objects(rng: np.random.Generator, n: int) -> tuple[list[np.ndarray], list[Terms]]:
    lon, lat, _, _ = objects(rng, n)
    texts = []
    for _ in range(n):
        values = {t: draw_value(rng, t) for t in ATTRIBUTES if rng.random() < 0.8}
        words = [w for w in WORDS if rng.random() < 0.5]
        texts.append(Terms([*words, *values], values))
    term = [np.array(sorted(text), np.uint64) for text in texts]
    value = []
    for text in texts:
        own = list[int]()
        for t, (type_, key) in text.values.items():
            padded = key + bytes(-len(key) % 8)
            own += [t, type_ << 32 | len(key)]
            own += [int.from_bytes(padded[k : k + 8]) for k in range(0, len(padded), 8)]
        value.append(np.array(own, np.uint64))
    offs = [np.cumsum([0, *map(len, parts)]).astype(np.int64) for parts in (term, value)]
    flat = [np.concatenate(parts) for parts in (term, value)]
    return [lon, lat, offs[0], flat[0], ALL_TERMS, offs[1], flat[1]], texts


def check(index: Index, queries: list[ComparingQuery], lsn: int, rng: np.random.Generator) -> int:
    batch, texts = draw_objects(rng, 40)
    want = sorted(
        (i, q.handle)
        for i, text in enumerate(texts)
        for q in queries
        if q.emits(lsn, float(batch[0][i]), float(batch[1][i]), text)
    )
    found = index.match(lsn, *batch)
    assert sorted(zip(found.row.tolist(), found.handle.tolist(), strict=True)) == want
    return len(want)


@pytest.mark.takes_turns
@pytest.mark.parametrize(("sampled", "divided"), [(1, 0), (1, 9), (16, 3), (64, 1024)])
@pytest.mark.parametrize("seed", choose_first(range(3), 1))
def test_what_compares_is_found_whatever_happened_to_the_index(
    seed: int, sampled: int, divided: int, new_index: IndexFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inserts, some of them alike, deletes, sweeps, snapshots, and units that come and go."""
    monkeypatch.setattr(radix_arrays, "SAMPLED", sampled)
    monkeypatch.setattr(radix_arrays, "DIVIDED", divided)
    rng, index = np.random.default_rng([seed, sampled]), new_index(GRID)
    queries: list[ComparingQuery] = []
    pairs = lsn = watermark = 0
    for turn in range(10):
        new = []
        for _ in range(60):
            lsn += 1
            query = draw_comparing(rng, lsn)
            if queries and rng.random() < 0.2:
                other = queries[rng.integers(len(queries))]
                query = replace(other, handle=lsn, deleted=NEVER, tags=set(other.tags))
            queries.append(query)
            new.append(query)
        index.insert(*columns(list(new)))
        gone = [q for q in queries if q.deleted == NEVER and rng.random() < 0.15]
        for query in gone:
            lsn += 1
            query.deleted = lsn
        index.delete(
            np.array([q.handle for q in gone], np.int64),
            np.array([q.deleted for q in gone], np.int64),
        )
        watermark = int(rng.integers(watermark, lsn + 1))
        index.purge(watermark)
        index.sweep(int(rng.integers(0, 300)))
        if turn % 3 == 1:
            parts = {name: np.array(part) for name, part in index.hold().items()}
            index.release()
            index = new_index(GRID, parts)
        if turn % 4 == 2:
            moved = int(rng.integers(8))

            def keeps(cell: np.ndarray, term: np.ndarray, moved: int = moved) -> np.ndarray:
                kept: np.ndarray = (cell + term.astype(np.uint32)) % 8 != moved
                return kept

            index.drop(keeps)
            for query in queries:
                query.tags = {
                    (c, t) for c, t in query.tags if (c + (t & 0xFFFFFFFF)) % (1 << 32) % 8 != moved
                }
        pairs += check(index, queries, int(rng.integers(watermark, lsn + 1)), rng)
    assert pairs > 200
    if isinstance(index, RadixGI2):
        counted = index._arrays.bands[0, WIDE_POSTINGS:]
        assert (int((counted > divided).sum()) > 3) == (divided < 1024)


def test_the_programs_that_are_drawn_compare_in_all_ways() -> None:
    rng = np.random.default_rng(1)
    drawn = [draw_comparing(rng, i + 1) for i in range(300)]
    numbers = [len(q.comparisons) for q in drawn]
    assert {0, 1, 2, 3, 4} <= set(numbers)
    assert all(q.prog[at] == PROG_COMPARE for q in drawn for at in q.comparisons)
