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
from ps2stream.protocol.frame import strings_to_column, take_ragged
from ps2stream.protocol.rows import QueryRows
from ps2stream.sequencer import row_kernels
from ps2stream.sequencer.chunk_kernels import FIELDS
from ps2stream.sequencer.packed_rows import QueryChunk, encode_rows, list_columns
from ps2stream.sequencer.table_kernels import NONE
from ps2stream.space.regions import Circle, Polygon, Rect, Region, World
from tests.support.sequencing import inserts, without_dead_bytes
from tests.support.updates import ids_of, insert, query_rows

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


def packed(rows: QueryRows) -> QueryChunk:
    """A chunk of these rows, which get LSNs and handles from 1 on."""
    chunk = QueryChunk(0, 1)
    n = len(rows)
    assert chunk.append(*inserts(numbered(rows), np.arange(n)), n) == n
    return chunk


def numbered(rows: QueryRows) -> QueryRows:
    lsn = np.arange(1, len(rows) + 1)
    return rows.replace(lsn=lsn, handle=lsn)


def test_queries_of_every_kind_are_read_back() -> None:
    analyzer = Analyzer(Analysis(salt=1))
    texts = ["rain", "rain AND storm", "b OR a", "(a OR b) AND c", "a  b", "\u00fcber OR 1"]
    pairs = [(text, region) for text in texts for region in REGIONS]
    column = strings_to_column(text for text, _ in pairs)
    compiled = compile_column(*column, analyzer, Frequencies.of({}, analyzer))
    ids = strings_to_column(str(i) * (i % 40 + 1) for i in range(len(pairs)))
    rows = build_rows(ids, compiled, [region for _, region in pairs], column)
    rows = rows.replace(session=np.arange(len(pairs)) ** 5 * 1000)
    rows = numbered(rows)
    n = len(rows)
    chunk = packed(rows)
    same_columns(chunk.take(np.arange(n)), rows)
    order = np.random.default_rng(1).permutation(n)[:20]
    same_columns(chunk.take(order), rows.take(order))
    # As deletes, which have no sources, of packed rows and of columns in turn.
    kind = np.where(np.arange(n) % 3 > 0, 1, 2).astype(np.uint8)
    place = np.where(np.arange(n) % 2 > 0, np.arange(n), NONE)
    table = np.array([chunk.describe()])
    heads = kind, rows.lsn, rows.handle, rows.session
    mixed = encode_rows(table, place, list_columns(rows), np.arange(n), heads)
    sizes = np.diff(rows.source_off) * (kind == 1)
    _, source = take_ragged(rows.source_off, rows.source, np.flatnonzero(kind == 1))
    want = rows.replace(
        kind=kind, source_off=np.concatenate([[0], np.cumsum(sizes)]), source=source
    )
    assert mixed.tobytes() == want.encode()
    plain = rows.take(np.flatnonzero(rows.shape < 2))
    short = packed(plain)
    short.seal()
    assert short.nbytes < 0.6 * plain.nbytes


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
@given(any_rows(), st.data())
def test_whatever_the_columns_hold_is_read_back(rows: QueryRows, data: st.DataObject) -> None:
    rows = numbered(rows)
    chunk = packed(rows)
    n = len(rows)
    same_columns(chunk.take(np.arange(n)), rows)
    # Without the dead rows, which keep their places; and moved to another chunk, with others.
    alive = np.array([data.draw(st.booleans()) for _ in range(n)], np.bool_)
    chunk.mark_dead(np.flatnonzero(~alive))
    at = np.flatnonzero(alive)
    same_columns(without_dead_bytes(chunk).take(at), rows.take(at))
    other = packed(rows)
    fresh = QueryChunk(7, 1)
    fresh.move_live_rows([chunk, other])
    assert fresh.live.all()
    want = QueryRows.concat([rows.take(at), rows])
    same_columns(fresh.take(np.arange(len(want))), want)


def test_rectangles_are_read_back_however_near_their_sides_are() -> None:
    """East and north share from no bytes to all bytes with west and south."""
    rng = np.random.default_rng(3)
    near = rng.integers(0, 1 << 62, (2, 81), np.uint64)
    far = rng.integers(0, 1 << 62, (2, 81), np.uint64)
    shared = np.array([np.arange(81) // 9, np.arange(81) % 9])
    kept = np.array([(1 << (64 - 8 * n)) - 1 for n in range(9)], np.uint64)[shared]
    far = near & ~kept | far & kept
    side = np.stack([*near, *far], 1).ravel().view(np.float64)
    off = 4 * np.arange(82)
    rows = numbered(query_rows([insert(str(i)) for i in range(81)]))
    source = np.concatenate(
        [np.r_[np.uint8(1), side[4 * i : 4 * i + 4].view(np.uint8)] for i in range(81)]
    )
    rows = rows.replace(
        shape=np.ones(81, np.uint8), box_off=off, box=side, geom_off=off, geom=side,
        source_off=33 * np.arange(82), source=source,
    )  # fmt: skip
    chunk = packed(rows)
    same_columns(chunk.take(np.arange(81)), rows)


def test_rows_are_appended_as_far_as_there_is_room() -> None:
    rows = numbered(query_rows([insert(str(i)) for i in range(9)]))
    chunk = QueryChunk(0, 1)
    assert chunk.append(*inserts(rows, np.arange(9)), 4) == 4
    assert chunk.append(*inserts(rows, np.arange(4, 9)), 4) == 0
    assert ids_of(chunk.take(np.arange(4))) == ["0", "1", "2", "3"]


def test_an_unknown_form_is_refused() -> None:
    analyzer = Analyzer(Analysis(salt=1))
    text = strings_to_column(["rain"])
    compiled = compile_column(*text, analyzer, Frequencies.of({}, analyzer))
    good = build_rows(strings_to_column(["a"]), compiled, [World()])
    bad = list_columns(good.replace(form=np.array([4], np.uint8)))
    one = np.ones(1, np.int64)
    heads = good.kind, one, one, one
    with pytest.raises(ValueError, match="row 0"):
        encode_rows(np.zeros((0, FIELDS), np.int64), NONE * one, bad, 0 * one, heads)


@pytest.mark.parametrize(
    "sides", [(-180.0, -90.0, 0.1 + 0.2, 90.0), (1.5, 2.5, 1.5, 2.5), (0.1, 0.0, 0.1 + 1e-16, -0.0)]
)
def test_rectangles_come_back(sides: tuple[float, ...]) -> None:
    given = np.array(sides)
    room = np.zeros(64, np.uint8)
    end = row_kernels._put_rect(room, 3, given.view(np.uint8), 0)
    out = np.zeros(32, np.uint8)
    assert row_kernels.take_rect(room, 3, out, 0) == end
    assert out.tobytes() == given.tobytes()
