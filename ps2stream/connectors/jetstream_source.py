"""Jetstream to service: posts with a place, each at least once, from the cursor of the last run."""

from __future__ import annotations

import asyncio
import base64
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ps2stream.client.client import Client
from ps2stream.connectors.counts import ConnectorCounts, CountsReporter
from ps2stream.connectors.feed_state import SourceState
from ps2stream.connectors.gazetteer import Gazetteer
from ps2stream.connectors.jetstream_events import (
    BadEvent,
    JetstreamDeletion,
    JetstreamOther,
    JetstreamPost,
    read_event,
)
from ps2stream.connectors.jetstream_socket import (
    ConnectionEnded,
    JetstreamAddress,
    open_socket,
)
from ps2stream.connectors.published_ids import PublishedIds
from ps2stream.connectors.publisher import SourcePublisher
from ps2stream.connectors.rejected_file import append_records
from ps2stream.connectors.retry import ConnectorAbandoned, RetryBackoff
from ps2stream.errors import FailedPrecondition

log = logging.getLogger(__name__)

REWIND_US = 5_000_000
"""How far before the last event a new connection begins. The clocks of two instances of a Jetstream
differ, and an instance may give events of one moment in another order."""
RECENT = 20_000
"""Posts with a place and deletions that are remembered, at most, so that those that come again are
not published again; those of the last two REWIND_US."""
MOST = 1000
WAITING_BYTES = 16 << 20
SAVE_S = 1.0
DRAIN_S = 15.0
LETTERS_BYTES = 64 << 20
"""Size of the file of dead letters beyond which bad events are only counted: everybody can write
them."""


@dataclass(frozen=True, slots=True)
class JetstreamOptions:
    """Options of a source. state: the file that keeps the cursor; without, each start begins with
    what is new. gazetteer: for posts whose author gave no place. withdraws: deleted posts
    are withdrawn."""

    address: JetstreamAddress
    state: Path | None = None
    dead_letters: Path | None = None
    gazetteer: Gazetteer | None = None
    withdraws: bool = False


class _MessageInbox:
    """Messages that wait to be published, at most MOST and about WAITING_BYTES. `put` waits for
    room, so that the source holds back the rest."""

    def __init__(self) -> None:
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        self._changed = asyncio.Condition()

    async def put(self, message: bytes) -> None:
        async with self._changed:
            await self._changed.wait_for(
                lambda: len(self._messages) < MOST and self._bytes < WAITING_BYTES
            )
            self._messages.append(message)
            self._bytes += len(message)
            self._changed.notify_all()

    async def take(self, timeout_s: float) -> list[bytes]:
        """Returns what waits, once something does, or nothing after a time."""
        async with self._changed:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait_for(lambda: bool(self._messages))
            except TimeoutError:
                return []
            found = list(self._messages)
            self._messages.clear()
            self._bytes = 0
            self._changed.notify_all()
            return found


class JetstreamSource:
    """Publishes until `stop` is set. The cursor is saved once the service has stored what was
    before it, so that after a kill those posts come again that were not saved, with the same
    ids."""

    def __init__(
        self,
        client: Client,
        options: JetstreamOptions,
        counts: ConnectorCounts,
        teller: CountsReporter,
    ) -> None:
        self._options = options
        self._counts = counts
        self._teller = teller
        self._abandon = threading.Event()
        self._publisher = SourcePublisher(client, counts, self._abandon)
        self._backoff = RetryBackoff(0.25, 30.0)
        self._state = SourceState(options.state, options.address.name)
        self._cursor = _read_cursor(self._state)
        self._recent: dict[str, int] = dict(self._state.values.get("recent", {}))
        self._is_clock = not self._cursor  # the cursor is the time of this machine, not an event's
        self._saved_at = time.monotonic()
        self._is_saved = True
        self._letters_full = False
        state = options.state
        ids = state.with_name(state.name + ".ids") if state and options.withdraws else None
        self._published = PublishedIds(ids)

    def run(self, stop: threading.Event, ready: Callable[[], None]) -> None:
        """Runs the source; calls `ready` once it is connected. Raises what no retry can help."""
        try:
            asyncio.run(self._run(stop, ready))
        except ConnectorAbandoned:
            log.warning("what was not stored yet will be read again at the next start")
        finally:
            try:
                self._save()
            finally:
                self._state.close()

    async def _run(self, stop: threading.Event, ready: Callable[[], None]) -> None:
        inbox = _MessageInbox()
        if self._is_clock:  # a kill before the first event must not lose it
            self._cursor, self._is_saved = time.time_ns() // 1000, False
            self._save()
        reader = asyncio.create_task(self._read_messages(inbox, ready))
        limit = asyncio.create_task(self._limit_drain(stop))
        try:
            while not stop.is_set():
                if taken := await inbox.take(0.2):
                    await asyncio.to_thread(self._publish_messages, taken)
                if reader.done():
                    await reader  # it only ends with an error
                if self._teller.due():
                    self._teller.tell()
        finally:
            for task in (reader, limit):
                task.cancel()
            await asyncio.gather(reader, limit, return_exceptions=True)

    async def _limit_drain(self, stop: threading.Event) -> None:
        """Abandons what is still under way DRAIN_S after the stop was requested."""
        while not stop.is_set():  # noqa: ASYNC110  (a signal handler sets it, in no loop)
            await asyncio.sleep(0.2)
        await asyncio.sleep(DRAIN_S)
        self._abandon.set()

    async def _read_messages(self, inbox: _MessageInbox, ready: Callable[[], None]) -> None:
        """Connects again and again, each time a little before where the last connection ended."""
        attempt, was_ready = 0, False
        while True:
            try:
                async with open_socket(self._options.address, self._rewound()) as socket:
                    if not was_ready:
                        ready()
                        was_ready = True
                    while True:
                        message = await socket.receive()
                        attempt = 0
                        self._counts.add("taken")
                        await inbox.put(message)
            except ConnectionEnded as error:
                pause = self._backoff.pause(attempt)
                log.warning("connecting again in %.1f s: %s", pause, error)
                self._counts.add("retries")
                attempt += 1
                await asyncio.sleep(pause)

    def _rewound(self) -> int:
        return max(self._cursor - REWIND_US, 0)

    def _publish_messages(self, messages: Sequence[bytes]) -> None:
        """Publishes what is new of some messages, and then moves the cursor behind them."""
        bad: list[tuple[bytes, str]] = []
        posts: dict[str, tuple[bytes, JetstreamPost]] = {}
        deleted: dict[str, None] = {}
        last = 0
        fresh: list[str] = []
        for message in messages:
            try:
                event = read_event(message, self._options.gazetteer)
            except BadEvent as error:
                bad.append((message, str(error)))
                last = max(last, error.time_us)
                continue
            last = max(last, event.time_us)
            if isinstance(event, JetstreamOther):
                self._counts.add("other")
                continue
            if isinstance(event, JetstreamPost) and event.row is None:
                self._counts.add("no_place")
                continue
            key = f"{event.id} {event.revision}"
            if key in self._recent:
                self._counts.add("repeats")
                continue
            self._recent[key] = event.time_us
            fresh.append(key)
            if isinstance(event, JetstreamDeletion):
                self._counts.add("deleted")
                posts.pop(event.id, None)
                deleted[event.id] = None
            else:
                posts[event.id] = message, event
        try:
            # Before the posts: one that was deleted and made again is there.
            self._withdraw(list(deleted))
            bad += self._publish_posts(list(posts.values()))
        except BaseException:
            for key in fresh:  # they are not stored: they are no repeats when they come again
                self._recent.pop(key, None)
            raise
        self._put_away(bad)
        self._move_cursor(last)

    def _publish_posts(self, posts: list[tuple[bytes, JetstreamPost]]) -> list[tuple[bytes, str]]:
        """Publishes posts; returns those that the service refuses."""
        if not posts:
            return []
        if self._options.withdraws:
            self._published.add(post.id for _, post in posts)
        rows = [post.row for _, post in posts]
        refused = [(posts[at][0], why) for at, why in self._publisher.publish(rows)]
        self._counts.add("done", len(posts) - len(refused))
        return refused

    def _withdraw(self, deleted: Sequence[str]) -> None:
        """Withdraws those of the deleted posts that were published, as far as it is known."""
        if not self._options.withdraws:
            return
        if ids := [id for id in deleted if id in self._published]:
            self._publisher.withdraw(ids)
            self._counts.add("withdrawn", len(ids))

    def _put_away(self, bad: list[tuple[bytes, str]]) -> None:
        """Counts bad events, and appends them to the dead letters, as long as these are small."""
        if not bad:
            return
        self._counts.add("bad", len(bad))
        path = self._options.dead_letters
        if path is None or self._letters_full:
            return
        if path.exists() and path.stat().st_size >= LETTERS_BYTES:
            self._letters_full = True
            log.warning("%s has %d bytes: further bad events are counted only", path, LETTERS_BYTES)
            return
        append_records(path, ({"reason": why, "event": _show_event(data)} for data, why in bad))

    def _move_cursor(self, last: int) -> None:
        if last:
            # A wrong time far ahead would lose all that is before it.
            last = min(last, time.time_ns() // 1000)
            self._cursor = last if self._is_clock else max(self._cursor, last)
            self._is_clock = False
        oldest = self._cursor - 2 * REWIND_US
        self._recent = {key: at for key, at in self._recent.items() if at >= oldest}
        while len(self._recent) > RECENT:
            del self._recent[next(iter(self._recent))]
        self._is_saved = False
        if time.monotonic() >= self._saved_at + SAVE_S:
            self._save()

    def _save(self) -> None:
        if self._is_saved:
            return
        self._published.save()  # before the cursor: what is behind it is published again
        self._state.values = {"cursor": self._cursor, "recent": self._recent}
        self._state.save()
        self._is_saved, self._saved_at = True, time.monotonic()


def _read_cursor(state: SourceState) -> int:
    cursor: int = state.values.get("cursor", 0)
    recent = state.values.get("recent", {})
    is_good = isinstance(cursor, int) and cursor >= 0 and isinstance(recent, dict)
    if not is_good or not all(isinstance(at, int) for at in recent.values()):
        raise FailedPrecondition("the state has no cursor that is a number; give another file")
    return cursor


def _show_event(data: bytes) -> Any:
    """Returns an event as a dead letter has it: as text, or in base64 if it is none."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
