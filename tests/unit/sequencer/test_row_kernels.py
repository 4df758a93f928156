"""Packed rows are read back bit by bit, whatever their columns hold."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.language.expression import compile_column
from ps2stream.language.query_rows import build_rows
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.rows import QueryRows
from ps2stream.sequencer import row_kernels
from ps2stream.sequencer.packed_rows import PackedRows
from ps2stream.space.regions import Circle, Polygon, Rect, Region, World
from tests.support.updates import insert, query_rows

REGIONS: list[Region] = [
    World(),
    Rect(-1.0, -1.0, 1.0, 1.0),
    Rect(170.0, -1.0, -170.0, 1.0),
    Rect(-180.0, -90.0, 180.0, 90.0),
    Circle(10.0, 50.0, 30.0),
    Polygon(shapely.Polygon([(-1.0, -1.0), (1.0, -1.0), (0.0, 1.0)])),
]


def same_columns(a: QueryRows, b: QueryRows) -> None:
    for field in dataclasses.fields(QueryRows):
        left, right = getattr(a, field.name), getattr(b, field.name)
        assert left.dtype == right.dtype, field.name
        assert left.tobytes() == right.tobytes(), field.name


def packed_and_back(rows: QueryRows) -> QueryRows:
    n = len(rows)
    return PackedRows.pack(rows, np.arange(n)).take(np.arange(n))


def test_queries_of_every_kind_are_read_back() -> None:
    analyzer = Analyzer(Analysis(salt=1))
    texts = ["rain", "rain AND storm", "b OR a", "(a OR b) AND c", "a  b", "\u00fcber OR 1"]
    pairs = [(text, region) for text in texts for region in REGIONS]
    column = strings_to_column(text for text, _ in pairs)
    compiled = compile_column(*column, analyzer, Frequencies.of({}, analyzer))
    ids = strings_to_column(str(i) * (i % 40 + 1) for i in range(len(pairs)))
    rows = build_rows(ids, compiled, [region for _, region in pairs], column)
    rows = rows.replace(session=np.arange(len(pairs)) ** 5 * 1000)
    same_columns(packed_and_back(rows), rows)
    # Without the sources of every third row; then some of them in another order.
    keep = np.arange(len(pairs)) % 3 > 0
    packed = PackedRows.pack(rows, np.arange(len(pairs)))
    sizes = np.diff(packed.take(np.arange(len(pairs)), keep).source_off)
    np.testing.assert_array_equal(sizes, np.where(keep, np.diff(rows.source_off), 0))
    order = np.random.default_rng(1).permutation(len(pairs))[:20]
    same_columns(packed.take(order), rows.take(order))
    same_columns(packed.select(order).take(np.arange(20)), rows.take(order))
    assert packed.slice(3, 9).take(np.arange(6)).encode() == rows.take(np.arange(3, 9)).encode()
    plain = rows.take(np.flatnonzero(rows.shape < 2))
    size = len(PackedRows.pack(plain, np.arange(len(plain))).data)
    assert size < 0.6 * plain.nbytes


@st.composite
def any_rows(draw: st.DrawFn) -> QueryRows:
    """Rows with columns that need not fit each other."""
    n = draw(st.integers(0, 6))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))

    def ragged(most: int) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(rng.integers(0, most + 1, n))]).astype(np.int64)

    id, term, prog, box, geom = (ragged(k) for k in (300, 70, 9, 5, 5))
    source = ragged(60)

    def words(size: int) -> np.ndarray:
        return rng.integers(0, 1 << 63, size).astype(np.uint64) * np.uint64(2)

    return QueryRows(
        kind=np.ones(n, np.uint8), lsn=np.zeros(n, np.int64), handle=np.zeros(n, np.int64),
        session=rng.integers(0, 1 << 62, n) >> rng.integers(0, 62, n),
        id_off=id, id=rng.integers(0, 256, id[-1]).astype(np.uint8),
        form=rng.integers(0, 4, n).astype(np.uint8),
        post=np.right_shift(words(n), rng.integers(0, 64, n).astype(np.uint64)),
        term_off=term, term=words(term[-1]),
        prog_off=prog, prog=rng.integers(-2, 64, prog[-1]).astype(np.int16),
        box_off=box, box=words(box[-1]).view(np.float64),
        shape=rng.integers(0, 4, n).astype(np.uint8),
        geom_off=geom, geom=words(geom[-1]).view(np.float64),
        source_off=source, source=rng.integers(0, 4, source[-1]).astype(np.uint8),
    )  # fmt: skip


@settings(deadline=None, max_examples=200)
@given(any_rows())
def test_whatever_the_columns_hold_is_read_back(rows: QueryRows) -> None:
    same_columns(packed_and_back(rows), rows)


def test_ids_are_found_in_packed_rows() -> None:
    names = ["a", "", "x" * 200]
    rows = query_rows([insert(name) for name in names], 1)
    packed = PackedRows.pack(rows, np.arange(3))
    begin, end = np.empty(3, np.int64), np.empty(3, np.int64)
    row_kernels.find_ids(packed.data, packed.off[:-1], begin, end)
    ids = [packed.data[a:b].tobytes().decode() for a, b in zip(begin, end, strict=True)]
    assert ids == names


def test_an_unknown_form_is_refused() -> None:
    analyzer = Analyzer(Analysis(salt=1))
    text = strings_to_column(["rain"])
    compiled = compile_column(*text, analyzer, Frequencies.of({}, analyzer))
    good = build_rows(strings_to_column(["a"]), compiled, [World()])
    with pytest.raises(ValueError, match="row 0"):
        PackedRows.pack(good.replace(form=np.array([4], np.uint8)), np.arange(1))
