"""Matches are ordered, and values gathered for them, as a few lines of Python do it."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.inprocess.gather_kernels import (
    RANKED,
    RECORD,
    SPARE,
    gather_ids,
    order_matches,
    repeat_texts,
    repeat_words,
    write_records,
)
from ps2stream.protocol.frame import Array, column_to_strings, sealed, strings_to_column

SIZES = (0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 128)
"""Bytes of texts, and matches of objects, around the sizes of chunks and lanes."""


def some_counts(rng: np.random.Generator, objects: int) -> Array:
    """How many matches each object has: none, few, and more than are ranked."""
    sizes = (*SIZES, RANKED, RANKED + 1, 3 * RANKED)
    return rng.choice(sizes, objects, p=[0.4] + [0.6 / (len(sizes) - 1)] * (len(sizes) - 1))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("queries", [3 * RANKED, (1 << 31) - 2])
def test_matches_are_ordered(seed: int, queries: int) -> None:
    rng = np.random.default_rng(seed)
    counts = some_counts(rng, 40)
    found = [rng.choice(min(queries, 1000), n, replace=False) for n in counts]
    found = [queries - 1 - each for each in found]
    row = np.repeat(np.arange(40, dtype=np.uint32), counts)
    handle = np.concatenate(found) + 1
    off, query = np.zeros(41, np.int64), np.empty(len(row), np.int64)
    order_matches(sealed(row), sealed(handle), off, query)
    assert np.diff(off).tolist() == counts.tolist()
    assert query.tolist() == [q for each in found for q in sorted(each.tolist())]


def test_no_match_is_ordered() -> None:
    off, query = np.zeros(4, np.int64), np.empty(0, np.int64)
    order_matches(sealed(np.empty(0, np.uint32)), sealed(query), off, query)
    assert not off.any()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("width", [np.int32, np.int64])
def test_values_are_repeated(seed: int, width: type[np.generic]) -> None:
    rng = np.random.default_rng(seed)
    off = np.append(0, np.cumsum(some_counts(rng, 30)))
    counts, n = np.diff(off), int(off[-1])
    word = rng.integers(0, 1 << 63, 30).astype(np.uint64)
    out = np.zeros(n + SPARE, np.uint64)
    repeat_words(sealed(word), sealed(off), out)
    assert out[:n].tolist() == np.repeat(word, counts).tolist()
    texts = ["".join(rng.choice(list("ab\u00e9"), size)) for size in rng.choice(SIZES, 30)]
    text_off, text = strings_to_column(texts)
    size = int(np.diff(text_off) @ counts)
    into, out_off = np.zeros(size + SPARE, np.uint8), np.zeros(n + 1, width)
    repeat_texts(sealed(text_off), sealed(text), sealed(off), out_off, into)
    expected = [text for text, n in zip(texts, counts, strict=True) for _ in range(n)]
    assert column_to_strings(out_off.astype(np.int64), into[:size]) == expected


@pytest.mark.parametrize("seed", range(4))
def test_ids_are_gathered(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ids = ["i" * int(size) + str(i) for i, size in enumerate(rng.choice(SIZES[:-1], 200))]
    off, data = (sealed(column) for column in strings_to_column(ids))
    record = np.empty(RECORD * len(ids) + SPARE // 8, np.uint64)
    write_records(off, data, record)
    for n in (0, 1, 1000):
        rows = rng.integers(0, len(ids), n)
        out_off = np.zeros(n + 1, np.int32)
        out = np.zeros(n * int(np.diff(off).max()) + SPARE, np.uint8)
        size = gather_ids(sealed(record), data, sealed(rows), out_off, out)
        assert size == out_off[-1]
        found = column_to_strings(out_off.astype(np.int64), out[:size])
        assert found == [ids[row] for row in rows]
