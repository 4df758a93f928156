"""Postings in integers, against Python's own sorting of strings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ps2stream.planner.counting import COARSE, POSTINGS
from ps2stream.planner.postings import HASHED, NAMES, PostingTable
from ps2stream.planner.statistics import TOP_TERM

WORDS = ["flood", "Straße", "😀", "東京", 'kind = "a"', "", "\ufb01re", "\U0001f600b", "\uffee"]


def some_postings(seed: int, n: int = 60) -> list[tuple[int, str, int, int, int]]:
    rng = np.random.default_rng(seed)
    keys = sorted({(int(rng.integers(9)), WORDS[rng.integers(len(WORDS))]) for _ in range(n)})
    rows = [(*keys[i], *rng.integers(0, 50, 3).tolist()) for i in rng.permutation(len(keys))]
    return [*rows[:7], (COARSE, TOP_TERM, 5, 2, 1), *rows[7:]]


def table(rows: list[Any], schema: Any) -> Any:
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=schema)


def listed(found: PostingTable) -> list[tuple[int, str, int, int, int]]:
    names = [found.terms[t] for t in found.term.tolist()]
    counts = (getattr(found, name).tolist() for name in ("live", "inserts", "deletes"))
    return list(zip(found.cell.tolist(), names, *counts, strict=True))


def hashed(rows: list[Any]) -> tuple[Any, Any]:
    words = [*WORDS, "of no unit"]
    of_word = {word: (i * 0x9E3779B97F4A7C15) % 2**63 - 2**62 for i, word in enumerate(words)}
    return table(list(of_word.items()), NAMES), table(
        [(cell, of_word[term], *counts) for cell, term, *counts in rows], HASHED
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_units_are_ordered_as_python_orders_them(seed: int) -> None:
    rows = some_postings(seed)
    units = sorted(row for row in rows if row[0] != COARSE)
    by_hash = PostingTable.of_hashes(*hashed(rows))
    assert by_hash is not None
    for found in (PostingTable.of_strings(table(rows, POSTINGS)), by_hash):
        assert listed(found) == units
        assert found.terms == tuple(sorted({term for _, term, *_ in units}))
        assert found.coarse == 5
        assert len(found) == len(units)
        assert {found.cell.dtype, found.term.dtype, found.live.dtype} == {np.dtype(np.int32)}


def test_terms_of_one_hash_are_noticed() -> None:
    names, rows = hashed(some_postings(4))
    same = names["hash"].to_numpy().copy()
    same[3] = same[5]
    assert PostingTable.of_hashes(names.set_column(1, "hash", pa.array(same)), rows) is None


def test_a_sample_without_units() -> None:
    empty = PostingTable.of_strings(POSTINGS.empty_table())
    assert (len(empty), empty.terms, empty.coarse) == (0, (), 0)
    only = PostingTable.of_strings(table([(COARSE, TOP_TERM, 3, 0, 0)], POSTINGS))
    assert (len(only), only.terms, only.coarse) == (0, (), 3)
    none = PostingTable.of_hashes(NAMES.empty_table(), HASHED.empty_table())
    assert none is not None
    assert len(none) == 0
