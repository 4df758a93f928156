"""Rows as posts: the bad ones apart, and chunks that are the same however the rows arrive."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.connectors.pipeline_rows import (
    ROW_BYTES,
    RowConverter,
    cut_chunks,
    measure_rows,
    read_values,
)
from ps2stream.posts.members import AttributeChoice
from ps2stream.protocol.arrow_ipc import to_ipc

KINDS = {
    "id": pa.string(), "lon": pa.float64(), "at": pa.timestamp("ms", "UTC"), "yes": pa.bool_(),
    "payload": pa.binary(), "count": pa.int64(),
}  # fmt: skip
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.none() | st.text(max_size=9),
            "lon": st.none() | st.floats(-180, 180),
            "at": st.none() | st.integers(0, 10**12),
            "yes": st.none() | st.booleans(),
            "payload": st.none() | st.binary(max_size=40),
            "count": st.none() | st.integers(-5, 5),
        }
    ),
    max_size=40,
)


def batch_of(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    columns = {n: pa.array([row[n] for row in rows], kind) for n, kind in KINDS.items()}
    return pa.RecordBatch.from_pydict(columns)


def cut_naively(sizes: list[int], rows: int, size: int) -> list[int]:
    """Lengths of chunks, a row at a time."""
    out: list[int] = []
    held = count = 0
    for each in sizes:
        if count and (count == rows or held + each > size):
            out.append(count)
            held = count = 0
        held, count = held + each, count + 1
    return out + [count] * (count > 0)


@settings(max_examples=60, deadline=None)
@given(
    rows=ROWS,
    cuts=st.lists(st.integers(0, 40), max_size=6),
    most=st.integers(1, 12),
    size=st.integers(1, 900),
)
def test_chunks_are_the_same_bytes_however_the_rows_arrive(
    rows: list[dict[str, Any]], cuts: list[int], most: int, size: int
) -> None:
    whole = batch_of(rows)
    places = sorted({0, len(rows), *(min(c, len(rows)) for c in cuts)})
    # Parts of their own memory, and slices of one.
    apart = [batch_of(rows[a:b]) for a, b in pairwise(places)]
    slices = [whole.slice(a, b - a) for a, b in pairwise(places)]
    found = list(cut_chunks([whole], most, size))
    sizes = measure_rows(whole).tolist() if rows else []
    assert [len(c) for c in found] == cut_naively(sizes, most, size)
    assert pa.Table.from_batches(found, whole.schema).equals(pa.Table.from_batches([whole]))
    expected = [to_ipc(c) for c in found]
    assert [to_ipc(c) for c in cut_chunks(apart, most, size)] == expected
    assert [to_ipc(c) for c in cut_chunks(slices, most, size)] == expected


def test_what_lies_behind_nulls_is_not_sent() -> None:
    def make(behind: float) -> pa.RecordBatch:
        values = pa.array(np.array([1.0, behind, 3.0]), mask=np.array([False, True, False]))
        hidden = values.buffers()
        column = pa.Array.from_buffers(
            pa.float64(), 3, [hidden[0], pa.py_buffer(np.array([1.0, behind, 3.0]))]
        )
        return pa.RecordBatch.from_pydict({"a": column})

    one, other = (list(cut_chunks([make(x)])) for x in (7.0, 8.0))
    assert to_ipc(one[0]) == to_ipc(other[0])


def test_rows_count_their_texts() -> None:
    rows = batch_of([dict.fromkeys(KINDS) | {"id": "äb", "payload": b"xyz"}, dict.fromkeys(KINDS)])
    assert measure_rows(rows).tolist() == [ROW_BYTES + 3 + 3, ROW_BYTES]


def posts(**columns: Any) -> pa.RecordBatch:
    size = len(next(iter(columns.values())))
    rest = {"lon": [1.0] * size, "lat": [2.0] * size, "text": ["a"] * size}
    return pa.RecordBatch.from_pydict({n: pa.array(v) for n, v in (rest | columns).items()})


def converter(attributes: dict[str, str] | None = None, spec: str | None = None) -> RowConverter:
    return RowConverter(attributes or {}, AttributeChoice(spec), "feed/3/1/")


@pytest.mark.parametrize("seed", range(3))
def test_bad_rows_are_found_among_good_ones(seed: int) -> None:
    """Each row is judged as if it were alone."""
    rng = np.random.default_rng(seed)
    size = 300
    lon = np.where(rng.random(size) < 0.04, 181.0, 1.0)
    text = [None if x < 0.03 else "t" * 70_000 if x < 0.05 else "flood" for x in rng.random(size)]
    part = posts(lon=lon, text=text)
    found, wrong = converter().convert(part, 1000)
    alone = [converter().convert(part.slice(i, 1), 1000 + i) for i in range(size)]
    assert wrong == [bad for _, found in alone for bad in found]
    assert found.to_pylist() == [row for good, _ in alone for row in good.to_pylist()]
    expected = [1000 + i for i in range(size) if lon[i] > 180 or text[i] != "flood"]
    assert [bad.row for bad in wrong] == expected
    assert expected
    assert f"row {expected[0]}" in wrong[0].reason


def test_ids_are_places_where_rows_have_none() -> None:
    found, _ = converter().convert(posts(lon=[1.0, 999.0, 3.0]), 5)
    assert found.column("id").to_pylist() == ["feed/3/1/5", "feed/3/1/7"]


def test_texts_that_are_no_utf8_are_bad_rows() -> None:
    offsets, data = np.array([0, 2, 4, 6], np.int32), b"ab\xff\xfecd"
    text = pa.Array.from_buffers(pa.string(), 3, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    part = posts(lon=[1.0, 2.0, 3.0])
    part = part.set_column(part.schema.get_field_index("text"), "text", text)
    found, wrong = converter().convert(part, 0)
    assert found.column("text").to_pylist() == ["ab", "cd"]
    assert [bad.row for bad in wrong] == [1]
    assert json.dumps(wrong[0].values)
    assert wrong[0].values["text"] == "\\xff\\xfe"


def test_numbers_of_texts_are_of_one_type_whatever_they_look_like() -> None:
    with_types = converter({"mag": "number"}, "mag:number")
    whole, _ = with_types.convert(posts(mag=["1", "2"]), 0)
    broken, wrong = with_types.convert(posts(mag=["1.5", "x"]), 0)
    assert whole.schema == broken.schema
    assert broken.column("mag").to_pylist() == [1.5]
    assert [bad.row for bad in wrong] == [1]


def test_a_batch_without_a_good_row_has_its_columns() -> None:
    found, wrong = converter().convert(posts(lon=[999.0]), 0)
    assert (len(found), len(wrong)) == (0, 1)
    assert found.schema.names == ["id", "time", "lon", "lat", "text"]


def test_values_are_json() -> None:
    part = posts(lon=[float("nan")], at=pa.array([0], pa.timestamp("ms", "UTC")), data=[b"\x00"])
    values = read_values(part)
    assert json.loads(json.dumps(values, allow_nan=False)) == {
        "lon": "nan", "lat": 2.0, "text": "a", "at": "1970-01-01T00:00:00+00:00", "data": "\x00"
    }  # fmt: skip
