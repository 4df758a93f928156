"""ps2stream/assistant/inbox.py beside a service: other readers, much at once, a restart."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ps2stream.assistant import inbox as inbox_module
from ps2stream.assistant.arguments import ReadArguments
from ps2stream.assistant.callers import AssistantCaller
from ps2stream.assistant.inbox import InboxEntry, InboxPage, MatchInbox
from ps2stream.assistant.tools import AssistantTools
from ps2stream.client.async_client import AsyncClient
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import FailedPrecondition, NotFound, Unavailable
from ps2stream.web.api.cursors import CursorWriter, StreamCursor, read_cursor
from tests.assistant.conftest import POST, TIMEOUT_S

KEY = b"k" * 32
ALL_BYTES = 1 << 20
QUOTA = 64 << 10


class CallerDesk:
    """A caller, and what it needs to be fed."""

    def __init__(self, client: AsyncClient, caller: AssistantCaller) -> None:
        self.client = client
        self.caller = caller
        self.inbox: MatchInbox = caller.inbox

    async def subscribe_to(self, word: str) -> None:
        await self.client.insert(f"{self.caller.session}-q", word, session=self.caller.session)

    async def publish(self, *texts: str) -> None:
        await self.client.publish([POST | {"text": text} for text in texts])

    async def read(self, after: StreamCursor | None = None, limit: int = 100) -> InboxPage:
        return await self.inbox.read(after, limit, ALL_BYTES, 10)

    def place_of(self, number: int) -> StreamCursor:
        writer = CursorWriter(KEY, self.caller.session, False, self.inbox.place())
        return read_cursor(KEY, writer.write(number))

    async def read_all(self, count: int, limit: int = 100) -> list[str]:
        """The texts of so many matches, each acknowledged by the cursor behind it."""
        texts: list[str] = []
        after = None
        async with asyncio.timeout(TIMEOUT_S):
            while len(texts) < count:
                page = await self.read(after, limit)
                texts += [entry.row["untrusted_text"] for entry in page.entries]
                after = self.place_of(page.last)
            await self.inbox.read(after, 1, ALL_BYTES, 0)
        return texts


@asynccontextmanager
async def open_desk(target: str, session: str) -> AsyncIterator[CallerDesk]:
    async with AsyncClient(target, timeout=10) as client:
        caller = AssistantCaller(client, session, "secret")
        try:
            yield CallerDesk(client, caller)
        finally:
            await caller.close()


def run_desk(target: str, session: str, work: Callable[[CallerDesk], Awaitable[None]]) -> None:
    async def run() -> None:
        async with open_desk(target, session) as desk:
            await work(desk)

    asyncio.run(run())


def test_what_waits_is_bounded_and_all_of_it_comes(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox_module, "ROOM", 2000)
    texts = [f"much {i:03}" for i in range(200)]

    async def work(desk: CallerDesk) -> None:
        await desk.subscribe_to("much")
        await desk.inbox.start()
        for at in range(0, 200, 5):
            await desk.publish(*texts[at : at + 5])
        page = await desk.read()
        assert 0 < len(page.entries) < 100  # the others wait in the service
        assert await desk.read_all(200, limit=7) == texts

    run_desk(target, "much", work)


def test_an_answer_is_bounded_in_bytes(target: str) -> None:
    async def work(desk: CallerDesk) -> None:
        await desk.subscribe_to("large")
        await desk.publish(*("large " + "x" * 1500 for _ in range(4)))
        await desk.read_all(0)
        found: list[InboxEntry] = []
        after = None
        while len(found) < 4:
            page = await desk.inbox.read(after, 100, 100, 10)
            assert len(page.entries) == 1  # one at least
            found += page.entries
            after = desk.place_of(page.last)

    run_desk(target, "large", work)


def test_the_newest_reader_takes_the_session(target: str) -> None:
    async def work(first: CallerDesk) -> None:
        await first.subscribe_to("taken")
        await first.publish("taken one")
        assert await first.read_all(1) == ["taken one"]
        async with open_desk(target, "taken") as second:
            waiting = asyncio.create_task(first.inbox.read(None, 1, ALL_BYTES, TIMEOUT_S))
            await asyncio.sleep(0)  # it waits
            await second.inbox.start()
            with pytest.raises(FailedPrecondition, match="another reader has taken over"):
                await waiting
            await second.publish("taken two")
            # An acknowledgement may have been on its way: the cursor knows it.
            page = await second.read(second.place_of(1))
            assert [e.row["untrusted_text"] for e in page.entries] == ["taken two"]
        await first.inbox.start()
        again = await first.read(first.place_of(1))  # the second acknowledged no more than that
        assert again.entries == page.entries

    run_desk(target, "taken", work)


def test_two_reads_at_once_get_the_same(target: str) -> None:
    async def work(desk: CallerDesk) -> None:
        await desk.subscribe_to("both")
        reads = [asyncio.create_task(desk.read()) for _ in range(2)]
        await desk.inbox.start()
        await desk.publish("both of you")
        one, other = await asyncio.gather(*reads)
        assert one == other
        assert len(one.entries) == 1

    run_desk(target, "both", work)


def test_a_cursor_of_another_session_is_unknown(target: str) -> None:
    async def work(desk: CallerDesk) -> None:
        async with open_desk(target, "another") as other:
            await other.inbox.start()
            foreign = other.place_of(1)
            for wrong in (foreign, dataclasses.replace(foreign, name="one")):
                with pytest.raises(NotFound, match="not known here"):
                    await desk.read(wrong)

    run_desk(target, "one", work)


def test_it_goes_on_when_the_service_is_back(tmp_path: Path) -> None:
    """What was not acknowledged comes again, and the cursor of before still leads on."""

    def settings(port: int) -> Settings:
        return Settings(runtime="local", port=port, workers=1, data_dir=tmp_path)

    async def run() -> None:
        running = start(settings(0))
        target = running.targets[0]
        try:
            async with open_desk(target, "back") as desk:
                await desk.subscribe_to("back")
                await desk.publish("back one", "back two")
                page = await desk.read(limit=1)
                while not page.more:
                    page = await desk.read(limit=1)
                after = desk.place_of(page.last)
                await asyncio.to_thread(running.stop)
                running = await asyncio.to_thread(start, settings(int(target.split(":")[1])))
                async with asyncio.timeout(TIMEOUT_S):
                    rest = await read_patiently(desk, after)
                assert [e.row["untrusted_text"] for e in rest.entries] == ["back two"]
                assert rest.entries[0].number == page.last + 1
        finally:
            await asyncio.to_thread(running.stop)

    asyncio.run(run())


async def read_patiently(desk: CallerDesk, after: StreamCursor) -> InboxPage:
    while True:
        try:
            page = await desk.read(after)
        except (Unavailable, TimeoutError):
            await asyncio.sleep(0.1)
            continue
        if page.entries:
            return page


def test_what_the_service_dropped_is_told(tmp_path: Path) -> None:
    """Nobody has read for so long that the backlog of the session was full."""
    settings = Settings(runtime="local", port=0, workers=1, data_dir=tmp_path, session_quota=QUOTA)

    async def work(desk: CallerDesk) -> None:
        await desk.subscribe_to("lost")
        for i in range(64):
            await desk.publish(f"lost {i} " + "x" * (QUOTA // 16))
        page = await desk.read()
        tools = AssistantTools()
        answer = await tools.read_matches(desk.caller, ReadArguments())
        gap = answer.gaps[0]
        assert gap.count == gap.last - gap.first + 1 > 0
        assert "dropped" in gap.problem
        assert page.entries[0].is_gap
        numbers = [match.seq for match in answer.matches]
        assert not numbers or numbers[0] == gap.last + 1
        rest = ReadArguments(cursor=answer.cursor, wait_s=5)
        following = await tools.read_matches(desk.caller, rest)
        assert following.gaps == []
        assert following.matches[0].seq == max([gap.last, *numbers]) + 1

    with start(settings) as running:
        run_desk(running.targets[0], "lost", work)
