"""Publishing for a source: durable, and as often as it takes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from ps2stream.client.answers import Receipt
from ps2stream.client.client import Client
from ps2stream.connectors.counts import ConnectorCounts
from ps2stream.connectors.retry import ConnectorAbandoned, RetryBackoff
from ps2stream.errors import ResourceExhausted, Unavailable
from ps2stream.posts.readers import sized, split_rows

log = logging.getLogger(__name__)
T = TypeVar("T")


class SourcePublisher:
    """Publishes until the service has answered; waits as long as it is full or away. What was
    sent and not answered is sent again, so a repeat is a second object with the same id. Safe
    for threads; `abandon` ends all waiting, with Abandoned."""

    def __init__(self, client: Client, counts: ConnectorCounts, abandon: threading.Event) -> None:
        self._client = client
        self._counts = counts
        self._abandon = abandon
        self._backoff = RetryBackoff(0.05, 2.0)

    def publish(self, posts: Any) -> Iterator[tuple[int, str]]:
        """Publishes posts, a record batch or a list; yields the rows that the service refuses, and
        why. Raises what no retry can help: InvalidArgument, Unauthenticated, and so on."""
        begin = 0
        for part in split_rows(posts) if isinstance(posts, list) else sized(posts):
            receipt = self._publish_part(part)
            for refused in receipt.refused:
                yield begin + refused.row, str(refused.error)
            begin += len(part)

    def withdraw(self, ids: Sequence[str]) -> None:
        """Withdraws objects. Raises what no retry can help."""
        self._repeat(lambda: self._client.withdraw(ids))

    def _publish_part(self, part: Any) -> Receipt:
        return self._repeat(lambda: self._client.publish(part, allow_partial=True))

    def _repeat(self, call: Callable[[], T]) -> T:
        attempt = 0
        while True:
            try:
                return call()
            except (ResourceExhausted, Unavailable, TimeoutError) as error:
                wanted = getattr(error, "retry_after_ms", 0) / 1000
                pause = self._backoff.pause(attempt, wanted)
                log.warning("trying again in %.1f s: %s", pause, error)
            self._counts.add("retries")
            attempt += 1
            if self._abandon.wait(pause):
                raise ConnectorAbandoned
