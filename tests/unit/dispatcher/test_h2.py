"""The table of H2 against a dictionary, and its memory."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.dispatcher.h2 import H2
from ps2stream.dispatcher.h2_kernels import MANY, ROW_BYTES
from ps2stream.protocol.frame import U32, U64
from tests.support.units import list_counts, split_units

CELLS = [0, 1, 5, 4095, 1 << 28, 9 << 28 | 1]
TERMS = [0, 1, 2, 2**32, 2**63 + 5, 2**64 - 1]
unit = st.tuples(st.sampled_from(CELLS), st.sampled_from(TERMS))
Step = tuple[bool, list[tuple[int, int]], int]
step = st.tuples(st.booleans(), st.lists(unit, max_size=20), st.sampled_from([1, 3, MANY]))


@settings(deadline=None, max_examples=150)
@given(st.lists(step, max_size=12))
def test_counts_are_those_of_a_dictionary(
    steps: list[Step],
) -> None:
    counts, model = H2(), Counter[tuple[int, int]]()
    for adds, units, times in steps:
        if adds:
            counts.add(*split_units(units * times))
            model.update(units * times)
        else:
            held = sorted((Counter(units * times) & model).elements())
            assert counts.remove(*split_units(held)) is None
            model -= Counter(held)
        assert list_counts(counts) == model
        assert len(counts) == len(model)
        assert counts.levels == sorted({cell >> 28 for cell, _ in model})
    missing = (77, 3)
    assert counts.remove(*split_units([*model.elements(), missing])) == model.total()
    assert len(counts) == 0


def draw(rng: np.random.Generator, n: int) -> tuple[U32, U64]:
    return rng.integers(0, 1 << 12, n).astype(np.uint32), rng.integers(0, 2**64, n, np.uint64)


def test_a_unit_takes_at_most_sixteen_bytes_however_many_there_are() -> None:
    counts, rng = H2(), np.random.default_rng(1)
    most = 0.0
    while len(counts) < 600_000:
        counts.add(*draw(rng, 5_000))
        if len(counts) >= 100_000:  # a row is one byte a unit then
            most = max(most, counts.nbytes / len(counts))
    assert most <= 16


def test_memory_is_given_back_when_units_are_removed() -> None:
    counts, rng = H2(), np.random.default_rng(2)
    cell, term = draw(rng, 200_000)
    counts.add(cell, term)
    full = counts.nbytes
    assert counts.remove(cell[:199_000], term[:199_000]) is None
    assert counts.nbytes < full / 20
    assert list_counts(counts) == Counter(
        zip(cell[199_000:].tolist(), term[199_000:].tolist(), strict=True)
    )
    counts.add(cell[:199_000], term[:199_000])  # where the rows were given back
    assert list_counts(counts) == Counter(zip(cell.tolist(), term.tolist(), strict=True))
    assert counts.remove(cell, term) is None
    assert counts.nbytes < 2 * ROW_BYTES


def test_a_table_that_was_filled_is_trimmed_and_then_grows_by_less() -> None:
    counts, rng = H2(fills=True), np.random.default_rng(4)
    cell, term = draw(rng, 130_000)
    for first in range(0, len(cell), 1_000):
        counts.add(cell[first : first + 1_000], term[first : first + 1_000])
    held = Counter(zip(cell.tolist(), term.tolist(), strict=True))
    assert list_counts(counts) == held
    filled = counts.nbytes
    counts.trim()
    assert list_counts(counts) == held
    assert counts.nbytes <= 16 * len(counts) < filled
    counts.add(*draw(rng, 60_000))
    assert counts.nbytes <= 16 * len(counts)


@pytest.mark.takes_turns
@pytest.mark.parametrize("repeats", [1, 3])
def test_a_part_grows_seldom_where_it_is_known_what_comes(
    repeats: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`repeats`: the same units come so often, so that fewer are new than expected."""
    counts, rng, pieces = H2(fills=True), np.random.default_rng(5), 60
    cell, term = draw(rng, 600_000 // repeats)
    order = np.tile(np.arange(len(cell)), repeats)
    cell, term = cell[order], term[order]
    resized: list[int] = []
    resize = counts._resize

    def count_resizes(part: int, size: int) -> None:
        resized.append(part)
        resize(part, size)

    parts = np.array_split(np.arange(len(cell)), pieces)
    for number, rows in enumerate(parts, 1):
        counts.expect(number / pieces)
        counts.add(cell[rows], term[rows])
        if number == 1:
            monkeypatch.setattr(counts, "_resize", count_resizes)
    held = Counter(zip(cell.tolist(), term.tolist(), strict=True))
    assert list_counts(counts) == held
    assert len(resized) <= 4 * len(counts.arrays[0])  # 6 by doubling
    counts.trim()
    assert list_counts(counts) == held
    assert counts.nbytes <= 16 * len(counts)


def test_much_churn_loses_no_unit() -> None:
    """Units come and go while the table stays as full as it can be."""
    counts, rng = H2(), np.random.default_rng(3)
    cell, term = draw(rng, 50_000)
    counts.add(cell, term)
    size = counts.nbytes
    for _ in range(20):
        gone = rng.permutation(len(cell))[:25_000]
        assert counts.remove(cell[gone], term[gone]) is None
        cell[gone], term[gone] = draw(rng, len(gone))
        counts.add(cell[gone], term[gone])
    assert list_counts(counts) == Counter(zip(cell.tolist(), term.tolist(), strict=True))
    assert counts.nbytes <= 1.2 * size


def test_levels_are_merged_and_their_counts_added() -> None:
    counts, bit = H2(), np.uint32(8 << 28)
    units = [(3, 5)] * 40 + [(3 | 8 << 28, 5)] * 2 + [(4 | 8 << 28, 6)] * 50 + [(1 << 28, 7)]
    counts.add(*split_units(units))
    merged = counts.merge_levels(bit)
    assert list_counts(merged) == {(3, 5): 42, (4, 6): 50, (1 << 28, 7): 1}
    assert merged.levels == [0, 1]
    assert list_counts(counts) == Counter(units)
