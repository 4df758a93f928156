"""The main job through the public client, over a real port."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pytest

from ps2stream import AsyncClient, Client
from ps2stream.client.answers import RefusedRow
from ps2stream.client.requests import Query
from ps2stream.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound
from ps2stream.space.regions import Circle, Polygon, Rect
from ps2stream.v1 import delivery_pb2

SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [2, 0], [2, 2], [0, 2], [0, 0]]]}


def test_matches_come_with_everything_asked_for(client: Client) -> None:
    client.insert("m1", "flood AND (river OR creek)", Circle(0.0, 51.0, 30.0), session="m")
    client.insert("m2", "flood", session="m")
    client.insert("m3", "", [-1, 50, 1, 52], session="m")
    with client.subscribe("m") as matches:
        receipt = client.publish(
            [
                {"id": "o1", "lon": 0, "lat": 51, "text": "A flood at the River", "time": 1234},
                {"lon": 100, "lat": -5, "text": "FLOOD!"},
            ]
        )
        found = {}
        for match in matches:
            found[match.query_id, match.offset - receipt.first_offset] = match
            if len(found) == 4:
                break
    assert set(found) == {("m1", 0), ("m2", 0), ("m3", 0), ("m2", 1)}
    first = found["m1", 0]
    assert (first.object_id, first.lon, first.lat, first.time) == ("o1", 0.0, 51.0, 1234)
    assert first.text == "A flood at the River"
    assert found["m2", 1].object_id == ""
    for id in ("m1", "m2", "m3"):
        client.delete(id)


def test_fields_that_were_not_asked_for_stay_away(client: Client) -> None:
    client.insert("f1", "quiet", session="f")
    with client.subscribe("f", text=False, position=False, time=False) as matches:
        client.publish([{"lon": 1, "lat": 2, "text": "quiet"}])
        match = next(iter(matches))
    assert (match.text, match.lon, match.lat, match.time) == (None, None, None, None)
    client.delete("f1")


def test_queries_of_one_meaning_are_one(client: Client) -> None:
    first = client.insert("g1", "b AND a", Rect(170, 0, -170, 10), session="g")
    assert client.insert("g1", "a b", Rect(170, 0, -170, 10), session="g") == first
    assert client.get("g1") == Query("g1", "b AND a", Rect(170, 0, -170, 10), "g")
    client.insert("g2", "c", SQUARE, session="g")
    region = client.get("g2").region
    assert isinstance(region, Polygon)
    assert region.contains(1, 1)
    client.insert("g3", "", Circle(1, 2, 3), session="g")
    assert [q.id for q in client.list("g", page_size=2)] == ["g1", "g2", "g3"]
    assert client.get("g3").region == Circle(1, 2, 3)
    with pytest.raises(AlreadyExists, match="'g1' exists with another"):
        client.insert("g1", "a", session="g")
    with pytest.raises(AlreadyExists):
        client.insert("g1", "a b", Rect(170, 0, -170, 10), session="other")
    client.delete_many(["g1", "g2", "g3"])
    assert list(client.list("g")) == []
    for attempt in (client.get, client.delete):
        with pytest.raises(NotFound, match="there is no query 'g1'"):
            attempt("g1")


def test_bulk_insert_takes_the_good_and_names_the_bad(client: Client) -> None:
    rows: list[Any] = [(f"b{i}", f"word{i} river", [0, 0, 1, 1]) for i in range(2500)]
    rows[7] = ("b7", "( river", [0, 0, 1, 1])
    rows[2100] = ("b2100", "", None)
    refused: list[RefusedRow] = []
    lsns = client.insert_many(rows, session="b", refused=refused)
    assert [r.row for r in refused] == [7, 2100]
    assert [i for i, lsn in enumerate(lsns) if not lsn] == [7, 2100]
    assert len({*lsns}) == 2499
    with pytest.raises(InvalidArgument, match=r"queries\[0\].expression: column 2"):
        client.insert_many([("bad", "(")], session="b")
    with pytest.raises(NotFound, match=r"queries\[1\]"):
        client.delete_many(["b0", "b7"])
    assert sum(1 for _ in client.list("b")) == 2497
    client.delete_many(r[0] for r in rows if r[0] not in ("b0", "b7", "b2100"))


def test_a_bulk_source_that_fails_raises_its_own_error(client: Client) -> None:
    def rows() -> object:
        yield ("s1", "word", None)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        client.insert_many(rows(), session="s")  # type: ignore[arg-type]


def test_columns_and_streams(client: Client) -> None:
    client.insert("c1", "storm", session="c")
    n = 1000
    columns = {"lon": np.linspace(-180, 180, n), "lat": np.zeros(n), "text": ["storm"] * n}
    receipts = list(client.publish_stream([columns] * 5))
    assert [r.accepted for r in receipts] == [n] * 5
    assert [r.first_offset - receipts[0].first_offset for r in receipts] == list(range(0, 5000, n))
    batch = pa.RecordBatch.from_pydict(
        {
            "id": pa.array([None, "x"], pa.large_string()),
            "time": pa.array([datetime(2020, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
            "lon": [1.0, 2.0],
            "lat": [1.0, 2.0],
            "text": pa.array(["storm", "storm"], pa.string()),
        }
    )
    client.publish_arrow(batch.slice(1))
    last = client.publish_arrow(batch)
    seen = set()
    with client.subscribe("c") as matches:
        for found in matches.batches():
            assert found.query_ids == ["c1"] * len(found)
            seen.update(found.offsets[found.objects].tolist())
            if last.first_offset + 1 in seen:
                break
    assert found.time is not None
    assert found.time[0] == 1577836800000
    assert found.object_ids == ["", "x"]
    assert len(seen) == 5003
    client.delete("c1")


def test_partial_batches_and_levels(client: Client) -> None:
    rows = [
        {"lon": 1, "lat": 1, "text": "a"},
        {"lon": float("nan"), "lat": 91, "text": "b"},
        {"lon": 1, "lat": 1, "text": "c"},
    ]
    with pytest.raises(InvalidArgument) as caught:
        client.publish(rows)
    assert [v.field for v in caught.value.violations] == [
        "batch.objects[1].lat",
        "batch.objects[1].lon",
    ]
    receipt = client.publish(rows, allow_partial=True)
    assert (receipt.accepted, [r.row for r in receipt.refused]) == (2, [1, 1])
    assert client.publish(rows[:1], level="none").level == "none"
    assert client.publish(rows[:1]).level == "durable"
    assert client.publish(rows[:1], level="accepted").level == "accepted"
    with pytest.raises(
        InvalidArgument, match="expected one of accepted, durable, none, got 'maybe'"
    ):
        client.publish(rows[:1], level="maybe")


def test_status_names_the_plan_and_the_dispatcher(client: Client) -> None:
    found = client.status()
    assert (found["plan_version"], found["dispatcher"]) == ("1", 0)


def test_looking_at_an_unknown_session_makes_none(client: Client) -> None:
    def number(session: str) -> int:
        upward = delivery_pb2.DeliverRequest(start=delivery_pb2.Start(session=session))
        with grpc.insecure_channel(client.target) as channel:
            method: Any = channel.stream_stream("/ps2stream.v1.PubSub/Deliver")
            first = next(method(iter([upward.SerializeToString()]), timeout=60))
        return int(delivery_pb2.DeliverResponse.FromString(first).started.session)

    before = number("known")
    assert list(client.list("never-seen-1")) == []
    assert list(client.list("never-seen-2")) == []
    assert number("the next one") == before + 1


def test_the_newest_stream_takes_the_session_over(client: Client) -> None:
    old = client.subscribe("t")
    with client.subscribe("t"), pytest.raises(FailedPrecondition, match="taken the session over"):
        next(old.batches())
    old.close()


def test_unacknowledged_matches_come_again_and_acknowledged_ones_do_not(client: Client) -> None:
    client.insert("u1", "again", session="u")
    client.publish([{"id": "1", "lon": 0, "lat": 0, "text": "again"}])
    client.publish([{"id": "2", "lon": 0, "lat": 0, "text": "again"}])
    with suppress(ZeroDivisionError), client.subscribe("u") as matches:
        assert next(iter(matches)).object_id == "1"
        raise ZeroDivisionError
    with client.subscribe("u") as matches:
        assert next(iter(matches)).object_id == "1"
    with client.subscribe("u") as matches:
        assert next(iter(matches)).object_id == "2"
    client.delete("u1")


def test_close_from_another_thread_ends_the_iteration(client: Client) -> None:
    matches = client.subscribe("idle")
    threading.Timer(0.2, matches.close).start()
    assert list(matches) == []


def test_the_asynchronous_client_does_the_same(target: str) -> None:
    async def main() -> list[str]:
        async with AsyncClient(target, timeout=90) as client:
            assert await client.insert("a1", "async", session="a")
            lsns = await client.insert_many([("a2", "async OR word"), ("a3", "word")], session="a")
            assert len(lsns) == 2
            assert [q.id async for q in client.list("a")] == ["a1", "a2", "a3"]
            found = []
            async with client.subscribe("a") as matches:
                await client.publish({"lon": [1.0], "lat": [1.0], "text": ["async!"], "id": ["o"]})
                async for match in matches:
                    found.append(match.query_id)
                    if len(found) == 2:
                        break
            row = {"lon": 0, "lat": 0, "text": "none"}
            receipts = [r async for r in client.publish_stream([[row]] * 20, in_flight=3)]
            first = receipts[0].first_offset
            assert [r.first_offset for r in receipts] == list(range(first, first + 20))
            with pytest.raises(InvalidArgument, match="contains no objects"):
                _ = [r async for r in client.publish_stream([[]])]
            with pytest.raises(NotFound):
                await client.delete("none")
            await client.delete_many(["a1", "a2", "a3"])
            assert (await client.status())["streams"] == 0
            return found

    assert sorted(asyncio.run(main())) == ["a1", "a2"]


def test_a_cursor_that_is_ahead_of_the_session_is_refused(client: Client) -> None:
    with client.subscribe("ahead") as matches:
        kept = delivery_pb2.Cursor.FromString(matches.cursor)
    kept.session_seq = 1
    with pytest.raises(FailedPrecondition, match="cursor: 1 is above 0"):
        client.subscribe("ahead", cursor=kept.SerializeToString(), reconnect=False)
    with pytest.raises(InvalidArgument, match="is not a cursor"):
        client.subscribe("ahead", cursor=b"\xff")


def test_a_cursor_of_another_session_is_refused_and_ends_nothing(client: Client) -> None:
    post = {"id": "o", "lon": 0.0, "lat": 0.0, "text": "cursored"}
    for session in ("one", "other"):
        client.insert(f"of {session}", "cursored", session=session)
    client.publish([post])
    with client.subscribe("one") as matches:
        assert next(iter(matches)).query_id == "of one"
    kept = delivery_pb2.Cursor.FromString(matches.cursor)
    with client.subscribe("other") as others:
        with pytest.raises(FailedPrecondition, match="cursor: it belongs to another session"):
            client.subscribe("other", cursor=matches.cursor, reconnect=False)
        assert next(iter(others)).query_id == "of other"
    kept.session = 0  # as clients kept it before
    client.publish([post | {"id": "p"}])
    with client.subscribe("one", cursor=kept.SerializeToString()) as matches:
        assert next(iter(matches)).object_id == "p"


def test_a_cursor_that_is_kept_with_what_was_made_of_it_counts_each_match_once(
    client: Client,
) -> None:
    """Whoever dies after keeping both, unacknowledged, goes on behind the match in hand."""
    client.insert("kept", "kept", session="keeper")
    for name in "abc":
        client.publish([{"id": name, "lon": 0.0, "lat": 0.0, "text": "kept"} for _ in range(2)])
    kept: tuple[list[str], bytes] = ([], b"")
    for end in (1, 3, 4, 6):
        stream = client.subscribe("keeper", cursor=kept[1])
        with suppress(InterruptedError), stream as matches:
            for match in matches:
                kept = ([*kept[0], match.object_id], stream.cursor)
                if len(kept[0]) == end:
                    raise InterruptedError
    assert kept[0] == list("aabbcc")


def test_the_cursor_of_the_asynchronous_client_holds_the_batch_in_hand(target: str) -> None:
    async def main() -> list[str]:
        found: list[str] = []
        cursor = b""
        async with AsyncClient(target, timeout=90) as client:
            await client.insert("held", "held", session="holder")
            for name in "ab":
                await client.publish([{"id": name, "lon": 0.0, "lat": 0.0, "text": "held"}])
                with suppress(InterruptedError):
                    async with client.subscribe("holder", cursor=cursor) as matches:
                        async for batch in matches.batches():
                            found += batch.object_ids
                            cursor = matches.cursor
                            raise InterruptedError
        return found

    assert asyncio.run(main()) == ["a", "b"]


def test_what_is_taken_by_hand_is_acknowledged_and_nothing_else(client: Client) -> None:
    client.insert("by-hand", "glacier", session="by-hand")
    for _ in range(5):
        client.publish([{"lon": 0.0, "lat": 0.0, "text": "glacier"}] * 2)
    with client.subscribe("by-hand") as matches:
        batches = matches.batches(manual=True)
        seen: list[int] = []
        while sum(seen) < 10:
            seen.append(len(next(batches)))
        matches.took(3)
        kept = matches.cursor
        assert kept == matches.cursor_at(3) != matches.cursor_at(4)
    with client.subscribe("by-hand") as matches:
        again = matches.batches(manual=True)
        assert next(again).first == 4
    with client.subscribe("by-hand", cursor=kept) as matches:
        assert next(matches.batches()).first == 4
