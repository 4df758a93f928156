"""Feed to service: a document is polled, and what is new in it is published.

The state names what the service has stored. It is saved after the service has answered, so after a
crash records are published again, with the same object ids, and none is left out.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from ps2stream.client.client import Client
from ps2stream.connectors.counts import ConnectorCounts, CountsReporter
from ps2stream.connectors.feed_http import FeedFetcher, FeedUnavailable, FeedVersion, FetchLimits
from ps2stream.connectors.feed_state import SourceState
from ps2stream.connectors.publisher import SourcePublisher
from ps2stream.connectors.rejected_file import append_records
from ps2stream.connectors.retry import ConnectorAbandoned, RetryBackoff
from ps2stream.errors import FailedPrecondition, invalid

log = logging.getLogger(__name__)

MOST_SEEN = 200_000
REMEMBER_S = 7 * 86_400
"""Seconds that an entry is remembered after it left the feed."""
DRAIN_S = 15.0
LETTER_BYTES = 1 << 20
JITTER = 0.1
SKEW_S = 60.0
"""Seconds that the clock of the service may be ahead."""


class FeedEntry(NamedTuple):
    """An entry of a feed. An id with another version is published again. link: where its document
    is; empty if the entry is the record itself."""

    id: str
    version: str
    record: Any
    link: str = ""


@dataclass(slots=True)
class EntryPosts:
    """Posts of an entry, and what is wrong with it. Entries that must not be published, such as
    expired alerts, have neither."""

    posts: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class FeedReader(Protocol):
    """Reads the documents of a feed. batch: entries that are published before the state is
    saved. kept: values of the state that belong to the reader."""

    batch: int

    def list_entries(self, body: bytes) -> list[FeedEntry]:
        """Returns the entries of a document. Raises ValueError for one that is no feed."""

    def convert(
        self, entries: Sequence[FeedEntry], bodies: Sequence[bytes | None], kept: dict[str, Any]
    ) -> list[EntryPosts]:
        """Returns the posts of each entry. bodies: the linked document, of each entry with a
        link."""


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """Options of a source. every_s: between two polls. once: end after one poll. bad: what becomes
    of records that are no posts: `stop` ends with an error, `skip` counts them, `file` appends them
    to `dead_letters`."""

    url: str
    every_s: float = 60.0
    once: bool = False
    state: Path | None = None
    bad: Literal["stop", "skip", "file"] = "stop"
    dead_letters: Path | None = None
    limits: FetchLimits = field(default_factory=FetchLimits)


class BadEntry(NamedTuple):
    """An entry, or None for a whole document, what is wrong, and what the dead letters show."""

    entry: FeedEntry | None
    reason: str
    shown: Any


class FeedSource:
    """Polls until `stop` is set. What a document of the feed has is published at least once."""

    def __init__(
        self,
        client: Client,
        reader: FeedReader,
        options: FeedOptions,
        counts: ConnectorCounts,
        teller: CountsReporter,
    ) -> None:
        self._reader = reader
        self._options = options
        self._counts = counts
        self._teller = teller
        self._abandon = threading.Event()
        self._publisher = SourcePublisher(client, counts, self._abandon)
        self._fetcher = FeedFetcher(options.url, options.limits)
        self._backoff = RetryBackoff(1.0, max(60.0, options.every_s))

    def run(self, stop: threading.Event, ready: Callable[[], None]) -> None:
        """Runs the source; calls `ready` once the state is read. Raises what no retry can help."""
        self._state = SourceState(self._options.state, self._options.url)
        over = threading.Event()
        limit = threading.Thread(target=self._limit_drain, args=(stop, over), daemon=True)
        limit.start()
        try:
            self._seen: dict[str, list[Any]] = self._state.values.setdefault("seen", {})
            ready()
            asyncio.run(self._poll_until(stop))
        except ConnectorAbandoned:
            log.warning("the last posts were not answered; they will be published again")
        finally:
            over.set()
            self._state.close()
            limit.join()

    async def _poll_until(self, stop: threading.Event) -> None:
        failures = polls = 0
        async with self._fetcher:
            while not stop.is_set():
                try:
                    complete = await self._poll_feed(stop)
                    failures, polls = 0, polls + 1
                    pause = self._options.every_s * (1 + JITTER * (2 * random.random() - 1))
                except FeedUnavailable as error:
                    complete = False
                    pause = self._backoff.pause(failures, error.wait_s)
                    self._note_failure(pause, error)
                    failures += 1
                except FailedPrecondition as error:
                    if not polls or self._options.bad == "stop" or self._options.once:
                        raise
                    complete, pause = False, self._options.every_s
                    self._note_failure(pause, error)
                if self._options.once and complete:
                    break
                await self._sleep_until_due(pause, stop)

    def _note_failure(self, pause: float, error: Exception) -> None:
        self._counts.add("retries")
        log.warning("polling again in %.1f s: %s", pause, error)

    def _limit_drain(self, stop: threading.Event, over: threading.Event) -> None:
        """Abandons what is still under way DRAIN_S after the stop was requested."""
        while not stop.wait(0.2):
            if over.is_set():
                return
        if not over.wait(DRAIN_S):
            self._abandon.set()

    async def _sleep_until_due(self, pause: float, stop: threading.Event) -> None:
        end = time.monotonic() + pause
        while (left := end - time.monotonic()) > 0 and not stop.is_set():
            await asyncio.to_thread(stop.wait, min(left, 0.5))
            if self._teller.due():
                self._teller.tell()

    async def _poll_feed(self, stop: threading.Event) -> bool:
        """Requests the document and publishes what is new. Returns whether all of it was done."""
        values = self._state.values
        known = FeedVersion(str(values.get("etag", "")), str(values.get("modified", "")))
        document = await self._fetcher.fetch(self._options.url, known)
        self._counts.add("polls")
        if document.body is None:
            return True
        digest = hashlib.sha256(document.body).hexdigest()
        is_known = values.get("digest") == digest
        if not is_known and not await self._publish_document(document.body, stop):
            return False
        values |= {"digest": digest, "etag": document.version.etag}
        values["modified"] = document.version.modified
        await asyncio.to_thread(self._state.save)
        return True

    async def _publish_document(self, body: bytes, stop: threading.Event) -> bool:
        try:
            entries = await asyncio.to_thread(self._reader.list_entries, body)
        except ValueError as error:
            shown = body[:LETTER_BYTES].decode("utf-8", "replace")
            await asyncio.to_thread(self._put_away, [BadEntry(None, str(error), shown)])
            return True
        fresh = [e for e in entries if self._seen.get(e.id, [None])[0] != e.version]
        self._counts.add("taken", len(fresh))
        complete, bad = True, list[BadEntry]()
        for begin in range(0, len(fresh), self._reader.batch):
            some = fresh[begin : begin + self._reader.batch]
            if stop.is_set():
                return False
            there, bodies, missing = await self._fetch_links(some, bad)
            complete &= not missing
            bad += await asyncio.to_thread(self._publish_entries, there, bodies)
            if self._teller.due():
                self._teller.tell()
        if bad and self._options.bad == "stop":
            raise invalid(_place(bad[0].entry), bad[0].reason)
        self._forget_old(entries)
        return complete

    async def _fetch_links(
        self, entries: Sequence[FeedEntry], bad: list[BadEntry]
    ) -> tuple[list[FeedEntry], list[bytes | None], int]:
        """Returns the entries whose documents are there, these, and how many are not yet there."""
        there, bodies, missing = list[FeedEntry](), list[bytes | None](), 0
        gone = list[BadEntry]()
        fetched = await asyncio.gather(*map(self._fetch_link, entries))
        for entry, found in zip(entries, fetched, strict=True):
            if isinstance(found, FeedUnavailable):
                self._note_failure(self._options.every_s, found)
                missing += 1
            elif isinstance(found, FailedPrecondition):
                gone.append(BadEntry(entry, str(found), entry.record))
            else:
                there.append(entry)
                bodies.append(found)
        if gone:
            bad += gone
            if self._options.bad != "stop":
                await asyncio.to_thread(self._put_away, gone)
                self._remember([each.entry for each in gone if each.entry is not None])
        return there, bodies, missing

    async def _fetch_link(
        self, entry: FeedEntry
    ) -> bytes | FeedUnavailable | FailedPrecondition | None:
        """Returns the document that an entry leads to, None without a link, or why there is
        none."""
        try:
            return (await self._fetcher.fetch(entry.link)).body if entry.link else None
        except (FeedUnavailable, FailedPrecondition) as error:
            return error

    def _publish_entries(
        self, entries: Sequence[FeedEntry], bodies: Sequence[bytes | None]
    ) -> list[BadEntry]:
        kept = self._state.values.setdefault("kept", {})
        before = set(kept)
        found = self._reader.convert(entries, bodies, kept)
        if kept.keys() != before:  # a cancellation finds what was published, whenever this ends
            self._state.save()
        posts = [post for each in found for post in each.posts]
        owners = [i for i, each in enumerate(found) for _ in each.posts]
        expired = set()
        for row, reason in self._publisher.publish(posts) if posts else ():
            if _is_over(posts[row]):  # it was valid before the service was away
                expired.add(owners[row])
            else:
                found[owners[row]].problems.append(f"object {posts[row]['id']}: {reason}")
        self._counts.add("expired", len(expired))
        bad = [
            BadEntry(entry, "; ".join(each.problems[:5]), _show(entry, body))
            for entry, body, each in zip(entries, bodies, found, strict=True)
            if each.problems
        ]
        if self._options.bad != "stop":
            self._put_away(bad)
        self._counts.add("objects", len(posts))
        self._counts.add("done", len(entries) - len(bad))
        wrong = {each.entry.id for each in bad if each.entry} if self._options.bad == "stop" else ()
        self._remember([entry for entry in entries if entry.id not in wrong])
        self._state.save()
        return bad

    def _remember(self, entries: Sequence[FeedEntry]) -> None:
        now = int(time.time())
        for entry in entries:
            self._seen[entry.id] = [entry.version, now]

    def _put_away(self, bad: Sequence[BadEntry]) -> None:
        if bad and self._options.bad == "stop":
            raise invalid(_place(bad[0].entry), bad[0].reason)
        self._counts.add("bad", len(bad))
        for each in bad[:10]:
            log.warning("not published: %s: %s", _place(each.entry), each.reason)
        if bad and self._options.dead_letters is not None:
            append_records(self._options.dead_letters, self._describe_bad(bad))

    def _describe_bad(self, bad: Sequence[BadEntry]) -> Iterator[dict[str, Any]]:
        feed = self._options.url.partition("?")[0]  # a query may hold a key
        for each in bad:
            id = None if each.entry is None else each.entry.id
            yield {"feed": feed, "id": id, "reason": each.reason, "record": each.shown}

    def _forget_old(self, entries: Sequence[FeedEntry]) -> None:
        """Forgets entries that left the feed long ago, and the oldest beyond MOST_SEEN."""
        now = int(time.time())
        for entry in entries:
            if (known := self._seen.get(entry.id)) is not None:
                known[1] = now
        old = [id for id, (_, at) in self._seen.items() if at < now - REMEMBER_S]
        for id in old:
            del self._seen[id]
        if (excess := len(self._seen) - MOST_SEEN) > 0:
            for id in sorted(self._seen, key=lambda id: self._seen[id][1])[:excess]:
                del self._seen[id]


def _is_over(post: Mapping[str, Any]) -> bool:
    until = post.get("until")
    return until is not None and until <= (time.time() + SKEW_S) * 1000


def _place(entry: FeedEntry | None) -> str:
    return "feed" if entry is None else f"entry {entry.id[:200]}"


def _show(entry: FeedEntry, body: bytes | None) -> Any:
    if body is None:
        return entry.record
    return body[:LETTER_BYTES].decode("utf-8", "replace")
