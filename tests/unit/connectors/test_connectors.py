"""What connectors do without anyone to talk to: records to posts, pauses, offsets."""

from __future__ import annotations

import json
import math
import threading
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.client.inputs import object_batch
from ps2stream.client.matches import read_batch
from ps2stream.connectors.addresses import AddressReach, check_url
from ps2stream.connectors.deliveries import DeliveryItem, encode_items
from ps2stream.connectors.http_poster import retry_after
from ps2stream.connectors.kafka_rejected import RejectedRecords
from ps2stream.connectors.mapping import ConvertedPosts, RecordFields
from ps2stream.connectors.mqtt_broker import BrokerAddress, MqttSession, where
from ps2stream.connectors.offsets import OffsetFlight
from ps2stream.connectors.retry import RetryBackoff
from ps2stream.connectors.signature import read_secrets, signed
from ps2stream.connectors.sink_loop import MOST_BYTES, parts
from ps2stream.errors import InvalidArgument
from ps2stream.kafka import read_config
from ps2stream.posts.members import AttributeChoice
from ps2stream.posts.readers import nest_attributes, read_rows
from ps2stream.v1 import delivery_pb2, object_pb2


def convert(fields: RecordFields, *records: Any) -> ConvertedPosts:
    data = [r if isinstance(r, bytes | None) else json.dumps(r).encode() for r in records]
    return fields.convert(data, [f"t/0/{i}" for i in range(len(data))])


def rows_of(found: ConvertedPosts) -> list[dict[str, Any]]:
    posts = found.posts
    return posts if isinstance(posts, list) else list(map(nest_attributes, posts.to_pylist()))


def test_usual_names_are_found_and_absent_ids_are_those_given() -> None:
    found = convert(
        RecordFields(),
        {"lat": 1, "lon": 2.5, "text": "a", "time": 7},
        {"latitude": "3", "lng": 4, "text": "b", "id": 9, "ts": "1970-01-01T00:00:01Z"},
    )
    assert rows_of(found) == [
        {"id": "t/0/0", "time": 7, "lon": 2.5, "lat": 1.0, "text": "a"},
        {"id": "9", "time": 1000, "lon": 4.0, "lat": 3.0, "text": "b"},
    ]
    assert not found.bad


def test_paths_lead_into_objects_and_arrays() -> None:
    record = {"id": "x", "tst": 3, "p": {"y": 1, "x": 2}, "g": [5, 6], "body": {"t": "hi"}}
    nested = RecordFields("text=body.t,lat=p.y,lon=p.x,time=tst,id=", "s")
    [row] = rows_of(convert(nested, record))
    assert row == {"id": "t/0/0", "time": 3000, "lon": 2.0, "lat": 1.0, "text": "hi"}
    listed = RecordFields("text=body.t,lon=g.0,lat=g.1")
    [row] = rows_of(convert(listed, record))
    place = {"id": "x", "time": None, "lon": 5.0, "lat": 6.0, "text": "hi"}
    assert row == place | {"attributes": {"tst": 3}}, "no path leads to it"


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (None, "expected a JSON object, got no value"),
        (b"{", "expected a JSON object: "),
        (b"[]", "expected a JSON object, got []"),
        (
            b'{"lat": 1, "lon": 1, "text": "", "mag": 3, "mag": 4}',
            "expected a JSON object: the name 'mag' occurs 2 times in one object",
        ),
        ({"lat": 1, "lon": 1}, "text: expected a string, got null"),
        ({"lat": 91, "lon": 1, "text": ""}, "lat: expected degrees in [-90, 90], got 91"),
        (b'{"lat": NaN, "lon": 1, "text": ""}', "lat: NaN is not a number of JSON"),
        (
            b'{"lat": 1, "lon": 1, "text": "", "a": -Infinity}',
            "a: -Infinity is not a number of",
        ),
        (b'{"lat": 1, "lon": 1, "text": "", "a": 1e999}', "a: '1e999' is beyond the numbers of 64"),
        ({"lat": True, "lon": 1, "text": ""}, "lat: expected degrees in [-90, 90], got true"),
        ({"lat": 1, "lon": 1, "text": "x" * 70_000}, "text: expected at most 65536 bytes"),
        ({"lat": 1, "lon": 1, "text": "", "time": "soon"}, "time: expected Unix milliseconds"),
    ],
)
def test_a_bad_record_is_named_and_the_others_are_taken(record: Any, why: str) -> None:
    good = {"lat": 1, "lon": 1, "text": "good"}
    found = convert(RecordFields(), good, record, good)
    assert [row["id"] for row in rows_of(found)] == ["t/0/0", "t/0/2"]
    assert list(found.rows) == [0, 2]
    assert list(found.bad) == [1]
    assert found.bad[1].startswith(why)


_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-200, 200), st.integers(), st.floats(),
    st.text(max_size=5), st.sampled_from(["2026-01-05T08:00Z", "2026-01-05", "12", "-1.5"]),
)  # fmt: skip
_RECORDS = st.fixed_dictionaries(
    {"text": st.text(max_size=5), "lat": st.floats(-100, 100), "lon": st.integers(-180, 180)},
    optional={
        "id": _VALUES,
        "time": _VALUES,
        "ts": _VALUES,
        "latitude": _VALUES,
        "more": _VALUES,
        "other": _VALUES,
        "payload": _VALUES,
        "attributes": st.just({"deep": 1}),
        "nested": st.sampled_from([[], [1], {}, {"a": 1}]),
        "long": st.just("x" * 1025),
    },
)
_LINES = st.one_of(
    _RECORDS.map(lambda r: json.dumps(r).encode()),
    st.sampled_from([b"", b"{}{}", b"{}\n{}", b" ", b'{"lat": 1,\n"lon": 2, "text": "x"}', None]),
)


@settings(deadline=None, max_examples=400)
@given(
    st.lists(_LINES, min_size=1, max_size=4),
    st.sampled_from(["ms", "s"]),
    st.sampled_from([None, "none", "more", "more:number,other:text", "other:time,more:boolean"]),
)
def test_columns_and_records_give_the_same_posts(
    lines: list[bytes | None], unit: Any, spec: str | None
) -> None:
    fields = RecordFields("", unit, AttributeChoice(spec))
    ids = [f"t/0/{i}" for i in range(len(lines))]
    found, slowly = fields.convert(lines, ids), fields._convert_records(lines, ids)
    assert (list(found.rows), found.bad) == (slowly.rows, slowly.bad)
    assert rows_of(found) == rows_of(slowly)


def test_members_become_attributes(caplog: pytest.LogCaptureFixture) -> None:
    place: dict[str, Any] = {"lat": 1, "lon": 2, "text": "a", "id": "x", "time": 5}
    some = {"mag": 4.5, "n": 3, "ok": True, "at": "2026-11-24T10:00:00Z", "tags": ["x"]}
    fields = RecordFields()
    for _ in range(2):
        columns = convert(fields, place | some, place | {"mag": 5})
        assert not isinstance(columns.posts, list), "read as columns, times as texts too"
        assert rows_of(columns)[0] == place | {"attributes": {n: some[n] for n in list(some)[:4]}}
        assert rows_of(columns)[1] == place | {"attributes": {"mag": 5.0}}
    assert [r.getMessage() for r in caplog.records] == [
        "left out, as no attribute: tags (an array)"
    ], "named once"
    mixed = convert(fields, place | {"mag": "high", "payload": {"a": [1]}}, place | {"mag": 5})
    assert rows_of(mixed) == [
        place | {"attributes": {"mag": "high"}, "payload": '{"a":[1]}'},
        place | {"attributes": {"mag": 5}},
    ]
    typed = RecordFields("", "ms", AttributeChoice("mag:number"))
    bad = convert(typed, place | {"mag": "high"}, place | {"mag": "5", "n": 3})
    assert bad.bad == {0: "mag: expected a number, got 'high'"}
    assert rows_of(bad) == [place | {"attributes": {"mag": 5}}]
    many = place | {f"n{i}": i for i in range(70)}
    assert len(rows_of(convert(fields, many))[0]["attributes"]) == 64


def test_a_feature_has_its_properties_as_a_file_has_them(tmp_path: Path) -> None:
    shared: dict[str, Any] = {"time": 5, "net": "us", "deep": {"a": 1}}
    features: list[dict[str, Any]] = [
        {
            "type": "Feature",
            "id": f"f{i}",
            "geometry": {"type": "Point", "coordinates": [8.5, i, 3]},
            "bbox": [0, 0, 1, 1],
            "properties": shared | {"text": f"quake {i}", "mag": i + 0.5, "type": "quake"},
        }
        for i in range(3)
    ]
    file = tmp_path / "posts.geojson"
    file.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    (read,) = read_rows(str(file), choice=AttributeChoice())
    found = convert(RecordFields(), *features)
    assert rows_of(found) == read
    assert read[1]["attributes"] == {"mag": 1.5, "net": "us", "type": "quake"}
    by_path = RecordFields("text=properties.type,lat=geometry.coordinates.1")
    (row, *_) = rows_of(convert(by_path, features[1]))
    assert (row["text"], row["lat"], row["attributes"]) == ("quake", 1.0, {"mag": 1.5, "net": "us"})
    bad = features[0] | {"geometry": {"type": "LineString", "coordinates": [[0, 0], [1, 1]]}}
    assert "lon" in convert(RecordFields(), bad).bad[0]


@pytest.mark.parametrize(
    ("payload", "found"),
    [
        ('{"a": "\\ud800"}', {"a": "\ud800"}),
        ('{"a": 1e999}', '{"a": Infinity}'),
        ('{"a": ["\\udc00", -1e999]}', '{"a": ["\\udc00", -Infinity]}'),
        ("NaN", "NaN"),
        ("[" * 990 + "]" * 990, "[" * 990 + "]" * 990),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_no_payload_keeps_a_sink_from_writing(payload: str, found: Any) -> None:
    batch = delivery_pb2.DeliverBatch(
        session_seq=1,
        new_handles=[7],
        new_query_ids=["q"],
        pair_handles=[7],
        pair_objects=[0],
        object_ids=["a"],
        object_offsets=[1],
        payloads=[object_pb2.Payload(json=payload)],
    )
    data = delivery_pb2.DeliverResponse(batch=batch).SerializeToString()
    fields = delivery_pb2.DeliverFields(payload=True)
    [item] = encode_items(read_batch(data, {}, fields))

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    assert json.loads(item.body.encode(), parse_constant=refuse)["payload"] == found


def test_sinks_write_attributes_and_payloads() -> None:
    at = datetime(2026, 11, 24, 10, tzinfo=UTC)
    rows: list[dict[str, Any]] = [
        {"attributes": {"mag": 4.5, "at": at, "most": math.inf}, "payload": {"a": [1]}},
        {"payload": b"\xff"},
        {},
    ]
    place: dict[str, Any] = {"lon": 1, "lat": 2, "text": "x"}
    objects = object_batch([place | row for row in rows]).objects
    batch = delivery_pb2.DeliverBatch(
        session_seq=1,
        new_handles=[7],
        new_query_ids=["q"],
        pair_handles=[7] * 3,
        pair_objects=range(3),
        object_ids=["a", "b", "c"],
        object_offsets=[1, 2, 3],
        attributes=[o.attributes for o in objects],
        payloads=[o.payload for o in objects],
    )
    data = delivery_pb2.DeliverResponse(batch=batch).SerializeToString()
    fields = delivery_pb2.DeliverFields(attributes=True, payload=True)
    found = [json.loads(item.body) for item in encode_items(read_batch(data, {}, fields))]
    assert [
        {n: row.get(n) for n in ("attributes", "payload", "payload_base64")} for row in found
    ] == [
        {
            "attributes": {"at": "2026-11-24T10:00:00Z", "mag": 4.5, "most": "Infinity"},
            "payload": {"a": [1]},
            "payload_base64": None,
        },
        {"attributes": None, "payload": None, "payload_base64": "/w=="},
        {"attributes": None, "payload": None, "payload_base64": None},
    ]


@pytest.mark.parametrize("spec", ["text", "body=text", "lat=", "text=a,=b"])
def test_a_bad_mapping_is_refused(spec: str) -> None:
    with pytest.raises(InvalidArgument, match="fields: "):
        RecordFields(spec)


def test_pauses_grow_up_to_a_cap_and_never_undercut_what_was_asked() -> None:
    for chance, share in ((0.0, 0.5), (1.0, 1.0)):
        backoff = RetryBackoff(1.0, 10.0, lambda chance=chance: chance)  # type: ignore[misc]
        wholes = [backoff.pause(n) for n in range(6)] + [backoff.pause(10_000)]
        assert wholes == [share * whole for whole in (1, 2, 4, 8, 10, 10, 10)]
        assert backoff.pause(0, 7.0) == 7 + share


def test_offsets_are_due_once_all_before_them_are_done() -> None:
    flight = OffsetFlight()
    work: list[Future[Any]] = [Future() for _ in range(3)]
    for number, future in enumerate(work):
        flight.add(future, {("t", 0): number, ("t", number + 1): 11 + number})
    work[1].set_result(None)
    assert flight.advance() == 0
    assert flight.take() == {}
    work[0].set_result(None)
    assert flight.advance() == 2
    assert flight.take() == {("t", 0): 1, ("t", 1): 11, ("t", 2): 12}
    flight.gain([("t", 0), ("t", 1)])
    flight.forget([("t", 1)])
    flight.put_back({("t", 0): 1, ("t", 1): 11})
    assert flight.take() == {("t", 0): 1}
    for end in (1, 2, 0):  # commits fail in any order
        flight.put_back({("t", 0): end})
    work[2].set_result(ValueError("stop after this"))
    with pytest.raises(ValueError, match="stop"):
        flight.advance()
    assert flight.take() == {("t", 0): 2, ("t", 3): 13}
    assert len(flight) == 0


def test_properties_are_read_and_errors_never_show_a_value(tmp_path: Path) -> None:
    file = tmp_path / "librdkafka"
    file.write_text("# how\n sasl.password = a=b\n\nsecurity.protocol=SASL_SSL\n")
    wanted = {"sasl.password": "a=b", "security.protocol": "SASL_SSL"}
    assert read_config(file, ()) == wanted
    assert read_config(None, ()) == {}
    for text, place in (("secret\n", ":1: expected"), ("a=1\ngroup.id=secret\n", ":2: group.id")):
        file.write_text(text)
        with pytest.raises(InvalidArgument, match=place) as caught:
            read_config(file, ("group.id",))
        assert "secret" not in str(caught.value)


def test_signatures_are_those_of_standard_webhooks(tmp_path: Path) -> None:
    file = tmp_path / "secrets"
    file.write_text("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")
    id, body = "msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}'
    found = signed(read_secrets(file), id, 1614265330, body)
    assert found == {
        "webhook-id": id,
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    file.write_text("whsec_" + "A" * 32 + "\nwhsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    both = signed(read_secrets(file), id, 1614265330, body)["webhook-signature"]
    assert both.split()[1] == found["webhook-signature"]
    for secret in ("", "whsec_secret!", "whsec_c2VjcmV0"):
        file.write_text(secret)
        with pytest.raises(InvalidArgument) as caught:
            read_secrets(file)
        assert not secret or secret not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://example.org/", "plaintext"),
        ("http://10.0.0.1/", "plaintext"),
        ("ftp://localhost/", "expected an https URL"),
        ("https:///path", "expected an https URL"),
        ("https://me:secret@example.org/", "name or password"),
    ],
)
def test_a_url_that_would_show_matches_to_others_is_refused(url: str, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem) as caught:
        check_url(url, AddressReach.USUAL)
    assert "secret" not in str(caught.value)


def test_urls_that_are_fit() -> None:
    for url in ("https://example.org/hook", "http://127.0.0.1:80/", "http://localhost/x"):
        check_url(url, AddressReach.USUAL)


def test_retry_after_is_a_number_or_a_date() -> None:
    now = datetime(2026, 1, 5, 8, tzinfo=UTC)
    assert retry_after("7", now) == 7
    assert retry_after("Mon, 05 Jan 2026 08:01:00 GMT", now) == 60
    never = "Sun, 06 Nov 99999999999999999999 08:49:37 GMT"
    for nothing in ("", "soon", "-3", "nan", "Mon, 05 Jan 2026 07:00:00 GMT", never):
        assert retry_after(nothing, now) == 0


def test_bodies_are_bounded_and_a_gap_has_its_own() -> None:
    small = [DeliveryItem(n, "q", "x") for n in range(1, 6)]
    gap, large = DeliveryItem(9, None, "gap"), DeliveryItem(10, "q", "x" * MOST_BYTES)
    found = [[i.number for i in part] for part in parts(iter([*small, gap, large, *small]), 3)]
    assert found == [[1, 2, 3], [4, 5], [9], [10], [1, 2, 3], [4, 5]]


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        (BrokerAddress("localhost:1883"), "expected mqtt://"),
        (BrokerAddress("mqtt://localhost:x"), "expected mqtt://"),
        (BrokerAddress("mqtt://me:secret@localhost"), "name or password"),
        (BrokerAddress("mqtt://10.0.0.1", "me", Path("secret")), "plaintext to 10.0.0.1"),
        (BrokerAddress("mqtt://localhost", None, Path("secret")), "needs a username"),
        (
            BrokerAddress("mqtts://localhost", cert=Path("cert")),
            "must be set together with broker_key",
        ),
        (BrokerAddress("mqtt://localhost", ca=Path("ca")), "must be mqtts"),
    ],
)
def test_a_broker_that_would_be_reached_unsafely_is_refused(
    address: BrokerAddress, problem: str
) -> None:
    with pytest.raises(InvalidArgument, match=problem) as caught:
        where(address)
    assert "secret@" not in str(caught.value)


def test_a_broker_has_the_port_of_its_scheme() -> None:
    assert where(BrokerAddress("mqtt://b.example.org")) == ("b.example.org", 1883)
    assert where(BrokerAddress("mqtts://b.example.org")) == ("b.example.org", 8883)
    assert where(BrokerAddress("mqtts://[::1]:99", "me", Path("p"))) == ("::1", 99)


def test_a_flood_of_messages_without_acknowledgement_is_bounded() -> None:
    mqtt = pytest.importorskip("paho.mqtt.client", reason="pip install 'ps2stream[mqtt]'")
    session = MqttSession(BrokerAddress("mqtt://localhost"), "me", ["t"], window=3, expiry_s=1)

    def comes(qos: int) -> None:
        message = mqtt.MQTTMessage(topic=b"t")
        message.qos = qos
        session._on_message(None, None, message)

    for qos in (0, 1, 0, 0, 0, 1):
        comes(qos)
    assert [came.message.qos for came in session.take(100, 0.0)] == [0, 1, 0, 1]
    comes(0)
    assert len(session.take(100, 0.0)) == 1


def test_a_password_that_is_no_text_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("paho.mqtt.client", reason="pip install 'ps2stream[mqtt]'")
    (tmp_path / "password").write_bytes(b"\xff\xfe")
    address = BrokerAddress("mqtt://localhost", "me", tmp_path / "password")
    with pytest.raises(InvalidArgument, match="is not UTF-8"):
        MqttSession(address, "me", ["t"], window=3, expiry_s=1)


def test_a_record_that_brokers_take_is_not_too_large_for_a_dead_letter() -> None:
    """With librdkafka's own broker within the process; its default is less than a broker's."""
    kafka = pytest.importorskip("confluent_kafka", reason="pip install 'ps2stream[kafka]'")
    letters = RejectedRecords(kafka.Producer, {"test.mock.num.brokers": 1}, "dead")
    record = kafka.Message(topic="t", value=b"x" * 1_040_000, key=None, headers=None)
    letters.send([(record, "no post", "t/0/7")], threading.Event())
