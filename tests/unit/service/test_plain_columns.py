"""Arrow streams that are read in place, against pyarrow."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.errors import InvalidArgument
from ps2stream.protocol.arrow_ipc import to_ipc
from ps2stream.protocol.frame import column_to_strings
from ps2stream.service import arrow, plain_columns, query_columns
from ps2stream.service.objects import COLUMNS, REQUIRED, read_objects
from ps2stream.service.plain_columns import PlainColumnReader, PlainColumns
from ps2stream.space.regions import RECT_FIELDS
from ps2stream.v1 import object_pb2

TIMES = pa.timestamp("ms")


def make_batch(rows: int = 3, **others: Any) -> pa.RecordBatch:
    number = np.arange(rows, dtype=np.float64)
    texts = [f"caf\u00e9 {i}" for i in range(rows)]
    return pa.RecordBatch.from_pydict({"lon": number, "lat": -number, "text": texts} | others)


def read(data: bytes) -> PlainColumns | None:
    return PlainColumnReader(COLUMNS, REQUIRED).read(data)


def check_equal(found: PlainColumns, batch: pa.RecordBatch) -> None:
    """Compares with what pyarrow reads."""
    assert found.rows == batch.num_rows
    assert found.numbers.keys() | found.texts.keys() == set(batch.schema.names)
    for name, column in found.numbers.items():
        expected = batch.column(name)
        if name == "time":
            expected = expected.cast(pa.int64())
        assert column.tolist() == expected.to_pylist()
    for name, text in found.texts.items():
        assert column_to_strings(*text) == batch.column(name).to_pylist()


@settings(max_examples=50)
@given(
    rows=st.lists(
        st.tuples(
            st.floats(allow_nan=False), st.text(max_size=5), st.integers(-(2**63), 2**63 - 1)
        ),
        min_size=1,
        max_size=9,
    ),
    of_texts=st.sampled_from([pa.string(), pa.large_string()]),
    of_times=st.sampled_from([None, pa.int64(), TIMES, pa.timestamp("ms", "UTC")]),
    has_ids=st.booleans(),
    skipped=st.integers(0, 8),
)
def test_plain_columns_are_those_of_pyarrow(
    rows: list[tuple[float, str, int]],
    of_texts: pa.DataType,
    of_times: pa.DataType | None,
    has_ids: bool,
    skipped: int,
) -> None:
    numbers, texts, times = map(list, zip(*rows, strict=True))
    columns = {"lat": pa.array(numbers), "text": pa.array(texts, of_texts), "lon": numbers}
    if has_ids:
        columns["id"] = pa.array(texts[::-1], of_texts)
    if of_times is not None:
        columns["time"] = pa.array(times, of_times)
    batch = pa.RecordBatch.from_pydict(columns).slice(min(skipped, len(rows) - 1))
    found = read(to_ipc(batch))
    assert found is not None
    check_equal(found, batch)


def test_columns_are_views_of_the_stream() -> None:
    data = to_ipc(make_batch())
    found = read(data)
    assert found is not None
    whole = np.frombuffer(data, np.uint8)
    assert all(np.shares_memory(column, whole) for column in found.numbers.values())
    assert np.shares_memory(found.texts["text"][1], whole)


def sent(batch: pa.RecordBatch, *, times: int = 1, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for _ in range(times):
            writer.write_batch(batch)
    found: bytes = sink.getvalue().to_pybytes()
    return found


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 7,
        b"\xff" * 64,
        to_ipc(make_batch())[:-400],
        to_ipc(make_batch(0)),
        to_ipc(make_batch(severity=[1, 2, 3])),
        to_ipc(make_batch(text=["a", None, "b"])),
        to_ipc(make_batch(lon=[1.0, None, 2.0])),
        to_ipc(make_batch(lon=[1, 2, 3])),
        to_ipc(make_batch(time=pa.array([1, 2, 3], pa.timestamp("us")))),
        to_ipc(make_batch(text=pa.array(["a", "b", "a"]).dictionary_encode())),
        to_ipc(make_batch().select(["lon", "lat"])),
        sent(make_batch(), times=2),
        sent(make_batch(), times=0),
        sent(make_batch(64), compression="lz4"),
        sent(make_batch(), metadata_version=pa.ipc.MetadataVersion.V4),
        sent(make_batch(), use_legacy_format=True),
        to_ipc(make_batch()) + to_ipc(make_batch()),
    ],
)
def test_all_others_are_left_to_pyarrow(data: bytes) -> None:
    assert read(data) is None


def test_numbers_in_another_order_of_bytes_are_left_to_pyarrow() -> None:
    data = to_ipc(make_batch())
    (root,) = struct.unpack_from("<I", data, 8)
    slots = plain_columns._find_slots(data, 8 + root, 4)
    table = slots[2] + struct.unpack_from("<I", data, slots[2])[0]
    (back,) = struct.unpack_from("<i", data, table)
    order, fields = plain_columns._find_slots(data, table, 2)
    assert not order  # it is absent, which means the usual order
    swapped = bytearray(data)
    struct.pack_into("<H", swapped, table - back + 4, fields - table)  # what lies there is not 0
    assert read(data) is not None
    assert read(bytes(swapped)) is None


def open_with_pyarrow(data: bytes) -> pa.RecordBatch | None:
    """Returns the record batch; None if the heads are damaged, which pyarrow verifies whole: of
    them, only what is needed is looked at."""
    try:
        return arrow.open_batch(data, COLUMNS, REQUIRED)
    except InvalidArgument as error:
        if "flatbuffers" in str(error):
            return None
        raise


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_what_is_read_of_a_damaged_stream_is_what_pyarrow_reads(data: st.DataObject) -> None:
    good = sent(make_batch(id=["a", "b", "\u00fc"]))
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(good) - 1))
        damaged[at] = data.draw(st.sampled_from([0, 1, 8, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    if (found := read(bytes(damaged))) is None:
        return
    if (batch := open_with_pyarrow(bytes(damaged))) is None:
        return
    assert found.rows == batch.num_rows
    for name, text in found.texts.items():
        assert column_to_strings(*text) == column_to_strings(*arrow.strings(batch, name))
    for name, column in found.numbers.items():
        assert column.tobytes() == np.asarray(arrow.view_values(batch.column(name))).tobytes()


def test_schemas_are_remembered_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = PlainColumnReader(COLUMNS, REQUIRED)
    schemas: list[Any] = []
    read_schema = pa.ipc.read_schema

    def read_and_count(data: Any) -> Any:
        schemas.append(data)
        return read_schema(data)

    monkeypatch.setattr(pa.ipc, "read_schema", read_and_count)
    for _ in range(3):
        assert reader.read(to_ipc(make_batch())) is not None
    assert len(schemas) == 1
    for i in range(2 * plain_columns.SCHEMAS):
        reader.read(to_ipc(make_batch().replace_schema_metadata({"number": str(i)})))
        assert len(reader._layouts) <= plain_columns.SCHEMAS
    long = make_batch().replace_schema_metadata({"long": "x" * plain_columns.SCHEMA_BYTES})
    assert reader.read(to_ipc(long)) is None


def test_objects_and_queries_are_the_same_through_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = object_pb2.ObjectBatch(arrow=to_ipc(make_batch(id=["a", "", "b"])))
    sides = dict(zip(RECT_FIELDS, ([1.0], [2.0], [3.0], [4.0]), strict=True))
    queries = to_ipc(pa.RecordBatch.from_pydict({"id": ["q"], "expression": ["caf\u00e9"]} | sides))

    def read_both() -> list[Any]:
        found, inserts = read_objects(objects, 7), query_columns._read_arrow(queries, "s")
        rects = [getattr(inserts.regions, name).tolist() for name in RECT_FIELDS]
        texts = (found.id_off, found.id), (found.text_off, found.text)
        columns = [column_to_strings(*c) for c in (*texts, inserts.id, inserts.expression)]
        numbers = found.time.tolist(), found.lon.tolist(), found.lat.tolist()
        return [*columns, *numbers, rects, inserts.sessions, inserts.refused]

    seen: list[PlainColumns | None] = []
    read_plainly = PlainColumnReader.read

    def read_and_note(reader: PlainColumnReader, data: bytes) -> PlainColumns | None:
        seen.append(read_plainly(reader, data))
        return seen[-1]

    monkeypatch.setattr(PlainColumnReader, "read", read_and_note)
    plain = read_both()
    assert len(seen) == 2
    assert None not in seen
    monkeypatch.setattr(PlainColumnReader, "read", lambda *_: None)
    assert plain == read_both()
