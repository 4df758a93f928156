"""What an insert stores, read back posting by posting, against a twin from layout.py."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from ps2stream.protocol.rows import ExpressionForm
from ps2stream.workers import layout as kl
from ps2stream.workers import posting_kernels as kp
from ps2stream.workers.gi2 import GI2
from tests.support.postings import GRID, Query, columns, random_query

Posting = tuple[int, int, int, int, int, int, int, int]
"""The handle, mode, x0, x1, y0, y1 and the high halves of two keywords."""


def stored(index: GI2) -> dict[tuple[int, int], Counter[Posting]]:
    """All postings by (cell, term), as layout.py describes them."""
    arrays, out = index._arrays, {}
    for bucket in arrays.table.tolist():
        for term, word in zip(bucket[: kl.BUCKET], bucket[kl.BUCKET :], strict=True):
            if word == 0:
                continue
            at = word & 0xFFFFFFFF
            words = arrays.runs[at + 1 :][: kl.POSTING * (int(arrays.runs[at]) & kl.LEN_MASK)]
            held = Counter[Posting]()
            for x, y, slot, a, b in words.reshape(-1, kl.POSTING).tolist():
                handle = int(arrays.slots_i[slot & kl.SLOT_MASK, kl.HANDLE])
                sides = x & 0xFFFF, x >> 16, y & 0xFFFF, y >> 16
                held[handle, slot >> kl.SLOT_BITS, *sides, a, b] += 1
            assert (word >> 32, term) not in out
            out[word >> 32, term] = held
    return out


def expected(query: Query, cell: int, term: int) -> Posting:
    """The posting of a query under one tag, of which GENERAL ones may carry other keywords."""
    n, terms, posted = len(query.terms), query.terms, query.post
    alone, halves = posted.bit_count() == 1, {t >> 32 for t in terms}
    plain = len(query.boxes) == 1 and not query.circle and not query.ring and not query.prog
    if n > 1:
        simple = (query.form == ExpressionForm.ALL and alone) or (
            query.form == ExpressionForm.ANY and posted == (1 << n) - 1
        )
        plain = plain and simple and n <= 3 and len(halves) == n
    mode, others = (kl.FREE if plain else kl.GENERAL), [term]
    if plain and n > 1 and query.form == ExpressionForm.ALL:
        mode, others = kl.ALL, [t for t in terms if t != term]
    elif plain and term != terms[0]:
        mode, others = kl.ANY, terms[: terms.index(term)]
    return (query.handle, mode, *sides(query, cell), others[0] >> 32, others[-1] >> 32)


def sides(query: Query, cell: int) -> tuple[int, int, int, int]:
    """The part of the boxes in a cell, in steps of 1/65536 cell, clamped."""
    west, south, wide, high = GRID.bounds(cell)

    def step(degrees: float, start: float, size: float) -> int:
        return min(max(math.floor((degrees - start) * (65536.0 / size)), 0), 65535)

    x = [[step(box[i], west, wide) for i in (0, 2)] for box in query.boxes]
    y = [[step(box[i], south, high) for i in (1, 3)] for box in query.boxes]
    return min(a for a, _ in x), max(b for _, b in x), min(a for a, _ in y), max(b for _, b in y)


@pytest.mark.takes_turns
@pytest.mark.parametrize("seed", range(6))
def test_postings_are_those_of_the_twin(seed: int) -> None:
    """A GENERAL posting of a conjunction carries two of its keywords, any other its own."""
    rng, index = np.random.default_rng(seed), GI2(GRID)
    queries = {i: random_query(rng, i) for i in range(1, 301)}
    for start in range(1, 301, 70):
        index.insert(*columns([q for i, q in queries.items() if start <= i < start + 70]))
    want: dict[tuple[int, int], Counter[Posting]] = {}
    for query in queries.values():
        for cell, term in query.tags:
            want.setdefault((cell, term), Counter())[expected(query, cell, term)] += 1
    found = stored(index)
    assert found.keys() == want.keys()
    for (cell, term), postings in found.items():
        exact = Counter[Posting]()
        for posting, count in postings.items():
            query = queries[posting[0]]
            if posting[1] == kl.GENERAL:
                any_of = query.terms if query.form == ExpressionForm.ALL else [term]
                assert {*posting[6:]} <= {t >> 32 for t in any_of}
                posting = (*posting[:6], term >> 32, term >> 32)
            exact[posting] += count
        assert exact == want[cell, term]
    levels = Counter(cell >> kl.CELL_BITS for q in queries.values() for cell, _ in q.tags)
    assert {i: n for i, n in enumerate(index._arrays.level_postings.tolist()) if n} == levels


@pytest.mark.parametrize("seed", range(4))
def test_a_larger_table_holds_the_same(seed: int) -> None:
    """Also where every bucket before was full."""
    rng = np.random.default_rng(seed)
    old = np.zeros((5, 2 * kl.BUCKET), np.uint64)
    tags = {(int(k), i) for i, k in enumerate(rng.integers(2**64, size=19, dtype=np.uint64), 1)}
    for at, (key, run) in enumerate(sorted(tags)):
        old[at // 4, at % 4], old[at // 4, 4 + at % 4] = key, run << 32 | run
    table = np.zeros((int(rng.integers(6, 12)), 2 * kl.BUCKET), np.uint64)
    kp.rehash_tags(old, table)
    held = [(int(k), int(w)) for b in table for k, w in zip(b[:4], b[4:], strict=True) if w]
    assert sorted(held) == sorted((key, run << 32 | run) for key, run in tags)
