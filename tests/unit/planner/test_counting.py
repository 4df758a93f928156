"""The counts of one batch against counting row by row."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ps2stream.errors import InvalidArgument
from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.planner import counting
from ps2stream.planner.sample import posts, summed
from ps2stream.planner.statistics import TOP_TERM
from ps2stream.planner.updates import UPDATES, standing
from ps2stream.space.grid import Grid
from ps2stream.v1.object_pb2 import Attributes, AttributeValue
from tests.support.samples import batch, some_sample

ANALYZER = Analyzer(Analysis(0))
COUNTS = {"flood": 9, "river": 2, "storm": 4}
KNOWN = Frequencies.of(COUNTS, ANALYZER)
GRID = Grid(5, 4, 16)  # cells of 11.25 degrees


def queries(rows: list[dict[str, Any]]) -> Any:
    return standing(pa.Table.from_batches([batch(rows)], UPDATES))


def query(id: str, expression: str, rect: list[float] | None = None, **more: Any) -> dict[str, Any]:
    region = {"region": {"rect": rect}} if rect else {}
    return {"id": id, "expression": expression, **region, **more}


def unit_counts(table: Any) -> dict[tuple[int, str], tuple[int, int, int]]:
    assert table.schema == counting.POSTINGS
    rows = [tuple(row.values()) for row in table.to_pylist()]
    assert len({row[:2] for row in rows}) == len(rows)
    return {row[:2]: row[2:] for row in rows}


# --- objects ----------------------------------------------------------------------------


def test_a_term_counts_once_an_object() -> None:
    objects, _ = some_sample(3)
    found = counting.object_terms(objects, ANALYZER)
    assert found.schema == counting.TERMS
    texts = objects["text"].to_pylist()
    want = Counter(term for text in texts for term in set(ANALYZER.tokens(text)))
    assert dict(zip(*found.to_pydict().values(), strict=True)) == want


def test_values_that_no_expression_can_say_are_not_counted() -> None:
    values = [
        AttributeValue(number=float("inf")), AttributeValue(number=float("-inf")),
        AttributeValue(time_ms=253_402_300_800_000), AttributeValue(time_ms=-1),
        AttributeValue(number=-0.0), AttributeValue(integer=2**53 + 1),
    ]  # fmt: skip
    held = [Attributes(values={"a": value}).SerializeToString() for value in values]
    zeros = np.zeros(len(held))
    objects = posts(zeros, zeros, [""] * len(held), attributes=held)
    found = counting.object_terms(objects, ANALYZER)
    assert dict(zip(*found.to_pydict().values(), strict=True)) == {
        "a EXISTS": 6, "a = 1969-12-31T23:59:59.999Z": 1, "a = 0": 1, "a = 9007199254740993": 1,
    }  # fmt: skip


def test_no_objects_have_no_terms() -> None:
    nothing = posts(np.zeros(0), np.zeros(0), [])
    assert counting.object_terms(nothing, ANALYZER).num_rows == 0


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_a_slice_of_a_column_is_ragged_as_the_column_of_its_rows(kind: Any) -> None:
    words = ["", "flood", "ü", "a river"]
    chunks = pa.chunked_array([pa.array(words[:2], kind), pa.array(words[2:], kind)])
    for column, want in ((chunks, words), (pa.array(words, kind)[1:3], words[1:3])):
        off, data = counting.ragged(column)
        parts = [bytes(data[a:b]).decode() for a, b in itertools.pairwise(off.tolist())]
        assert parts == want
    off, _ = counting.ragged(pa.array([], kind))
    assert off.tolist() == [0]


# --- the sides of queries, and the grid ---------------------------------------------------


def test_sides_are_counted_in_sixteenths_of_a_doubling() -> None:
    found = counting.sides(
        queries(
            [
                query("a", "x", [0, 0, 2, 1]),
                query("b", "x", [5, 5, 7, 9]),
                query("c", "x", [179, 0, -178, 2]),  # two boxes of 1 and 2 degrees
                query("everywhere", "x"),
            ]
        )
    )
    rows = sorted(tuple(row.values()) for row in found.to_pylist())
    three = round(16 * np.log2(3))
    assert rows == [(0, 16, 2), (0, three, 1), (1, 0, 1), (1, 16, 1), (1, 32, 1)]


@pytest.mark.parametrize("seed", range(4))
def test_the_grid_is_that_of_the_median_box(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sides = 2.0 ** rng.integers(-5, 6, (2, 41))
    rows = [query(str(i), "x", [0, 0, w, h]) for i, (w, h) in enumerate(sides.T.tolist())]
    table = queries(rows)
    parts = [counting.sides(table.slice(at, 10)) for at in range(0, 41, 10)]
    found = summed(parts, counting.SIDES, ["axis", "side"], ("queries",))
    assert counting.grid_of(found) == Grid.for_queries(*np.median(sides, axis=1).tolist())


def test_without_sides_the_grid_is_the_default() -> None:
    assert counting.grid_of(counting.sides(queries([query("a", "x")]))) == Grid()


# --- postings ---------------------------------------------------------------------------


def test_a_query_is_posted_under_its_rarest_terms_in_every_cell() -> None:
    found = counting.postings(
        queries(
            [
                query("and", "flood AND river", [1, 1, 12, 2], op="insert", time=1),
                query("or", "flood OR storm", [1, 1, 2, 2]),
                query("gone", "river", [1, 1, 2, 2]),
                {"id": "gone", "op": "delete", "time": 2},
            ]
        ),
        ANALYZER, KNOWN, GRID,
    )  # fmt: skip
    here, east = GRID.cells(np.array([1.0, 12.0]), np.array([1.0, 1.0]), 0).tolist()
    assert unit_counts(found) == {
        (here, "river"): (1, 1, 1),
        (east, "river"): (1, 1, 0),
        (here, "flood"): (1, 0, 0),
        (here, "storm"): (1, 0, 0),
    }


def test_queries_without_words_are_posted_under_the_top_term() -> None:
    found = counting.postings(queries([query("a", "", [1, 1, 2, 2])]), ANALYZER, KNOWN, GRID)
    [(_, term)] = unit_counts(found)
    assert term == TOP_TERM


def test_queries_of_coarser_levels_are_one_row() -> None:
    rows = [query("wide", "flood", [-90, -80, 90, 80]), query("world", "river")]
    rows += [query("here", "flood", [1, 1, 2, 2])]
    found = unit_counts(counting.postings(queries(rows), ANALYZER, KNOWN, GRID))
    assert found.pop((counting.COARSE, TOP_TERM)) == (2, 0, 0)
    assert [*found.values()] == [(1, 0, 0)]


def test_the_query_of_a_bad_expression_is_named() -> None:
    table = queries([query("fine", "a"), query("worse", "a AND")])
    with pytest.raises(InvalidArgument, match=r"query 'worse' expression: column 6"):
        counting.postings(table, ANALYZER, KNOWN, GRID)


def test_the_boxes_of_a_slice_begin_at_zero() -> None:
    table = queries([query("a", "x", [0, 1, 2, 3]), query("b", "x", [179, 0, -178, 2])])
    off, box = counting.boxes(table)
    assert off.tolist() == [0, 4, 12]
    for later in (table.slice(1), table.combine_chunks().to_batches()[0].slice(1)):
        later_off, later_box = counting.boxes(later)
        assert later_off.tolist() == [0, 8]
        assert later_box.tolist() == box[4:].tolist()


@pytest.mark.parametrize("ordered", [[], [5], [1, 4, 4, 9]])
def test_values_are_found_where_they_are(ordered: list[int]) -> None:
    wanted = np.arange(11)
    at, held = counting.find(np.array(ordered, np.int64), wanted)
    assert held.tolist() == [value in ordered for value in wanted.tolist()]
    for value in wanted[held].tolist():
        assert ordered[at[value]] == value
