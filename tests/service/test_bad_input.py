"""Whatever arrives: the right status, the field named, never UNKNOWN."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ps2stream.cli import main
from ps2stream.protocol.arrow_ipc import to_ipc
from ps2stream.v1 import delivery_pb2, object_pb2, pubsub_pb2, pubsub_pb2_grpc, query_pb2
from tests.support.methods import STREAMS, UNARY

Code = grpc.StatusCode


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(name=st.sampled_from(UNARY + STREAMS), data=st.binary(max_size=200))
def test_random_bytes(call: Any, name: str, data: bytes) -> None:
    code, _, _ = call(name, data)
    assert code in (Code.OK, Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.FAILED_PRECONDITION)


def query(**fields: Any) -> bytes:
    fields = {"id": "q", "expression": "word", "session": "s"} | fields
    message = query_pb2.Query(**fields)
    return pubsub_pb2.InsertQueryRequest(query=message).SerializeToString()


def rectangle(*sides: float | None) -> query_pb2.Region:
    names = ("lon_min", "lat_min", "lon_max", "lat_max")
    given_ = {n: s for n, s in zip(names, sides, strict=True) if s is not None}
    return query_pb2.Region(rectangle=query_pb2.Rectangle(**given_))


def geojson(text: str) -> query_pb2.Region:
    return query_pb2.Region(geojson=text)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("fields", "field", "problem"),
    [
        ({"id": ""}, "query.id", "0 bytes are not in 1..128"),
        ({"id": "x" * 129}, "query.id", "129 bytes"),
        ({"session": ""}, "query.session", "expected 1 to 128 bytes"),
        ({"session": "x" * 129}, "query.session", "expected 1 to 128 bytes"),
        ({"expression": "("}, "query.expression", "column 2"),
        ({"expression": "word NOT"}, "query.expression", "column 9: expected a keyword"),
        ({"expression": '"word'}, "query.expression", "column 1: this quote is not closed"),
        ({"expression": "~word"}, "query.expression", "~ is reserved"),
        ({"expression": "word -WORD"}, "query.expression", "can match nothing"),
        ({"expression": "!!!"}, "query.expression", "nothing to search for"),
        ({"expression": ""}, "query.expression", "an expression or a region"),
        ({"expression": "(" * 9 + "a" + ")" * 9}, "query.expression", "depth"),
        ({"expression": " ".join(f"t{i}" for i in range(65))}, "query.expression", "terms"),
        ({"expression": "a" * 8193}, "query.expression", "bytes"),
        ({"region": rectangle(0, NAN, 1, 1)}, "query.region.rectangle.lat_min", "not finite"),
        ({"region": rectangle(0, 0, INF, 1)}, "query.region.rectangle.lon_max", "not finite"),
        ({"region": rectangle(-181, 0, 1, 1)}, "query.region.rectangle.lon_min", "-181"),
        ({"region": rectangle(0, 2, 1, 1)}, "query.region.rectangle.lat_min", "above"),
        ({"region": rectangle(0, 2, None, 3)}, "query.region.rectangle.lon_max", "is missing"),
        ({"region": query_pb2.Region()}, "query.region", "no shape"),
        ({"until_ms": 1}, "query.until_ms", "is over"),
        (
            {"region": query_pb2.Region(circle=query_pb2.Circle(lon=0, lat=0, radius_km=0))},
            "query.region.circle.radius_km",
            "above 0",
        ),
        ({"region": geojson("[" * 30000)}, "query.region.geojson", "not JSON"),
        ({"region": geojson('{"type":"Point"}')}, "query.region.geojson", "expected a GeoJSON"),
        (
            {"region": geojson('{"type":"Polygon","coordinates":[[[0,0],[1,1],[1,0]]]}')},
            "query.region.geojson.coordinates[0]",
            "at least 4",
        ),
        (
            {
                "region": geojson(
                    '{"type":"Polygon","coordinates":[[[0,0],[1' + "0" * 400 + ",1],[1,0],[0,0]]]}"
                )
            },
            "query.region.geojson.coordinates[0][1]",
            "",
        ),
    ],
)
def test_bad_queries(call: Any, fields: dict[str, Any], field: str, problem: str) -> None:
    code, violations, _ = call("InsertQuery", query(**fields))
    assert code == Code.INVALID_ARGUMENT
    assert problem in violations[field]


def test_a_text_that_folds_to_too_much_is_refused_by_name(call: Any) -> None:
    fits = object_pb2.Object(lon=0, lat=0, text="\ufdfa" * 3_700)
    large = object_pb2.Object(lon=0, lat=0, text="\ufdfa" * 4_000)
    batch = object_pb2.ObjectBatch(objects=[fits, large])
    request = pubsub_pb2.PublishRequest(batch=batch).SerializeToString()
    code, violations, _ = call("Publish", request)
    assert code == Code.INVALID_ARGUMENT
    assert violations == {
        "batch.objects[1].text": (
            "140000 bytes once folded are over the limit folded_text_bytes 131072"
        )
    }


def test_oversized_requests_name_the_limit(call: Any) -> None:
    data = query(expression="word " * 220_000)
    code, violations, _ = call("InsertQuery", data)
    assert code == Code.INVALID_ARGUMENT
    assert "query_bytes 1048576" in violations["request"]
    row = object_pb2.Object(lon=0, lat=0, text="x" * 60_000)
    batch = object_pb2.ObjectBatch(objects=[row] * 72)
    data = pubsub_pb2.PublishRequest(batch=batch).SerializeToString()
    code, violations, _ = call("Publish", data)
    assert code == Code.INVALID_ARGUMENT
    assert "batch_bytes 4194304" in violations["request"]
    assert call("Publish", data * 2)[0] == Code.RESOURCE_EXHAUSTED


def publish(batch: object_pb2.ObjectBatch, **fields: Any) -> bytes:
    return pubsub_pb2.PublishRequest(batch=batch, **fields).SerializeToString()


@pytest.mark.parametrize(
    ("row", "field", "problem"),
    [
        ({"lat": 0, "text": "a"}, "lon", "is missing, or"),
        ({"lon": 0, "lat": -90.001, "text": "a"}, "lat", "-90.001"),
        ({"lon": 0, "lat": 0, "id": "x" * 129}, "id", "id_bytes 128"),
        ({"lon": 0, "lat": 0, "text": "x" * 65_537}, "text", "text_bytes 65536"),
        ({"lon": 0, "lat": 0, "text": "a", "until_ms": 1}, "until_ms", "is over"),
    ],
)
def test_bad_objects(call: Any, row: dict[str, Any], field: str, problem: str) -> None:
    good = object_pb2.Object(lon=0, lat=0)
    batch = object_pb2.ObjectBatch(objects=[good, object_pb2.Object(**row)])
    code, violations, _ = call("Publish", publish(batch))
    assert code == Code.INVALID_ARGUMENT
    assert problem in violations[f"batch.objects[1].{field}"]


def test_rows_of_messages_name_the_fields_of_messages(target: str) -> None:
    rows = [
        query_pb2.Query(id="a", expression="word", until_ms=1),
        query_pb2.Query(id="b", region=rectangle(0, 2, 1, 1)),
        query_pb2.Query(id="", expression="word"),
    ]
    batch = query_pb2.QueryBatch(queries=rows, session="s")
    with grpc.insecure_channel(target) as channel:
        insert = pubsub_pb2_grpc.PubSubStub(channel).InsertQueries
        [answer] = insert(iter([pubsub_pb2.InsertQueriesRequest(batch=batch)]), timeout=60)
    fields = ["until_ms", "region.rectangle.lat_min", "id"]
    assert [(e.row, e.field) for e in answer.errors] == list(enumerate(fields))


def test_empty_and_ambiguous_batches(call: Any) -> None:
    for name in ("Publish", "PublishStream", "InsertQueries", "DeleteQueries"):
        assert call(name, b"")[0] == Code.INVALID_ARGUMENT
    both = object_pb2.ObjectBatch(objects=[object_pb2.Object()], arrow=b"x")
    assert "send one" in call("Publish", publish(both))[1]["batch"]


def test_bad_fields_of_a_publication(call: Any) -> None:
    batch = object_pb2.ObjectBatch(objects=[object_pb2.Object(lon=0, lat=0)])
    for fields, where, problem in (
        ({"producer": "p"}, "seq", "numbers its publications from 1"),
        ({"seq": 1}, "producer", "expected 1 to 128 bytes, got 0"),
        ({"producer": "p" * 129, "seq": 1}, "producer", "expected 1 to 128 bytes, got 129"),
        ({"producer": "p\0q", "seq": 1}, "producer", "NUL"),
        ({"level": 99}, "level", "unknown level 99"),
    ):
        code, violations, _ = call("Publish", publish(batch, **fields))
        assert code == Code.INVALID_ARGUMENT
        assert problem in violations[where]


def test_a_cursor_of_another_service_is_refused(call: Any) -> None:
    kept = delivery_pb2.Cursor(incarnation=12345, session_seq=0)
    start = delivery_pb2.Start(session="s", cursor=kept)
    data = delivery_pb2.DeliverRequest(start=start).SerializeToString()
    code, _, message = call("Deliver", data)
    assert (code, "cursor" in message) == (Code.FAILED_PRECONDITION, True)


def test_a_deliver_stream_starts_with_a_start(call: Any) -> None:
    credit = delivery_pb2.DeliverRequest(credit=delivery_pb2.Credit(batches=1))
    assert "must be a start" in call("Deliver", credit.SerializeToString())[1]["event"]
    huge = delivery_pb2.Start(session="s", credit_bytes=1 << 40)
    data = delivery_pb2.DeliverRequest(start=huge).SerializeToString()
    assert "over the limit" in call("Deliver", data)[1]["start.credit_bytes"]


def test_page_tokens_and_sizes(call: Any) -> None:
    for request, field in (
        (pubsub_pb2.ListQueriesRequest(page_token="x"), "page_token"),
        (pubsub_pb2.ListQueriesRequest(page_size=-1), "page_size"),
    ):
        code, violations, _ = call("ListQueries", request.SerializeToString())
        assert code == Code.INVALID_ARGUMENT
        assert field in violations


# --- Arrow --------------------------------------------------------------------


def table(**columns: Any) -> pa.RecordBatch:
    base: dict[str, Any] = {"lon": [0.0], "lat": [0.0], "text": ["a"]}
    return pa.RecordBatch.from_pydict(base | columns)


def ipc(batch: pa.RecordBatch, copies: int = 1, compression: str | None = None) -> bytes:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        for _ in range(copies):
            writer.write_batch(batch)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("data", "field", "problem"),
    [
        (b"junk", "batch.arrow", "not an Arrow IPC stream"),
        (to_ipc(table())[:-40], "batch.arrow", ""),
        (to_ipc(table(lon=["0"])), "batch.arrow.lon", "expected double, got string"),
        (to_ipc(table(text=[1])), "batch.arrow.text", "expected string or large_string"),
        (to_ipc(table(time=[1.5])), "batch.arrow.time", "expected timestamp"),
        (to_ipc(table(tags=[[1]])), "batch.arrow.tags", "wrong column type, expected an integer"),
        (to_ipc(table(payload=["{"])), "batch.objects[0].payload", "is not JSON: Expecting"),
        (to_ipc(table().drop_columns(["lat"])), "batch.arrow.lat", "missing column"),
        (
            to_ipc(table(lon=pa.array([None], pa.float64()))),
            "batch.objects[0].lon",
            "is missing, or",
        ),
        (ipc(table(), copies=2), "batch.arrow", "expected one record batch, got 2"),
        (ipc(table(), copies=0), "batch.arrow", "expected one record batch, got 0"),
        (ipc(table(text=["a" * 9999]), compression="zstd"), "batch.arrow", "compressed"),
        (to_ipc(table().slice(0, 0)), "batch", "contains no objects"),
    ],
)
def test_bad_arrow(call: Any, data: bytes, field: str, problem: str) -> None:
    code, violations, _ = call("Publish", publish(object_pb2.ObjectBatch(arrow=data)))
    assert code == Code.INVALID_ARGUMENT
    assert problem in violations[field]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(at=st.integers(0, 10_000), byte=st.integers(0, 255), cut=st.integers(0, 10_000))
def test_damaged_arrow(call: Any, at: int, byte: int, cut: int) -> None:
    columns = {"text": ["a", "", "ccc"], "road": ["A1", None, "é"], "payload": ["1", "{}", None]}
    data = bytearray(to_ipc(table(lon=[1.0] * 3, lat=[2.0] * 3, **columns)))
    data[at % len(data)] = byte
    if cut < 2000:
        del data[cut % len(data) :]
    code, _, _ = call("Publish", publish(object_pb2.ObjectBatch(arrow=bytes(data))))
    assert code in (Code.OK, Code.INVALID_ARGUMENT)


def test_queries_as_arrow(call: Any, target: str) -> None:
    sides = {n: pa.array([0.0, None, 5.0], pa.float64()) for n in ("lon_min", "lat_min")}
    sides |= {n: pa.array([1.0, None, None], pa.float64()) for n in ("lon_max", "lat_max")}
    batch = pa.RecordBatch.from_pydict(
        {"id": ["ar1", "ar2", "ar3"], "expression": ["a", "b", "c"], **sides}
    )
    message = pubsub_pb2.InsertQueriesRequest(
        batch=query_pb2.QueryBatch(arrow=to_ipc(batch), session="ar")
    )
    with grpc.insecure_channel(target) as channel:
        method: Any = channel.stream_stream("/ps2stream.v1.PubSub/InsertQueries")
        (data,) = method(iter([message.SerializeToString()]), timeout=60)
    answer = pubsub_pb2.InsertQueriesResponse.FromString(data)
    assert [lsn > 0 for lsn in answer.lsns] == [True, True, False]
    assert {e.field for e in answer.errors} == {"region.lon_max", "region.lat_max"}
    assert {e.row for e in answer.errors} == {2}


# --- files of queries -----------------------------------------------------------


def test_queries_of_a_file_are_refused_by_their_lines(target: str, tmp_path: Path) -> None:
    """Also behind lines that are blank, or that are not even sent."""
    lines = [
        "", '{"id": "file1", "expression": "flood"}', "  ", '{"id": 5}', "",
        '{"id": "file2", "expression": "flood AND"}', '{"id": "", "expression": "flood"}',
        '{"id": "file1", "expression": "river"}', '{"id": "file4", "expression": "x\\ud800"}',
        '{"id": "file3", "expression": "flood", "until": true}',
        '{"id": "file5", "expression": "flood"}',
    ]  # fmt: skip
    file = tmp_path / "queries.jsonl"
    file.write_text("\n".join(lines))
    found = CliRunner().invoke(main, ["insert", "--file", str(file), "--server", target])
    first, *refused = found.output.splitlines()
    assert (found.exit_code, first) == (1, "inserted 2 queries")
    places = [line.removeprefix(str(tmp_path)).split(": ")[0] for line in refused]
    assert places == [
        "/queries.jsonl:4 id",
        "/queries.jsonl:6 expression",
        "/queries.jsonl:7 id",
        "/queries.jsonl:8",
        "/queries.jsonl:9 expression",
        "/queries.jsonl:10 until",
    ]
    assert "with a time zone, got true\n" in found.output
    assert "queries[" not in found.output
