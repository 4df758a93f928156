"""Attributes and payloads on their way to the service and back, in each form that callers use."""

from __future__ import annotations

import itertools
import json
import math
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps2stream.client.attributes import MOST_NESTED, read_attributes, read_payload
from ps2stream.client.frames import build_batch
from ps2stream.client.inputs import object_batch
from ps2stream.client.matches import Matches, MatchReceiver, read_batch
from ps2stream.errors import InvalidArgument
from ps2stream.posts.members import AttributeChoice
from ps2stream.posts.readers import read_rows
from ps2stream.protocol.opaque import split_opaque
from ps2stream.service.ends import NO_END
from ps2stream.service.objects import read_objects
from ps2stream.v1 import delivery_pb2, object_pb2

PLACE: dict[str, Any] = {"lon": 8.5, "lat": 47.0, "text": "flood"}
NOON = datetime(2026, 11, 24, 12, 30, 0, 250_000, UTC)
POINT = {"type": "Point", "coordinates": [8.5, 47.0]}
FIELDS = delivery_pb2.DeliverFields(attributes=True, payload=True)


class NamedPost(NamedTuple):
    lon: float
    lat: float
    attributes: Any
    payload: Any = None


def sent(attributes: Any) -> dict[str, Any]:
    """What a subscriber reads of these attributes of a row."""
    [row] = object_batch([PLACE | {"attributes": attributes}]).objects
    return dict(read_attributes(row.attributes))


def table_of(objects: Any) -> pa.Table:
    return pa.ipc.open_stream(object_batch(objects).arrow).read_all()


VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
    st.text(),
    st.datetimes(timezones=st.just(UTC)).map(lambda t: t.replace(microsecond=0)),
)


@given(st.dictionaries(st.text(), VALUES))
def test_values_come_back_as_they_were_sent(values: dict[str, Any]) -> None:
    found = sent(values)
    assert found == values
    assert {name: type(v) for name, v in found.items()} == {n: type(v) for n, v in values.items()}


ZURICH = pd.Timestamp("2026-11-24 13:30", tz="Europe/Zurich")
OBJECTS = [
    1, "one", True, None, pd.NA, pd.NaT, math.nan, 2.5, np.int64(-3), np.bool_(False),
    np.float64(0.5), np.str_("two"), NOON, ZURICH, 2**63 - 1,
]  # fmt: skip


def sent_columns(objects: Any) -> list[dict[str, Any]]:
    """What a subscriber reads of the attributes of each row, of either form of a batch."""
    batch = object_batch(objects)
    if not batch.arrow:
        return [dict(read_attributes(row.attributes)) for row in batch.objects]
    opaque = read_objects(batch, 5).opaque
    columns = split_opaque(opaque.off, opaque.data, table_of(batch).num_rows)
    ends = columns.attributes_off.tolist()
    return [
        dict(read_attributes(object_pb2.Attributes.FromString(columns.attributes[a:b].tobytes())))
        for a, b in itertools.pairwise(ends)
    ]


def frame_of(**columns: Any) -> pd.DataFrame:
    rows = len(next(iter(columns.values())))
    place = {name: [value] * rows for name, value in PLACE.items()}
    objects = {n: pd.Series(list(values), dtype=object) for n, values in columns.items()}
    return pd.DataFrame(place | objects)


def test_a_column_of_a_data_frame_has_the_types_of_its_values() -> None:
    frame = frame_of(a=OBJECTS, b=["x", None] + [1] * 13, same=list(range(15)))
    wanted: list[Any] = [
        1, "one", True, None, None, None, None, 2.5, -3, False, 0.5, "two",
        NOON.replace(microsecond=250_000), ZURICH.to_pydatetime(), 2**63 - 1,
    ]  # fmt: skip
    for objects in (frame, {name: frame[name] for name in frame}, frame.set_index("same", drop=0)):
        found = sent_columns(objects)
        assert [row.get("a") for row in found] == wanted
        assert [type(row.get("a")) for row in found[:3]] == [int, str, bool]
        assert [row.get("b") for row in found] == ["x", None] + [1] * 13
        assert [row["same"] for row in found] == list(range(15))
    assert table_of(frame).column_names == [*PLACE, "a", "b", "same"]


def test_numbers_of_a_data_frame_are_one_type() -> None:
    for values, kind in (
        ([1, 2.5], pa.float64()), ([np.int64(1), np.float64(2.5), pd.NA], pa.float64()),
        ([np.int8(1), 2], pa.int64()), ([2**53 + 1, 0.5], None),
    ):  # fmt: skip
        found = table_of(frame_of(a=values)).schema.field("a").type
        assert found == kind or (kind is None and pa.types.is_union(found))
        assert [row.get("a") for row in sent_columns(frame_of(a=values))][:2] == values[:2]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([1], "expected a number, text, a boolean or a datetime with a time zone, got a list"),
        ({"b": 1}, "expected a number, .*, got a dict"),
        (b"x", "expected a number, .*, got b'x'"),
        (date(2026, 11, 24), "expected a number, .*, got a date"),
        (datetime(2026, 11, 24), "time 2026-11-24T00:00:00 has no time zone"),
        (pd.Timestamp(2026, 11, 24), "time 2026-11-24T00:00:00 has no time zone"),
        (np.datetime64("2026-11-24", "ns"), "got a datetime64, which has no time zone"),
        (2**70, "1180591620717411303424 is beyond the 64 bits of an integer"),
        (np.uint64(2**63), "9223372036854775808 is beyond the 64 bits"),
        ("\ud800", "is not Unicode text"),
    ],
)
def test_an_object_of_a_data_frame_that_is_no_attribute_is_named(value: Any, problem: str) -> None:
    for others in ([1, "x"], ["x", pd.NA]):
        with pytest.raises(InvalidArgument, match=rf"objects\[2\]\.attributes\.a: .*{problem}"):
            object_batch(frame_of(a=[*others, value]))


def test_a_text_of_a_data_frame_that_is_none_is_named_by_its_column() -> None:
    frame = frame_of(a=[1, "x"]).assign(text=pd.Series([1, "x"], dtype=object))
    problem = r"objects: a DataFrame is no table: Could not .* 'x' .*; .* failed for column text"
    with pytest.raises(InvalidArgument, match=problem):
        object_batch(frame)


def test_missing_times_of_pandas_are_absent_or_named() -> None:
    times = pd.Series([NOON, None, ZURICH])
    plain = pd.Series(pd.to_datetime(["2026-11-24", None, "2026-11-25"]))
    mixed = pd.Series([NOON, pd.NaT, 5], dtype=object)
    for column, third in ((pd.to_datetime(times, utc=True), None), (plain, None), (mixed, 5)):
        frame = frame_of(a=[1, 2, 3]).assign(time=column, until=column)
        for objects in (frame, {name: frame[name] for name in frame}):
            found = read_objects(object_batch(objects), 77)
            assert found.time[1] == 77
            assert third is None or found.time[2] == third
            assert found.until[1] == NO_END
        problem = r"objects\[1\]\.time: expected .*, NaT is no time; leave it out, or use None"
        rows = [PLACE | {"time": NOON}, PLACE | {"time": column[1]}]
        with pytest.raises(InvalidArgument, match=problem):
            object_batch(rows)
    for value, problem in ((pd.NaT, "NaT is no time; leave it"), (pd.NA, "NA is no value; leave")):
        with pytest.raises(InvalidArgument, match=problem):
            sent({"a": value})


def test_scalars_of_numpy_and_pandas_and_absent_values() -> None:
    found = sent(
        {
            "int": np.int8(-3),
            "unsigned": np.uint64(7),
            "float": np.float32(0.5),
            "bool": np.bool_(True),
            "text": np.str_("Zürich"),
            "time": pd.Timestamp(NOON),
            "east": NOON.astimezone(timezone(timedelta(hours=2))),
            "none": None,
        }
    )
    assert found == {"int": -3, "unsigned": 7, "float": 0.5, "bool": True, "text": "Zürich",
                     "time": NOON, "east": NOON}  # fmt: skip
    assert [type(found[n]) for n in ("int", "float", "bool")] == [int, float, bool]
    assert sent(None) == sent({}) == sent({"a": None}) == {}


EXPECTED = "expected a number, text, a boolean or a datetime with a time zone, got "


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (math.nan, "NaN is no value; leave the attribute out, or use None"),
        (np.float32("nan"), "NaN is no value"),
        (1 << 63, "9223372036854775808 is beyond the 64 bits of an integer"),
        (-(1 << 63) - 1, "is beyond the 64 bits of an integer"),
        (np.uint64(1 << 63), "is beyond the 64 bits of an integer"),
        (NOON.replace(tzinfo=None), "time 2026-11-24T12:30:00.250000 has no time zone"),
        (pd.NaT, "NaT is no time; leave it out, or use None"),
        (np.datetime64("2026-11-24"), EXPECTED + "a datetime64, which has no time zone"),
        (np.timedelta64(1, "s"), EXPECTED),
        (date(2026, 11, 24), EXPECTED + "a date"),
        (b"x", EXPECTED + "b'x'"),
        ([1], EXPECTED + "a list"),
        ({}, EXPECTED + "a dict"),
        (1j, EXPECTED + "a complex"),
        (np.array([1]), EXPECTED + "a ndarray"),
        ("\ud800", "is not Unicode text"),
    ],
)
def test_a_value_that_is_none_is_refused_by_its_name(value: Any, problem: str) -> None:
    rows = [PLACE, PLACE | {"attributes": {"severity": value}}]
    columns = {name: [v, v] for name, v in PLACE.items()} | {"severity": [None, value]}
    in_columns = not isinstance(value, float | np.ndarray | np.generic)
    for objects in (rows, columns) if in_columns else (rows,):
        with pytest.raises(InvalidArgument) as caught:
            object_batch(objects)
        assert str(caught.value).startswith("objects[1].attributes.severity: ")
        assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"attributes": 3}, "objects[0].attributes: expected a mapping of names to values, got 3"),
        ({"attributes": {3: 4}}, "objects[0].attributes: expected names that are strings, got 3"),
        ({"attributes": {"\ud800": 4}}, "is not Unicode text"),
        ({"severity": 3}, "text, attributes, payload, until; an attribute goes under "),
        ({"payload": 3}, "objects[0].payload: expected bytes, a dict or list, or a string of J"),
        ({"payload": object()}, "got an object"),
        ({"payload": {"at": NOON}}, "objects[0].payload: is not JSON: "),
        ({"payload": [math.nan]}, "objects[0].payload: is not JSON: "),
        ({"payload": "\ud800"}, "objects[0].payload: is not Unicode text"),
    ],
)  # fmt: skip
def test_what_is_no_attribute_or_payload_is_refused(more: Any, problem: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        object_batch([PLACE | more])
    assert problem in str(caught.value)


def test_payloads_come_back_as_they_were_sent() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    for given_, found in (
        (b"\xff", b"\xff"),
        (bytearray(b"x"), b"x"),
        ({"ü": [1, 2.5, None]}, {"ü": [1, 2.5, None]}),
        ((1, 2), [1, 2]),
        ('"text of JSON"', "text of JSON"),
        (" {} ", {}),
    ):
        [row] = object_batch([PLACE | {"payload": given_}]).objects
        assert read_payload(row.payload) == found, given_
    assert object_batch([PLACE | {"payload": {"ü": [1]}}]).objects[0].payload.json == '{"ü":[1]}'
    deep = "[" * 100_000 + "]" * 100_000
    assert read_payload(object_pb2.Payload(json=deep)) == deep
    assert read_payload(object_pb2.Payload()) is None
    for levels, read in ((MOST_NESTED, True), (MOST_NESTED + 1, False)):
        text = "[" * levels + "]" * levels
        assert isinstance(read_payload(object_pb2.Payload(json=text)), list) is read
    words = json.dumps(["[" * 600, '\\"{' * 600, *([] for _ in range(600))])
    assert read_payload(object_pb2.Payload(json=words)) == json.loads(words)
    with pytest.raises(InvalidArgument, match="is not JSON"):
        object_batch([PLACE | {"payload": nested}])


def test_a_time_beyond_those_of_python_stays_a_number() -> None:
    value = object_pb2.AttributeValue(time_ms=2**62)
    assert read_attributes(object_pb2.Attributes(values={"at": value})) == {"at": 2**62}


def test_named_tuples_and_features_have_attributes() -> None:
    [row] = object_batch([NamedPost(8.5, 47.0, {"severity": 3}, b"x")]).objects
    assert (read_attributes(row.attributes), row.payload.bytes) == ({"severity": 3}, b"x")
    properties = {"id": "a", "text": "one", "time": 5, "mag": 4.5, "place": None, "tags": ["x"],
                  "more": {"deep": 1}, "tsunami": False, "lon": 3}  # fmt: skip
    feature = {"type": "Feature", "geometry": POINT, "properties": properties}
    collection = {"type": "FeatureCollection", "features": [feature]}
    [row] = object_batch(collection).objects
    assert (row.id, row.text, row.time_ms, row.lon) == ("a", "one", 5, 8.5)
    assert read_attributes(row.attributes) == {"mag": 4.5, "tsunami": False, "lon": 3}


def test_features_are_read_as_those_of_files(tmp_path: Path) -> None:
    for payload in ("as a text", 5, True, {"deep": [1]}, [None], None):
        properties = {
            "text": "x",
            "mag": 1,
            "attributes": {"z": True, "no": [1]},
            "payload": payload,
        }
        beside = {"net": "us", "mag": 9, "bbox": [8, 47, 8, 47], "links": []}
        feature = {"type": "Feature", "geometry": POINT, "properties": properties, **beside}
        (tmp_path / "x.geojson").write_text(json.dumps({"features": [feature]}))
        [[read]] = read_rows(str(tmp_path / "x.geojson"), choice=AttributeChoice())
        [row] = object_batch(feature).objects
        want = {"mag": 1, "z": True, "net": "us"}
        assert read_attributes(row.attributes) == read["attributes"] == want
        assert row.payload.json == read.get("payload", "")
    bad: tuple[tuple[dict[str, Any], str], ...] = (
        ({"mag": 1, "attributes": {"mag": 2}}, r"\[0\].attributes.mag: expected it once"),
        ({"payload": math.nan}, r"\[0\].payload: is not JSON"),
    )
    for wrong, problem in bad:
        with pytest.raises(InvalidArgument, match=problem):
            object_batch({"type": "Feature", "geometry": POINT, "properties": wrong})


LISTS: dict[str, list[Any]] = {
    **{name: [value, value] for name, value in PLACE.items()},
    "severity": [3, None],
    "depth": [1.5, 2.5],
    "source": ["usgs", None],
    "felt": [True, False],
    "at": [NOON, None],
    "payload": [b"x", None],
}


def test_columns_are_arrow_of_plain_types() -> None:
    found = table_of(LISTS)
    assert {f.name: str(f.type) for f in found.schema if f.name not in PLACE} == {
        "severity": "int64",
        "depth": "double",
        "source": "string",
        "felt": "bool",
        "at": "timestamp[ms, tz=UTC]",
        "payload": "binary",
    }
    assert found.to_pydict() == LISTS


@pytest.mark.parametrize("is_arrow_there", [True, False])
def test_columns_and_rows_say_the_same(
    is_arrow_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_arrow_there:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    mixed = LISTS | {"severity": [3, "high"], "payload": [{"a": 1}, b"x"]}
    found = object_batch(iterated := {name: iter(values) for name, values in mixed.items()})
    assert len(iterated) == len(mixed)
    assert not found.arrow
    rows = [
        PLACE
        | {"payload": mixed["payload"][i]}
        | {"attributes": {n: v[i] for n, v in mixed.items() if n not in (*PLACE, "payload")}}
        for i in range(2)
    ]
    assert found == object_batch(rows)
    nested = {
        **{n: LISTS[n] for n in PLACE},
        "attributes": [{"severity": 3}, None],
        "depth": [1, 2],
    }
    assert [read_attributes(row.attributes) for row in object_batch(nested).objects] == [
        {"severity": 3, "depth": 1},
        {"depth": 2},
    ]


@pytest.mark.parametrize(
    "values", [[1.5, True], [NOON, 5], [NOON, 2.5], [2.5, None, False], [False, 2.5]]
)
def test_no_value_becomes_one_of_the_type_before_it(values: list[Any]) -> None:
    """Arrow would make True the number 1.0, and 5 a time in 1970."""
    places = {name: [value] * len(values) for name, value in PLACE.items()}
    frame = pd.DataFrame(places | {"a": pd.Series(values, dtype=object)})
    for objects in (places | {"a": values}, places | {"a": frame["a"]}, frame):
        found = [(a["a"], type(a["a"])) for a in sent_columns(objects) if a]
        assert found == [(v, type(v)) for v in values if v is not None]
    assert build_batch(places | {"a": values}).column("a").to_pylist() == values


@pytest.mark.parametrize(
    "values", [[1, 2.5], [1.5, math.nan], [NOON, None], [date(2026, 1, 1), pd.NaT]]
)
def test_numbers_times_and_what_is_absent_make_one_column(values: list[Any]) -> None:
    places = {name: [value] * 2 for name, value in PLACE.items()}
    assert object_batch(places | {"a": pd.Series(values, dtype=object)}).arrow
    assert object_batch(pd.DataFrame(places | {"a": pd.Series(values, dtype=object)})).arrow


def test_frames_and_tables_are_cast() -> None:
    frame = pd.DataFrame(
        {name: [value, value] for name, value in PLACE.items()}
        | {
            "severity": [3, np.nan],
            "source": pd.Categorical(["usgs", "emsc"]),
            "at": pd.to_datetime(["2026-11-24", None]),
            "day": [date(2026, 11, 24), None],
            "count": np.array([1, 2], np.uint64),
            "half": np.array([0.5, 1], np.float16),
            "note": [None, "x"],
            "nothing": [None, None],
        },
        index=["p", "q"],
    )
    found = table_of(frame)
    assert {f.name: str(f.type) for f in found.schema if f.name not in PLACE} == {
        "severity": "double", "source": "string", "at": "timestamp[ns]",
        "day": "timestamp[ms, tz=UTC]", "count": "int64", "half": "double", "note": "string",
        "nothing": "bool",
    }  # fmt: skip
    assert found.column("severity").to_pylist() == [3.0, None]
    assert found.column("source").to_pylist() == ["usgs", "emsc"]
    series = table_of(LISTS | {"at": frame["at"], "severity": frame["severity"].to_numpy()})
    assert str(series.schema.field("at").type) == "timestamp[ns]"
    batch = pa.RecordBatch.from_pydict({**PLACE_ARRAYS, "severity": pa.array([1], pa.int8())})
    assert table_of(batch).to_batches() == [batch]


class PointsStub(NamedTuple):
    """What is used of a GeoSeries."""

    name: str
    x: Any
    y: Any


class GeoFrameStub(pd.DataFrame):  # type: ignore[misc]
    """What is used of a GeoDataFrame, in metres, or in degrees."""

    crs: int | None = 3857

    @property
    def __geo_interface__(self) -> Any:
        raise AssertionError("rows one by one are slow")

    @property
    def geometry(self) -> PointsStub:
        if self.crs is None:
            raise AttributeError("no geometry is set")
        scale = 1 if self.crs == 4326 else 1e5
        return PointsStub("shape", np.array([8.5 * scale] * 2), np.array([47.0 * scale] * 2))

    def to_crs(self, crs: int) -> GeoFrameStub:
        made = GeoFrameStub(self)
        made.crs = crs
        return made


def test_points_of_a_frame_are_places() -> None:
    columns = {"shape": ["a", "b"], "text": ["x", "y"], "mag": [4.5, None]}
    found = table_of(GeoFrameStub(columns)).to_pydict()
    assert found == {"text": ["x", "y"], "mag": [4.5, None], "lon": [8.5] * 2, "lat": [47.0] * 2}
    without = GeoFrameStub(columns)
    without.crs = None
    with pytest.raises(InvalidArgument, match=r"objects\.geometry: expected points: no g"):
        object_batch(without)


PLACE_ARRAYS = {name: pa.array([value]) for name, value in PLACE.items()}


@pytest.mark.parametrize(
    ("name", "values", "problem"),
    [
        ("tags", pa.array([["a"]]), "objects.tags: expected numbers, text, booleans or times, got"),
        ("raw", pa.array([b"x"]), "objects.raw: expected numbers, text, booleans or times, got"),
        ("payload", pa.array([3]), "objects.payload: expected bytes or strings of JSON, got int64"),
        ("count", pa.array([2**63], pa.uint64()), "objects.count: Integer value 92233720368"),
    ],
)
def test_a_column_of_another_type_is_refused(name: str, values: Any, problem: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        object_batch(pa.table({**PLACE_ARRAYS, name: values}))
    assert str(caught.value).startswith(problem)


# --- matches --------------------------------------------------------------------


def attributes(**values: Any) -> object_pb2.Attributes:
    return object_batch([PLACE | {"attributes": values}]).objects[0].attributes


def delivery(**fields: Any) -> bytes:
    """Three pairs of query 7 and two objects."""
    batch = delivery_pb2.DeliverBatch(
        session_seq=1,
        new_handles=[7],
        new_query_ids=["q"],
        pair_handles=[7, 7, 7],
        pair_objects=[1, 0, 1],
        object_ids=["a", "b"],
        object_offsets=[1, 2],
        **fields,
    )
    return delivery_pb2.DeliverResponse(batch=batch).SerializeToString()


WITH: dict[str, Any] = {
    "attributes": [attributes(severity=3, at=NOON), attributes()],
    "payloads": [object_pb2.Payload(json="[1]"), object_pb2.Payload(bytes=b"x")],
}


def test_matches_have_what_was_requested() -> None:
    found = read_batch(delivery(**WITH), {}, FIELDS)
    assert [(m.attributes, m.payload) for m in found] == [
        ({}, b"x"),
        ({"severity": 3, "at": NOON}, [1]),
        ({}, b"x"),
    ]
    rest = list(found.after(2))
    assert [(m.attributes, m.payload) for m in rest] == [({}, b"x")]
    without = read_batch(delivery(), {}, FIELDS)
    assert [(m.attributes, m.payload) for m in without] == [({}, None)] * 3
    assert without.attributes is not None
    assert without.attributes[0] is not without.attributes[1]
    nothing = read_batch(delivery(), {})
    assert (nothing.attributes, nothing.payloads) == (None, None)
    assert {(m.attributes, m.payload) for m in nothing} == {(None, None)}


@pytest.mark.parametrize("name", ["attributes", "payloads"])
def test_a_delivery_of_too_few_is_malformed(name: str) -> None:
    with pytest.raises(Exception, match="malformed delivery"):
        read_batch(delivery(**{name: WITH[name][:1]}), {}, FIELDS)


def test_the_receiver_requests_attributes_and_no_payloads_unless_told() -> None:
    def requested(**options: Any) -> delivery_pb2.DeliverFields:
        start = MatchReceiver("s", **options).start()
        return delivery_pb2.DeliverRequest.FromString(start).start.fields

    assert (requested().attributes, requested().payload) == (True, False)
    other = requested(attributes=False, payload=True, text=False)
    assert (other.attributes, other.payload, other.text) == (False, True, False)


def arrow(**fields: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = read_batch(delivery(**fields), {}, FIELDS).to_arrow().to_pydict()
    return found


def test_a_table_has_a_column_for_each_attribute() -> None:
    found = arrow(**WITH, lon=[1.0, 2.0], lat=[3.0, 4.0], time_ms=[0, 5], text=["x", "y"])
    assert list(found) == [
        *("query_id", "object_id", "partition", "offset", "time", "lon", "lat", "text"),
        *("at", "severity", "payload"),
    ]
    assert found["severity"] == [None, 3, None]
    assert found["at"] == [None, NOON, None]
    assert found["payload"] == [b"x", b"[1]", b"x"]
    assert found["lon"] == [2.0, 1.0, 2.0]
    assert [row.object_id for row in read_batch(delivery(), {})] == found["object_id"]


def test_names_that_are_taken_and_values_of_several_types() -> None:
    some = [attributes(text="a", attribute_text="b", kind=1), attributes(kind="x", text="c")]
    found = arrow(attributes=some, text=["x", "y"])
    assert found["text"] == ["y", "x", "y"]
    names = {name: values for name, values in found.items() if "attribute_" in name}
    assert sorted(names) == ["attribute_attribute_text", "attribute_text"]
    assert sorted(map(str, names.values())) == ["['c', 'a', 'c']", "[None, 'b', None]"]
    assert found["kind"] == ["x", "1", "x"]
    assert arrow(attributes=[attributes(n=1), attributes(n=2.5)])["n"] == [2.5, 1.0, 2.5]
    large = arrow(attributes=[attributes(n=2**60 + 1), attributes(n=2.5)])["n"]
    assert large == ["2.5", str(2**60 + 1), "2.5"]
    times = arrow(attributes=[attributes(n=NOON), attributes(n=True)])["n"]
    assert times == ["true", "2026-11-24T12:30:00.250Z", "true"]


def test_a_frame_of_matches_can_be_written_as_json() -> None:
    found: Matches = read_batch(delivery(**WITH), {}, FIELDS)
    frame = found.to_arrow().to_pandas()
    assert frame["severity"].dropna().tolist() == [3]
    assert json.loads(frame[["object_id"]].to_json())["object_id"] == {"0": "b", "1": "a", "2": "b"}
