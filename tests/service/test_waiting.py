"""Waiting for matches: `next`, `get_nowait`, iteration and batches, with both clients."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable

import pytest

from ps2stream import AsyncClient, Client
from ps2stream.errors import Cancelled, FailedPrecondition, Ps2StreamError, Unavailable

POST = {"lon": 1, "lat": 2, "text": "patience"}


def wait_for_match(get: Callable[[], object | None]) -> object:
    for _ in range(500):
        if (match := get()) is not None:
            return match
        time.sleep(0.01)
    raise AssertionError("no match came")


def test_next_waits_as_long_as_it_is_told(client: Client) -> None:
    client.insert("n1", "patience", session="n")
    with client.subscribe("n") as matches:
        assert matches.get_nowait() is None
        began = time.monotonic()
        with pytest.raises(TimeoutError, match=r"no match came within 0\.2 s"):
            matches.next(0.2)
        assert time.monotonic() - began >= 0.2
        client.publish([POST | {"id": str(i)} for i in range(3)])
        assert matches.next(10).object_id == "0"
        assert matches.next(0).object_id == "1"
        match = matches.get_nowait()
        assert match is not None
        assert match.object_id == "2"
        assert matches.get_nowait() is None
        client.publish([POST | {"id": "3"}])
        assert matches.next().object_id == "3"
    for ask in (matches.next, matches.get_nowait):
        with pytest.raises(FailedPrecondition, match="the subscription is closed"):
            ask()
    assert list(matches) == []
    client.delete("n1")


@pytest.mark.parametrize("forever", [1e12, float("inf")])
def test_a_limit_may_be_as_long_as_one_likes(target: str, forever: float) -> None:
    with Client(target, timeout=forever) as client, client.subscribe("l") as matches:
        client.insert("l1", "patience", session="l")
        client.publish([POST | {"id": "0"}])
        assert matches.next(forever).object_id == "0"
        client.delete("l1")


def test_each_way_goes_on_where_another_stopped(client: Client) -> None:
    client.insert("w1", "patience", session="w")
    with client.subscribe("w") as matches:
        client.publish([POST | {"id": str(i)} for i in range(10)])
        found = [matches.next(10).object_id]
        for match in matches:
            found.append(match.object_id)
            if len(found) == 4:
                break
        batch = next(matches.batches())
        found += [match.object_id for match in batch]
        assert found == [str(i) for i in range(10)]
        assert (batch.first, batch.last) == (5, 10)
        client.publish([POST | {"id": "last"}])
        assert next(matches).object_id == "last"
    with client.subscribe("w") as matches:
        assert matches.get_nowait() is None, "everything was acknowledged"
    client.delete("w1")


def test_what_next_did_not_hand_out_comes_again(client: Client) -> None:
    client.insert("u1", "patience", session="u")
    client.publish([POST | {"id": str(i)} for i in range(4)])
    with client.subscribe("u") as matches:
        assert [matches.next(10).object_id for _ in range(2)] == ["0", "1"]
    with client.subscribe("u") as matches:
        assert [matches.next(10).object_id for _ in range(2)] == ["2", "3"]
    client.delete("u1")


def test_a_batch_is_acknowledged_when_the_next_one_is_asked_for(client: Client) -> None:
    client.insert("k1", "patience", session="k")

    def fail_at_the_second() -> None:
        with client.subscribe("k") as matches:
            for id in ("first", "second"):
                client.publish([POST | {"id": id}])
                assert matches.next(10).object_id == id
            raise KeyError("amid the second")

    with pytest.raises(KeyError):
        fail_at_the_second()
    with client.subscribe("k") as matches:
        assert matches.next(10).object_id == "second"
    client.delete("k1")


def test_close_wakes_a_thread_that_waits(client: Client) -> None:
    errors: list[Exception] = []

    def wait() -> None:
        try:
            matches.next(60)
        except Ps2StreamError as error:
            errors.append(error)

    matches = client.subscribe("c")
    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    matches.close()
    thread.join(5)
    assert [type(error) for error in errors] == [FailedPrecondition]


def test_a_dropped_subscription_leaves_no_thread(client: Client) -> None:
    def readers() -> int:
        return sum(thread.name == "ps2stream-reader" for thread in threading.enumerate())

    before = readers()
    matches = client.subscribe("d")
    assert readers() == before + 1
    del matches
    for _ in range(100):
        if readers() == before:
            return
        time.sleep(0.05)
    raise AssertionError("the reader still runs")


def test_a_closed_client_raises_errors_of_ours(target: str) -> None:
    client = Client(target)
    client.health()
    client.close()
    for call in (
        client.health,
        client.status,
        client.subscribe,
        client.sample,
        lambda: client.publish([POST]),
        lambda: next(client.watch()),
        lambda: client.insert_many([("a", "b")]),
        lambda: list(client.publish_stream([[POST]])),
    ):
        with pytest.raises(FailedPrecondition, match="the client is closed"):
            call()
    client.close()


def test_nobody_there_is_an_error_of_ours() -> None:
    with Client("127.0.0.1:9", timeout=0.5) as client:
        for call in (client.subscribe, client.status, lambda: next(client.watch())):
            with pytest.raises(Unavailable, match="cannot connect"):
                call()


def test_the_asynchronous_client_waits_alike(target: str) -> None:
    async def wait_for_match() -> None:
        async with AsyncClient(target) as client:
            await client.insert("a1", "patience", session="a")
            async with client.subscribe("a") as matches:
                assert await matches.get_nowait() is None
                with pytest.raises(TimeoutError):
                    await matches.next(0.2)
                with pytest.raises(TimeoutError):  # a wait that is cut off loses nothing either
                    async with asyncio.timeout(0.1):
                        await matches.next()
                await client.publish([POST | {"id": str(i)} for i in range(5)])
                found = [(await matches.next(10)).object_id for _ in range(2)]
                async for match in matches:
                    found.append(match.object_id)
                    if len(found) == 3:
                        break
                async for batch in matches.batches(manual=True):
                    found += [match.object_id for match in batch]
                    matches.took(batch.last)
                    break
                assert found == [str(i) for i in range(5)]
                waiting = asyncio.create_task(matches.next())
                await asyncio.sleep(0.05)
            with pytest.raises(FailedPrecondition, match="the subscription is closed"):
                await waiting
            await client.delete("a1")

    asyncio.run(wait_for_match())


def test_a_closed_asynchronous_client_raises_errors_of_ours(target: str) -> None:
    async def close_amid_calls() -> None:
        reports: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
        client = AsyncClient(target)
        report = client.watch()

        async def watch_all() -> None:
            async for _ in report:
                pass

        subscription = client.subscribe("z")
        await subscription.open()
        waiting = asyncio.create_task(subscription.next())
        watching = asyncio.create_task(watch_all())
        await asyncio.sleep(0.05)
        await client.close()
        with pytest.raises(FailedPrecondition):
            await waiting
        with pytest.raises((Cancelled, Unavailable)):
            await watching
        for call in (client.health, client.status, lambda: client.publish([POST])):
            with pytest.raises(FailedPrecondition, match="the client is closed"):
                await call()
        dropped = AsyncClient(target).subscribe("y")
        with pytest.raises(TimeoutError):
            await dropped.next(0.2)
        del dropped, subscription, waiting, watching
        gc.collect()
        await asyncio.sleep(0.05)
        assert reports == []

    asyncio.run(close_amid_calls())


def test_a_cancelled_task_ends_even_while_the_client_is_closed(target: str) -> None:
    async def cancel_and_close() -> None:
        client = AsyncClient(target)
        await client.health()
        calls = [asyncio.create_task(call()) for call in (client.status, client.sample)]
        await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await client.close()
        for call in calls:
            with pytest.raises(asyncio.CancelledError):
                await call

    asyncio.run(cancel_and_close())
