"""SALB against its worked example and its formula."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.planner.salb import WordOccurrences, divide, inverted


def test_the_worked_example_of_salb() -> None:
    """{a, b}, {a, b}, {a}, {c}, {c}: a to the first matcher, b and c to the second."""
    off = np.array([0, 3, 5, 7])
    row = np.array([0, 1, 2, 0, 1, 3, 4])
    found = WordOccurrences(off, row, np.ones(5), np.zeros(3), np.zeros(3))
    assert divide(found, np.arange(3), 2, 0.0, 1.0, 0.0).tolist() == [0, 1, 1]


@pytest.mark.takes_turns
@pytest.mark.parametrize("parts", [1, 2, 5, 70])
@pytest.mark.parametrize("bias", [0.0, 1.0])
@pytest.mark.parametrize("product", [0.0, 0.3])
def test_terms_are_divided_as_defined(product: float, bias: float, parts: int) -> None:
    rng = np.random.default_rng(4)
    rows = [set(rng.integers(0, 12, rng.integers(1, 6)).tolist()) for _ in range(80)]
    weight = rng.uniform(0.5, 2.0, 80)
    queries, fixed = rng.uniform(0, 9, 12), rng.uniform(0, 9, 12)
    start = np.cumsum([0, *map(len, rows)])
    unit = np.array([w for r in rows for w in r], np.int32)
    off, row = inverted(start, unit, np.arange(80), np.arange(12, dtype=np.int32), 12)
    order = rng.permutation(12)
    got = divide(
        WordOccurrences(off, row, weight, queries, fixed), order, parts, product, 0.6, bias
    )
    held: list[set[int]] = [set() for _ in range(parts)]

    def load(held: set[int]) -> float:
        o = sum(w for w, r in zip(weight, rows, strict=True) if r & held)
        q, f = sum(queries[t] for t in held), sum(fixed[t] for t in held)
        return float(product * o * q + 0.6 * o + f)

    for t in order.tolist():
        prices = []
        for i in range(parts):
            new = [load(h | {t} if j == i else h) for j, h in enumerate(held)]
            prices.append(sum(new) * (bias + float(np.std(new) / np.mean(new))))
        assert prices[got[t]] <= min(prices) * (1 + 1e-9) + 1e-12
        held[got[t]].add(t)


def test_the_rows_of_each_word_are_their_places_among_those_asked_for() -> None:
    rng = np.random.default_rng(7)
    rows = [sorted(rng.choice(10, rng.integers(0, 5), replace=False).tolist()) for _ in range(30)]
    start = np.cumsum([0, *map(len, rows)])
    unit = np.array([u for row in rows for u in row], np.int32)
    word = np.array([0, 1, 2, -1, 0, 3, -1, 2, 4, 5], np.int32)
    some = np.arange(1, 30, 2)
    off, row = inverted(start, unit, some, word, 7)
    for w in range(7):
        want = [n for n, r in enumerate(some.tolist()) for u in rows[r] if word[u] == w]
        assert row[off[w] : off[w + 1]].tolist() == want
    assert off[7] == len(row)
