"""Rows of objects with and without an opaque column, against lists; the bytes of queries' rows."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ps2stream.protocol.frame import column_to_strings, strings_to_column
from ps2stream.protocol.rows import ObjectRows, no_offsets, take_optional
from ps2stream.routing.plan import built_in_plan
from tests.support.migrating import ANALYSIS, GRID, all_rows, some_queries

Object = tuple[str, int, float, float, str, list[int], str]


def make_rows(n: int, rng: random.Random, has_opaque: bool) -> tuple[ObjectRows, list[Object]]:
    listed: list[Object] = [
        (
            f"o{rng.randrange(99)}", rng.randrange(1 << 40), rng.random(), rng.random(),
            "é" * rng.randint(0, 3), [rng.randrange(1 << 63) for _ in range(rng.randint(0, 3))],
            rng.choice(["", "x", "payload"]) if has_opaque else "",
        )
        for _ in range(n)
    ]  # fmt: skip
    ids, time, lon, lat, texts, terms, opaque = zip(*listed, strict=True)
    term_off = np.cumsum([0, *map(len, terms)])
    rows = ObjectRows(
        *strings_to_column(ids), np.array(time), np.array(lon), np.array(lat),
        *strings_to_column(texts), term_off, np.array([t for own in terms for t in own], np.uint64),
        *(strings_to_column(opaque) if has_opaque else ()),
    )  # fmt: skip
    return rows, listed


def list_objects(rows: ObjectRows) -> list[Object]:
    n = len(rows)
    terms = [
        rows.term[a:b].tolist() for a, b in zip(rows.term_off, rows.term_off[1:], strict=False)
    ]
    opaque = column_to_strings(rows.opaque_off, rows.opaque) if len(rows.opaque_off) else [""] * n
    columns = (
        column_to_strings(rows.id_off, rows.id), rows.time.tolist(), rows.lon.tolist(),
        rows.lat.tolist(), column_to_strings(rows.text_off, rows.text), terms, opaque,
    )  # fmt: skip
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_taken_with_what_is_opaque(seed: int) -> None:
    rng = random.Random(seed)
    rows, listed = make_rows(rng.randint(1, 9), rng, has_opaque=seed % 2 == 0)
    wanted = [rng.randrange(len(listed)) for _ in range(rng.randint(0, 12))]
    taken = rows.take(np.array(wanted, np.int64))
    assert list_objects(ObjectRows.decode(taken.encode())) == [listed[i] for i in wanted]
    assert (len(taken.opaque_off) == 0) == (seed % 2 == 1)


@pytest.mark.parametrize("seed", range(40))
def test_rows_with_and_without_what_is_opaque_are_joined(seed: int) -> None:
    rng = random.Random(seed)
    some = [make_rows(rng.randint(1, 5), rng, rng.random() < 0.5) for _ in range(rng.randint(1, 5))]
    joined = ObjectRows.concat([rows for rows, _ in some])
    assert list_objects(joined) == [each for _, listed in some for each in listed]
    assert len(joined.opaque_off) in (0, len(joined) + 1)


def test_a_column_that_nobody_has_stays_empty() -> None:
    off, data = take_optional(no_offsets(), np.zeros(0, np.uint8), np.array([3, 1]))
    assert (len(off), len(data)) == (0, 0)
    rng = random.Random(1)
    plain = [make_rows(3, rng, has_opaque=False)[0] for _ in range(2)]
    assert len(ObjectRows.concat(plain).opaque_off) == 0


def test_bytes_by_row_are_those_of_all_columns_without_the_first_offsets() -> None:
    rows = all_rows(some_queries(2, 30), built_in_plan(ANALYSIS, GRID, 1))
    for some in (np.arange(30), np.arange(0), np.array([7, 3])):
        taken = rows.take(some)
        assert taken.measure_rows().tolist() == rows.measure_rows()[some].tolist()
        assert taken.measure_rows().sum() == taken.nbytes - 6 * 8


def test_a_slice_of_queries_equals_what_is_taken() -> None:
    rows = all_rows(some_queries(3, 30), built_in_plan(ANALYSIS, GRID, 1))
    for first, end in [(0, 0), (0, 30), (7, 8), (11, 29), (30, 30)]:
        taken, sliced = rows.take(np.arange(first, end)), rows.slice(first, end)
        assert sliced.encode() == taken.encode()
        assert len(sliced) == end - first
