"""Attributes and payloads as they come in, as messages and as Arrow columns."""

from __future__ import annotations

import itertools
import random
import sys
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ps2stream.errors import Cancelled, InvalidArgument
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.limits import PAYLOAD_BYTES
from ps2stream.protocol.arrow_ipc import to_ipc
from ps2stream.protocol.frame import I64, U8
from ps2stream.protocol.opaque import split_opaque
from ps2stream.service.attribute_messages import encode_in_order
from ps2stream.service.objects import ObjectColumns, read_objects
from ps2stream.v1.object_pb2 import Attributes, AttributeValue, Object, ObjectBatch, Payload

NAN = float("nan")
PARTS = ["x", "e\u0301", "\u1100\u1161"]
E_ACUTE, E_COMBINED = "\u00e9", "e\u0301"


def value_of(value: Any) -> AttributeValue:
    match value:
        case bool():
            return AttributeValue(boolean=value)
        case int():
            return AttributeValue(integer=value)
        case float():
            return AttributeValue(number=value)
        case datetime():
            return AttributeValue(time_ms=round(value.timestamp() * 1000))
    return AttributeValue(text=value)


def make_object(values: dict[str, Any], payload: str | bytes | None = None) -> Object:
    made = Object(lon=0, lat=0, text="flood")
    if values:
        attributes = {name: value_of(value) for name, value in values.items()}
        made.attributes.CopyFrom(Attributes(values=attributes))
    if payload is not None:
        if isinstance(payload, str):
            made.payload.json = payload
        else:
            made.payload.bytes = payload
    return made


def read_rows(*objects: Object) -> ObjectColumns:
    return read_objects(ObjectBatch(objects=objects), 5)


def make_stream(columns: dict[str, Any]) -> bytes:
    n = len(next(iter(columns.values())))
    base = {"lon": [0.0] * n, "lat": [0.0] * n, "text": ["flood"] * n}
    return to_ipc(pa.RecordBatch.from_pydict(base | columns))


def read_table(**columns: Any) -> ObjectColumns:
    return read_objects(ObjectBatch(arrow=make_stream(columns)), 5)


def refusals(found: ObjectColumns) -> list[tuple[int, str, str]]:
    return [(r.row, r.field, r.description) for r in found.refusals()]


def cut(off: I64, data: U8) -> list[bytes]:
    return [data[a:b].tobytes() for a, b in itertools.pairwise(off.tolist())]


def contents(found: ObjectColumns) -> list[tuple[bytes, bytes]]:
    """The bytes of the attributes and the payload of each object."""
    both = split_opaque(found.opaque.off, found.opaque.data, len(found))
    attributes = cut(both.attributes_off, both.attributes)
    return list(zip(attributes, cut(both.payload_off, both.payload), strict=True))


def expect(*objects: Object) -> list[tuple[bytes, bytes]]:
    """The bytes of objects that are in normal form."""
    return [(encode_in_order(o.attributes), o.payload.SerializeToString()) for o in objects]


def test_objects_without_any_have_no_opaque_column() -> None:
    plain, empty = Object(lon=0, lat=0, text="flood"), Object(attributes=Attributes())
    for found in (
        read_rows(plain, plain),
        read_rows(empty),
        read_table(lon=[0.0, 1.0]),
        read_table(severity=pa.array([None], pa.int64()), payload=[None]),
    ):
        rows = found.analyse(Analyzer(Analysis(salt=0)))
        assert (len(rows.opaque_off), len(rows.opaque)) == (0, 0)


def test_both_are_in_the_rows_that_are_analysed() -> None:
    objects = [make_object({"a": 1}), make_object({}), make_object({"b": "x"}, b"\0\xff")]
    found = read_rows(*objects)
    assert contents(found) == expect(*objects)
    rows = found.analyse(Analyzer(Analysis(salt=0)))
    assert rows.opaque_off.tolist() == found.opaque.off.tolist()
    assert rows.opaque.tobytes() == found.opaque.data.tobytes()
    assert contents(found.take(np.array([2, 1]))) == expect(*objects[:0:-1])
    assert len(found.take(np.array([1])).opaque.off) == 0


def test_names_and_texts_come_in_normal_form() -> None:
    found = read_rows(make_object({"z": 1, E_COMBINED: E_COMBINED, "t": "", "u": "e"}))
    want = make_object({E_ACUTE: E_ACUTE, "t": "", "u": "e", "z": 1})
    assert contents(found) == expect(want)
    same = read_table(**{"u": ["e"], "z": [1], E_COMBINED: [E_COMBINED], "t": [""]})
    assert contents(same) == expect(want)


def test_payloads_are_not_changed() -> None:
    objects = [make_object({}, f'{{"b": 1, "a": "{E_COMBINED}"}} '), make_object({}, b"")]
    assert contents(read_rows(*objects)) == expect(*objects)


def test_unknown_fields_are_dropped() -> None:
    made = make_object({"a": 1}, "1")
    want = expect(made)
    made.attributes.MergeFromString(b"\x7a\x01x")
    made.payload.MergeFromString(b"\x7a\x01x")
    made.attributes.values["a"].MergeFromString(b"\x7a\x01x")
    assert contents(read_rows(made)) == want


@pytest.mark.parametrize(
    ("made", "field", "problem"),
    [
        (make_object({f"a{i}": i for i in range(65)}), "attributes", "65 attributes are over the"),
        (make_object({"": 1}), "attributes", "a name is empty"),
        (make_object({"n" * 65: 1}), "attributes", "65 bytes are over the limit attribute_name_by"),
        (make_object({E_ACUTE * 33: 1}), "attributes", "66 bytes are over"),
        (make_object({"n" * 10**6: 1}), "attributes", "1000000 bytes are over"),
        (make_object({"a`b": 1}), "attributes", "contains a control character or a backquote"),
        (make_object({"a\x00b": 1}), "attributes", "'a\\x00b' contains a control"),
        (make_object({"a\x85b": 1}), "attributes", "control character"),
        (make_object({E_ACUTE: 1, E_COMBINED: 2}), "attributes", "two names are"),
        (make_object({"x": NAN}), "attributes.x", "is not a number (NaN)"),
        (make_object({"x": "t" * 1025}), "attributes.x", "1025 bytes are over the limit attribute"),
        (make_object({"x": E_ACUTE * 513}), "attributes.x", "1026 bytes are over"),
        (make_object({"x": "\u0958" * 200}), "attributes.x", "1200 bytes are over"),  # it grows
        (Object(lon=0, lat=0, attributes=Attributes(values={"x": AttributeValue()})),
         "attributes.x", "has no value"),
        (make_object({"z": NAN, "y": NAN, "b": 1}), "attributes.y", "NaN"),
        (Object(lon=0, lat=0, payload=Payload()), "payload", "has no value"),
        (make_object({}, b"x" * (PAYLOAD_BYTES + 1)), "payload", "65537 bytes are over the limit"),
        (make_object({}, '"' + E_ACUTE * 32768 + '"'), "payload", "65538 bytes are over"),
        (make_object({}, '{"a": 1,}'), "payload", "is not JSON: "),
        (make_object({}, ""), "payload", "is not JSON: Expecting value"),
        (make_object({}, "NaN"), "payload", "is not JSON"),
        (make_object({}, "[" * 30_000 + "]" * 30_000), "payload", "nested too deeply"),
    ],
)  # fmt: skip
def test_bad_attributes_are_refused_by_row(made: Object, field: str, problem: str) -> None:
    good = make_object({"x": 1}, "{}")
    found = read_rows(good, made, good)
    [(row, where, text)] = refusals(found)
    assert (row, where) == (1, field)
    assert problem in text
    assert len(text) < 200
    assert contents(found.take(np.array([0, 2]))) == expect(good, good)


@pytest.mark.parametrize(
    "made",
    [
        make_object({f"a{i}": i for i in range(64)}),
        make_object({"n" * 64: 1, E_ACUTE * 32: 1, ".": 1, "a b": 1, "\u2028": 1}),
        make_object({"x": "t" * 1024, "y": "\n\0`", "z": float("inf"), "w": -0.0}),
        make_object({"x": E_ACUTE * 512}, b"x" * PAYLOAD_BYTES),
        make_object({"x": -(2**63), "y": 2**63 - 1, "f": False, "zero": 0}, "[" * 512 + "]" * 512),
    ],
)
def test_what_just_fits_is_taken(made: Object) -> None:
    found = read_rows(made)
    assert refusals(found) == []
    assert contents(found) == expect(made)


def union_of(*values: Any) -> pa.Array:
    """A column with the types of its values."""
    kinds = {type(v): pa.scalar(v).type for v in values if v is not None}
    codes = [list(kinds).index(type(v)) if v is not None else 0 for v in values]
    parts = [
        pa.array([v if type(v) is kind else None for v in values], made)
        for kind, made in kinds.items()
    ]
    return pa.UnionArray.from_sparse(pa.array(codes, pa.int8()), parts)


def test_each_row_of_a_union_has_its_own_type() -> None:
    moment = datetime(2026, 11, 30, tzinfo=UTC)
    values = [1, "x", None, True, E_COMBINED, moment, 2.5, -(2**63), "", False]
    objects = [make_object({} if v is None else {"a": v, "b": 1}) for v in values]
    want = [make_object({} if v is None else {"a": v, "b": 1}) for v in values]
    want[4] = make_object({"a": E_ACUTE, "b": 1})
    both = {"a": union_of(*values), "b": [None if v is None else 1 for v in values]}
    assert contents(read_rows(*objects)) == contents(read_table(**both)) == expect(*want)
    assert contents(read_table(a=union_of(*values).slice(3, 4))) == expect(
        *(make_object({"a": v}) for v in (True, E_ACUTE, moment, 2.5))
    )


def test_bad_values_of_a_union_are_refused_by_row() -> None:
    found = read_table(a=union_of(1, "t" * 1025, NAN, "t"))
    assert [(row, where) for row, where, _ in refusals(found)] == [
        (1, "attributes.a"), (2, "attributes.a"),
    ]  # fmt: skip
    assert contents(found.take(np.array([0, 3]))) == expect(
        make_object({"a": 1}), make_object({"a": "t"})
    )


def dense(text: str) -> pa.Array:
    """Rows that share a text, in which a few bytes would become many."""
    codes, at = pa.array([0, 0], pa.int8()), pa.array([0, 0], pa.int32())
    return pa.UnionArray.from_dense(codes, at, [pa.array([text])])


@pytest.mark.parametrize(
    "column",
    [
        dense("t"),
        pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([b"x"])]),
        pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [union_of(1)]),
        pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])] * 9),
    ],
    ids=["dense", "bytes", "nested", "of nine types"],
)
def test_other_unions_are_refused(column: pa.Array) -> None:
    with pytest.raises(
        InvalidArgument, match=r"batch\.arrow\.a: wrong column type, expected an int"
    ):
        read_table(a=column)


def test_a_text_is_measured_in_normal_form() -> None:
    found = read_rows(make_object({"x": E_COMBINED * 500}))
    assert (refusals(found), contents(found)) == ([], expect(make_object({"x": E_ACUTE * 500})))


def test_reading_ends_once_nobody_waits() -> None:
    batch = ObjectBatch(objects=[make_object({"x": 1})] * 2)
    calls = iter([True, False])
    with pytest.raises(Cancelled):
        read_objects(batch, 5, lambda: next(calls))
    table = pa.RecordBatch.from_pydict({"lon": [0.0], "lat": [0.0], "text": [""], "x": [1]})
    with pytest.raises(Cancelled):
        read_objects(ObjectBatch(arrow=to_ipc(table)), 5, lambda: False)


# --- Arrow --------------------------------------------------------------------

NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)
MS = 1_795_521_600_000
COLUMNS: list[tuple[Any, list[Any], list[Any]]] = [
    *((kind, [1, None, 100], [1, None, 100]) for kind in (
        pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
        pa.uint64(),
    )),
    (pa.int64(), [-(2**63), 2**63 - 1, None], [-(2**63), 2**63 - 1, None]),
    (pa.uint64(), [2**63 - 1, 0, None], [2**63 - 1, 0, None]),
    (pa.float32(), [0.1, None, -0.0], [float(np.float32(0.1)), None, -0.0]),
    (pa.float64(), [0.1, float("-inf"), None], [0.1, float("-inf"), None]),
    (pa.bool_(), [True, False, None], [True, False, None]),
    (pa.string(), ["", None, E_ACUTE], ["", None, E_ACUTE]),
    (pa.large_string(), ["x" * 1024, E_COMBINED, None], ["x" * 1024, E_ACUTE, None]),
    (pa.timestamp("s"), [NOON, None, None], [NOON, None, None]),
    (pa.timestamp("ms", "UTC"), [NOON, None, None], [NOON, None, None]),
    (pa.timestamp("us", "Asia/Tokyo"), [NOON, None, None], [NOON, None, None]),
    (pa.null(), [None, None, None], [None, None, None]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "given", "want"), COLUMNS, ids=lambda v: str(v)[:30])
def test_columns_of_every_type(kind: pa.DataType, given: list[Any], want: list[Any]) -> None:
    """In a batch that begins in the middle of its buffers, too."""
    column = pa.array(given, kind)
    objects = [make_object({} if value is None else {"x": value}) for value in want]
    assert contents(read_table(x=column)) == expect(*objects)
    twice = pa.concat_arrays([column, column])
    assert contents(read_table(x=twice[2:5])) == expect(objects[2], *objects[:2])


def test_a_time_is_rounded_down_to_milliseconds() -> None:
    column = pa.array([1_999_999, -1, 0], pa.int64()).cast(pa.timestamp("ns"))
    want = [AttributeValue(time_ms=ms) for ms in (1, -1, 0)]
    objects = [Object(attributes=Attributes(values={"x": value})) for value in want]
    assert contents(read_table(x=column)) == expect(*objects)


def test_payload_columns() -> None:
    for kind in (pa.string(), pa.large_string()):
        objects = [make_object({}, '{"a": 1}'), make_object({}), make_object({}, "0")]
        found = read_table(payload=pa.array(['{"a": 1}', None, "0"], kind))
        assert (contents(found), refusals(found)) == (expect(*objects), [])
    for kind in (pa.binary(), pa.large_binary()):
        objects = [make_object({}, b"\xff\0"), make_object({}), make_object({}, b"")]
        found = read_table(payload=pa.array([b"\xff\0", None, b""], kind))
        assert (contents(found), refusals(found)) == (expect(*objects), [])


@pytest.mark.parametrize("seed", range(8))
def test_columns_are_read_as_the_same_objects_as_messages(seed: int) -> None:
    rng = random.Random(seed)
    n = rng.randint(1, 40)
    draw: dict[pa.DataType, Callable[[], Any]] = {
        pa.int64(): lambda: rng.choice([0, -1, rng.randint(-(2**63), 2**63 - 1)]),
        pa.float64(): lambda: rng.choice([0.0, rng.gauss(0, 1e9)]),
        pa.bool_(): lambda: rng.random() < 0.5,
        pa.string(): lambda: "".join(rng.choices(PARTS, k=rng.randint(0, 99))),
        pa.timestamp("ms", "UTC"): lambda: datetime.fromtimestamp(rng.randint(0, 10**9), UTC),
    }  # fmt: skip
    table: dict[str, pa.Array] = {}
    objects = [dict[str, Any]() for _ in range(n)]
    for _ in range(rng.randint(1, 12)):
        name = "".join(rng.choices(["a", "b", E_COMBINED, "\u3042"], k=rng.randint(1, 3)))
        if unicodedata.normalize("NFC", name) in {unicodedata.normalize("NFC", t) for t in table}:
            continue
        kind = rng.choice(list(draw))
        values = [draw[kind]() if rng.random() < 0.7 else None for _ in range(n)]
        table[name] = pa.array(values, kind)
        for made, value in zip(objects, values, strict=True):
            if value is not None:
                made[name] = value
    payloads = [rng.choice([None, "{}", '["é"]']) for _ in range(n)]
    found = read_table(**table, payload=payloads)
    same = read_rows(*(make_object(o, p) for o, p in zip(objects, payloads, strict=True)))
    assert contents(found) == contents(same)
    assert found.opaque.off.tolist() == same.opaque.off.tolist()
    assert refusals(found) == refusals(same) == []


@pytest.mark.parametrize(
    ("columns", "field", "problem"),
    [
        ({"x": pa.array([1, 2**63], pa.uint64())}, "attributes.x", "beyond 64-bit signed integers"),
        ({"x": [1.0, NAN]}, "attributes.x", "is not a number (NaN)"),
        ({"x": pa.array([1.0, NAN], pa.float32())}, "attributes.x", "NaN"),
        ({"x": ["", "t" * 1025]}, "attributes.x", "1025 bytes are over the limit attribute_text"),
        ({"x": ["", E_ACUTE * 513]}, "attributes.x", "1026 bytes are over"),
        ({"x": ["", "t" * 10**6]}, "attributes.x", "1000000 bytes are over"),
        ({"x": pa.array([0, 2**62], pa.timestamp("s"))}, "attributes.x", "beyond 64-bit millisec"),
        ({E_COMBINED: [1.0, NAN]}, f"attributes.{E_ACUTE}", "NaN"),
        ({"x": [1.0, NAN], "y": ["", "t" * 1025]}, "attributes.x", "NaN"),
        ({"payload": ["{}", "{"]}, "payload", "is not JSON: Expecting property name"),
        ({"payload": ["{}", ""]}, "payload", "is not JSON: Expecting value"),
        ({"payload": [b"", b"x" * 65537]}, "payload", "65537 bytes are over the limit payload_by"),
        ({"payload": ["0", f'"{"x" * 65535}"']}, "payload", "65537 bytes are over"),
    ],
)  # fmt: skip
def test_bad_values_of_columns_are_refused_by_row(
    columns: dict[str, Any], field: str, problem: str
) -> None:
    found = read_table(**columns)
    [(row, where, text)] = refusals(found)
    assert (row, where) == (1, field)
    assert problem in text
    assert refusals(found.take(np.array([0]))) == []


def test_the_first_refusals_are_those_of_the_first_rows() -> None:
    found = read_table(a=[1.0, 1.0, NAN], b=[NAN, 1.0, 1.0], payload=["0", "", ""])
    assert [(r.row, r.field) for r in found.refusals(3)] == [
        (0, "attributes.b"), (1, "payload"), (2, "attributes.a"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "field", "problem"),
    [
        ({"x": pa.array([None], pa.date32())}, "batch.arrow.x", "expected an integer, float"),
        ({"x": [[1]]}, "batch.arrow.x", "got list<"),
        ({"x": [b"x"]}, "batch.arrow.x", "or a sparse union of at most 8 of these, got binary"),
        ({"x": pa.array([1], pa.float16())}, "batch.arrow.x", "got halffloat"),
        ({"x": pa.array(["a"]).dictionary_encode()}, "batch.arrow.x", "got dictionary"),
        ({"x": pa.array([1], pa.decimal128(5))}, "batch.arrow.x", "got decimal128"),
        ({E_COMBINED: [b"x"]}, f"batch.arrow.{E_ACUTE}", "got binary"),
        ({"payload": [1]}, "batch.arrow.payload", "expected binary or large_binary, or string"),
        ({f"x{i}": [1] for i in range(1025)}, "batch.arrow", "1025 columns are over the limit att"),
        ({f"x{i}": union_of(1, "t") for i in range(513)}, "batch.arrow",
         "1026 columns are over the limit attribute_columns 1024; a union counts once for each"),
        ({E_ACUTE: [1], E_COMBINED: [1]}, "batch.arrow", "two names are"),
        ({"": [1]}, "batch.arrow", "a name is empty"),
        ({"a`": [1]}, "batch.arrow", "backquote"),
        ({"a\n": [1]}, "batch.arrow", "'a\\n' contains a control character"),
        ({"n" * 65: [1]}, "batch.arrow", "65 bytes are over the limit attribute_name_bytes 64"),
    ],
)  # fmt: skip
def test_bad_columns_are_refused_as_a_whole(
    columns: dict[str, Any], field: str, problem: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_table(**columns)
    [violation] = caught.value.violations
    assert violation.field == field
    assert problem in violation.description


def make_sparse(columns: int, rows: int, values: int) -> tuple[dict[str, pa.Array], list[Object]]:
    """A table of which each row has so many values, of several types, and its rows as messages."""
    rng = random.Random(columns)
    moment = datetime(2026, 11, 30, tzinfo=UTC)
    made = [7, f"{E_ACUTE}x", True, 2.5, moment, ("t", 5, None, False)]
    table, objects = dict[str, list[Any]](), [dict[str, Any]() for _ in range(rows)]
    for row in objects:
        for i in sorted(rng.sample(range(columns), values)):
            one = made[i % len(made)]
            row[f"c{i}"] = rng.choice(one[::3] + one[:2]) if isinstance(one, tuple) else one
    for i in range(columns):
        name = f"c{i}"
        table[name] = [row.get(name) for row in objects]
    arrays = {
        name: union_of(*values) if i % len(made) == 5 and any(values) else pa.array(values)
        for i, (name, values) in enumerate(table.items())
    }
    return arrays, [make_object(row) for row in objects]


@pytest.mark.parametrize(("columns", "values"), [(65, 3), (200, 64), (700, 3), (700, 64)])
def test_a_table_has_more_columns_than_an_object_has_attributes(columns: int, values: int) -> None:
    table, objects = make_sparse(columns, 50, values)
    found = read_table(**table)
    assert (refusals(found), contents(found)) == ([], expect(*objects))


def test_rows_of_too_many_attributes_are_refused_by_row() -> None:
    table, objects = make_sparse(200, 40, 64)
    bad = [1 if row in (3, 39) else None for row in range(40)]
    wrong = [NAN if row in (5, 39) else None for row in range(40)]
    found = read_table(**table, one_more=bad, two_more=wrong)
    assert [each[:2] for each in refusals(found)] == [
        (3, "attributes"), (5, "attributes"), (39, "attributes"),
    ]  # fmt: skip
    assert {each[2] for each in refusals(found)} == {
        "65 attributes are over the limit attributes 64",
        "66 attributes are over the limit attributes 64",
    }
    good = [row for row in range(40) if row not in (3, 5, 39)]
    assert contents(found.take(np.array(good))) == expect(*(objects[row] for row in good))


def test_many_columns_take_few_steps() -> None:
    """A request of one row, or of few that each have other attributes."""
    for rows in (1, 16):
        own = [[i // 64 == row for row in range(rows)] for i in range(1024)]
        table = {f"c{i}": pa.array([1 if o else None for o in own[i]]) for i in range(1024)}
        data = ObjectBatch(arrow=make_stream(table))
        steps = 0

        def count(*_: Any) -> None:
            nonlocal steps
            steps += 1

        sys.setprofile(count)
        try:
            read_objects(data, 5)
        finally:
            sys.setprofile(None)
        assert steps < 150 * 1024, rows


def test_columns_that_occur_twice() -> None:
    for name, where in (("x", "batch.arrow"), ("payload", "batch.arrow.payload")):
        names, arrays = ["lon", "lat", "text", name, name], [[0.0], [0.0], ["a"], ["1"], ["1"]]
        batch = pa.RecordBatch.from_arrays([pa.array(a) for a in arrays], names)
        with pytest.raises(InvalidArgument) as caught:
            read_objects(ObjectBatch(arrow=to_ipc(batch)), 5)
        assert [v.field for v in caught.value.violations] == [where]


def test_few_bytes_do_not_become_very_many() -> None:
    flags = pa.array([True] * 8192)
    columns = {f"{i:064}": flags for i in range(64)}
    with pytest.raises(InvalidArgument, match=r"over the limit batch_bytes 4194304; send fewer"):
        read_table(**columns)
