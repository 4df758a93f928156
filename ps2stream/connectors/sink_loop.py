"""What sinks of matches share: parts in order, each tried until it is accepted or refused."""

from __future__ import annotations

import asyncio
import enum
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from ps2stream.client.client import Client
from ps2stream.client.matches import Matches
from ps2stream.connectors.counts import ConnectorCounts, CountsReporter
from ps2stream.connectors.deliveries import DeliveryItem, DeliveryReader, encode_items
from ps2stream.connectors.rejected_file import append_records
from ps2stream.connectors.retry import ConnectorAbandoned, RetryBackoff
from ps2stream.errors import FailedPrecondition
from ps2stream.v1 import delivery_pb2

log = logging.getLogger(__name__)

MOST_BYTES = 1 << 20
"""Most bytes of a part, unless one match has more."""
LONGEST_S = 3600.0
"""Longest pause that a receiver may ask for."""
LOOK_S = 0.2
"""Seconds after which an idle sink looks whether it shall stop."""

B = TypeVar("B")


class SinkVerdict(enum.Enum):
    """What an attempt to deliver a part came to."""

    ACCEPTED = "accepted"
    AGAIN = "again"  # a later attempt may succeed
    REFUSED = "refused"  # no attempt with this part would
    ENDED = "ended"  # nor with any other part


class SinkAttempt(NamedTuple):
    """The verdict, what to tell the operator of it, and the seconds that the receiver wants to
    pass before the next attempt."""

    verdict: SinkVerdict
    outcome: str = ""
    wanted_s: float = 0.0


class SinkPart(NamedTuple):
    """Matches that go to the receiver at once, or one gap. The name is made of the service, the
    session and the numbers of the matches, so that it is the same when they are sent again."""

    name: str
    items: list[DeliveryItem]
    place: delivery_pb2.Cursor

    @property
    def is_gap(self) -> bool:
        """True for a gap, which is always alone."""
        return self.items[0].query_id is None


class SinkReceiver(Protocol[B]):
    """Where matches go: an async context manager that is open while the sink runs. What it raises
    ends the sink."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def measure(self, item: DeliveryItem) -> int:
        """Returns the bytes that an item adds to a part."""

    def prepare(self, part: SinkPart) -> B:
        """Returns what all attempts with a part send."""

    async def attempt(self, name: str, body: B) -> SinkAttempt:
        """Sends it once, within a time of its own."""

    def describe(self, body: B) -> Any:
        """Returns what the dead letters show of it, as JSON."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Options of every sink. most: matches of a part. gather_s: how long a part may wait for more
    matches. give_up_s: after so long a part counts as refused; 0: never. dead_letters: where
    refused parts go; without, the first one ends the connector."""

    session: str
    most: int = 100
    most_bytes: int = MOST_BYTES
    gather_s: float = 0.0
    give_up_s: float = 0.0
    dead_letters: Path | None = None
    payload: bool = True


class SinkLoop(Generic[B]):
    """Delivers until `stop` is set. A part is acknowledged to the service once its receiver has
    accepted it; after a kill, the others are sent again. A match keeps its `seq`."""

    def __init__(
        self,
        client: Client,
        options: SinkOptions,
        receiver: SinkReceiver[B],
        counts: ConnectorCounts,
        teller: CountsReporter,
    ) -> None:
        self._client = client
        self._options = options
        self._receiver = receiver
        self._counts = counts
        self._teller = teller
        self._backoff = RetryBackoff(0.25, 60.0)

    def run(self, stop: threading.Event, ready: Callable[[], None]) -> None:
        """Runs the sink; calls `ready` once subscribed. Raises what no retry can help."""
        options = self._options
        subscription = self._client.subscribe(options.session, payload=options.payload)
        with DeliveryReader(subscription, self._counts) as deliveries:
            try:
                asyncio.run(self._deliver_all(deliveries, stop, ready))
            except ConnectorAbandoned:
                log.warning("the last part was not accepted; it will be sent again next time")

    async def _deliver_all(
        self, deliveries: DeliveryReader, stop: threading.Event, ready: Callable[[], None]
    ) -> None:
        options = self._options
        async with self._receiver:
            ready()
            while not stop.is_set():
                batches = await self._gather_batches(deliveries, stop)
                found = (item for batch in batches for item in encode_items(batch))
                for items in parts(found, options.most, options.most_bytes, self._receiver.measure):
                    last = items[-1].number
                    await self._deliver_part(_name_part(items, deliveries.cursor_at(last)), stop)
                    deliveries.done(last, sum(item.query_id is not None for item in items))
                    self._tell_counts()
                    if stop.is_set():
                        break
                self._tell_counts()

    async def _gather_batches(
        self, deliveries: DeliveryReader, stop: threading.Event
    ) -> list[Matches]:
        """Returns what is there, after waiting for more as the options say. When it is stopped
        meanwhile, nothing: the matches come again next time."""
        most, wait = self._options.most, self._options.gather_s
        batches = await asyncio.to_thread(deliveries.take, most, LOOK_S)
        end = time.monotonic() + wait
        while batches and wait and (left := end - time.monotonic()) > 0:
            room = most - sum(map(len, batches))
            if room <= 0 or batches[-1].gap is not None:
                break
            batches += await asyncio.to_thread(deliveries.take, room, min(left, LOOK_S))
            self._tell_counts()
            if stop.is_set():
                return []
        return batches

    async def _deliver_part(self, part: SinkPart, stop: threading.Event) -> None:
        """Delivers a part until it is accepted, or refused for good and put away."""
        body = self._receiver.prepare(part)
        began, attempt = time.monotonic(), 0
        while True:
            found = await self._receiver.attempt(part.name, body)
            if found.verdict is SinkVerdict.ACCEPTED:
                return
            give_up = self._options.give_up_s
            late = give_up and time.monotonic() - began >= give_up
            if found.verdict is not SinkVerdict.AGAIN or late:
                self._put_away_part(part.name, body, found)
                return
            pause = self._backoff.pause(attempt, min(found.wanted_s, LONGEST_S))
            log.warning("sending %s again in %.1f s: %s", part.name, pause, found.outcome)
            self._counts.add("retries")
            attempt += 1
            await self._sleep_before_retry(pause, stop)

    def _put_away_part(self, name: str, body: B, found: SinkAttempt) -> None:
        self._counts.add("bad")
        if self._options.dead_letters is None or found.verdict is SinkVerdict.ENDED:
            raise FailedPrecondition(f"the receiver did not accept {name}: {found.outcome}")
        log.warning("%s is written to the dead letters: %s", name, found.outcome)
        record = {"id": name, "reason": found.outcome, "body": self._receiver.describe(body)}
        append_records(self._options.dead_letters, [record])

    async def _sleep_before_retry(self, pause: float, stop: threading.Event) -> None:
        """Sleeps. Raises ConnectorAbandoned once a stop is requested: the part is left to the next
        run."""
        end = time.monotonic() + pause
        while (left := end - time.monotonic()) > 0:
            if await asyncio.to_thread(stop.wait, min(left, 1.0)):
                raise ConnectorAbandoned
            self._tell_counts()

    def _tell_counts(self) -> None:
        if self._teller.due():
            self._teller.tell()


def parts(
    found: Iterator[DeliveryItem],
    most: int,
    most_bytes: int = MOST_BYTES,
    measure: Callable[[DeliveryItem], int] = lambda item: len(item.body),
) -> Iterator[list[DeliveryItem]]:
    """Yields the items of one part each: `most` matches and `most_bytes` at most, unless one match
    has more; a gap is alone."""
    part: list[DeliveryItem] = []
    size = 0
    for item in found:
        more = measure(item)
        alone = item.query_id is None or (part and part[-1].query_id is None)
        if part and (alone or len(part) >= most or size + more > most_bytes):
            yield part
            part, size = [], 0
        part.append(item)
        size += more
    if part:
        yield part


def _name_part(items: list[DeliveryItem], cursor: bytes) -> SinkPart:
    place = delivery_pb2.Cursor.FromString(cursor)
    numbers = f"{items[0].number}_{items[-1].number}"
    return SinkPart(f"msg_{place.incarnation:016x}_{place.session}_{numbers}", items, place)
