"""Query rows: columns, sources, and what is refused."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.errors import InvalidArgument
from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.language.expression import CompiledColumn, compile_column
from ps2stream.language.query_rows import (
    RectColumns,
    RowProblem,
    build_rows,
    canonical_sources,
    check_rows,
    delete_rows,
    describe,
)
from ps2stream.protocol.frame import column_to_strings, strings_to_column
from ps2stream.protocol.rows import QueryRows, RegionShape, UpdateKind
from ps2stream.space.region_rows import boxes_of, decode_region, geom_of
from ps2stream.space.regions import Circle, Polygon, Rect, Region, World
from tests.support.regions import rects, regions

ANALYZER = Analyzer(Analysis(salt=7))
NONE = Frequencies.of({}, ANALYZER)


def compiled(*expressions: str) -> CompiledColumn:
    return compile_column(*strings_to_column(expressions), ANALYZER, NONE)


def sources(rows: QueryRows) -> list[bytes]:
    at = rows.source_off.tolist()
    return [rows.source[a:b].tobytes() for a, b in pairwise(at)]


@settings(deadline=None)
@given(st.lists(regions, max_size=6))
def test_rows_say_what_was_asked(many: list[Region]) -> None:
    n = len(many)
    expressions = ["flood AND storm", "río OR 洪水", "a"] * n
    names = [f"qé{i}" for i in range(n)]
    rows = build_rows(strings_to_column(names), compiled(*expressions[:n]), many)
    rows = QueryRows.decode(rows.encode())
    assert rows.kind.tolist() == [UpdateKind.INSERT] * n
    assert column_to_strings(rows.id_off, rows.id) == names
    assert not rows.lsn.any()
    expected = compiled(*expressions[:n])
    texts = column_to_strings(expected.canonical_off, expected.canonical)
    for i, (region, source) in enumerate(zip(many, sources(rows), strict=True)):
        geom = rows.geom[rows.geom_off[i] : rows.geom_off[i + 1]]
        box = rows.box[rows.box_off[i] : rows.box_off[i + 1]]
        assert decode_region(rows.shape[i], geom) == region
        assert box.tolist() == boxes_of(region).ravel().tolist()
        assert describe(source) == (texts[i], region.to_json(), texts[i], 0)


@settings(deadline=None)
@given(st.lists(rects() | st.none(), max_size=6))
def test_columns_build_the_rows_that_regions_build(many: list[Rect | None]) -> None:
    n = len(many)
    sides = np.array([geom_of(r) if r else [math.nan] * 4 for r in many]).reshape(n, 4)
    world = np.array([r is None for r in many], np.bool_)
    ids, terms = strings_to_column([f"q{i}" for i in range(n)]), compiled(*["a AND b"] * n)
    columns = RectColumns(sides[:, 0], sides[:, 1], sides[:, 2], sides[:, 3], world)
    assert len(columns) == n
    fast = build_rows(ids, terms, columns)
    slow = build_rows(ids, terms, [r or World() for r in many])
    assert fast.encode() == slow.encode()
    if not world.any():
        assert build_rows(ids, terms, RectColumns(*sides.T)).encode() == slow.encode()


def test_equal_queries_have_equal_sources() -> None:
    ids = strings_to_column(["a", "b"])
    a, b = sources(build_rows(ids, compiled("x y", "y AND x"), [Rect(-0.0, 0, 1, 1)] * 2))
    assert a == b
    triangle = [(0, 0), (1, 0), (1, 1)]
    turned = [Polygon(shapely.Polygon(triangle[k:] + triangle[:k])) for k in range(2)]
    a, b = sources(build_rows(ids, compiled("x", "x"), turned))
    assert a == b


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["b a", "a AND b", "río", "a\0b", "A", " a"]), regions)))
def test_what_was_typed_is_kept_beside_the_canonical_query(many: list[tuple[str, Region]]) -> None:
    typed, where = [text for text, _ in many], [region for _, region in many]
    ids, terms = strings_to_column([f"q{i}" for i in range(len(many))]), compiled(*typed)
    texts = strings_to_column(["before", *typed])  # a column need not begin at 0
    column = texts[0][1:], texts[1]
    rows, bare = build_rows(ids, terms, where, column), build_rows(ids, terms, where)
    assert [describe(source)[0] for source in sources(rows)] == typed
    at = np.arange(len(many))[::-1]
    assert canonical_sources(rows, at) == sources(bare)[::-1] == canonical_sources(bare, at)
    for text, kept, alone in zip(typed, sources(rows), sources(bare), strict=True):
        same = alone.endswith(text.encode())
        assert len(kept) - len(alone) == (0 if same else 1 + len(text.encode()))


def test_a_query_without_keywords_has_a_region() -> None:
    rows = build_rows(strings_to_column(["a"]), compiled(""), [Circle(0, 0, 1)])
    assert rows.shape.tolist() == [RegionShape.CIRCLE]
    assert describe(sources(rows)[0])[0] == ""


def test_every_bad_field_is_named() -> None:
    ids = strings_to_column(["", "x" * 129, "é" * 64, "d", "e", b"\xff", "g"])
    terms = compiled("a", "a", "a", "(", "", "a", "a")
    nan = math.nan
    columns = RectColumns(
        np.array([0.0, 0, 0, 0, nan, 0, nan]),
        np.array([0.0, 0, 5, 0, nan, 0, -99]),
        np.array([0.0, 0, 0, 0, nan, 0, 0]),
        np.array([0.0, 0, 1, 0, nan, 0, 0]),
        np.array([0, 0, 0, 0, 1, 0, 0], np.bool_),
    )
    problems = check_rows(ids, terms, columns)
    assert [(p.row, p.field) for p in problems] == [
        (0, "id"),
        (1, "id"),
        (2, "region.lat_min"),
        (3, "expression"),
        (4, "expression"),
        (5, "id"),
        (6, "region.lon_min"),
        (6, "region.lat_min"),
    ]
    assert problems[1] == RowProblem(1, "id", "129 bytes are not in 1..128 (limit id_bytes)")
    with pytest.raises(InvalidArgument) as caught:
        build_rows(ids, terms, columns)
    assert [v.field for v in caught.value.violations] == [
        f"queries[{p.row}].{p.field}" for p in problems
    ]


def test_a_bad_expression_is_one_problem_even_without_a_region() -> None:
    problems = check_rows(strings_to_column(["a"]), compiled("("), [World()])
    assert [(p.row, p.field) for p in problems] == [(0, "expression")]
    assert "column 2" in problems[0].description


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="2 ids, 1 expressions, 1 regions"):
        build_rows(strings_to_column(["a", "b"]), compiled("a"), [World()])


def test_deletes() -> None:
    rows = QueryRows.decode(delete_rows(strings_to_column(["a", "bé"])).encode())
    assert rows.kind.tolist() == [UpdateKind.DELETE] * 2
    assert column_to_strings(rows.id_off, rows.id) == ["a", "bé"]
    assert rows.take(np.array([1])).encode() == delete_rows(strings_to_column(["bé"])).encode()
    assert len(QueryRows.concat([rows, rows])) == 4
    assert len(delete_rows(strings_to_column([]))) == 0
    with pytest.raises(InvalidArgument, match=r"ids\[0\]: 0 bytes"):
        delete_rows(strings_to_column([""]))


def test_offsets_may_begin_anywhere() -> None:
    off, data = strings_to_column(["a", "b", "c"])
    rows = build_rows((off[1:], data), compiled("x", "y"), [World()] * 2)
    assert column_to_strings(rows.id_off, rows.id) == ["b", "c"]
