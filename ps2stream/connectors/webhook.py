"""Service to HTTP: a session's matches, posted in order, each until the receiver has it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ps2stream.client.client import Client
from ps2stream.connectors.counts import ConnectorCounts, CountsReporter
from ps2stream.connectors.deliveries import DeliveryItem
from ps2stream.connectors.http_poster import HttpPoster, HttpTarget
from ps2stream.connectors.signature import read_secrets, signed
from ps2stream.connectors.sink_loop import SinkAttempt, SinkLoop, SinkOptions, SinkPart


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    """Options of a webhook: those of every sink, where it posts, and the file of its secrets."""

    sink: SinkOptions
    target: HttpTarget
    secret_file: Path


class WebhookSink:
    """Posts until `stop` is set. A body is acknowledged to the service once it was answered with
    2xx; after a kill, the connector posts the others again. A match keeps its `seq`."""

    def __init__(
        self,
        client: Client,
        options: WebhookOptions,
        counts: ConnectorCounts,
        teller: CountsReporter,
    ) -> None:
        receiver = WebhookReceiver(options)
        self._loop = SinkLoop(client, options.sink, receiver, counts, teller)

    def run(self, stop: threading.Event, ready: Callable[[], None]) -> None:
        """Runs the connector; calls `ready` once subscribed. Raises what no retry can help."""
        self._loop.run(stop, ready)


class WebhookReceiver:
    """A URL to which bodies are posted, signed anew at each attempt. Raises InvalidArgument."""

    def __init__(self, options: WebhookOptions) -> None:
        self._session = options.sink.session
        self._poster = HttpPoster(options.target)
        self._keys = read_secrets(options.secret_file)

    async def __aenter__(self) -> Self:
        await self._poster.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._poster.__aexit__(kind, error, trace)

    def measure(self, item: DeliveryItem) -> int:
        """Returns the length of the item's JSON."""
        return len(item.body)

    def prepare(self, part: SinkPart) -> bytes:
        """Returns the body of a request."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        session = json.dumps(self._session, ensure_ascii=False)
        what = (
            f'"gap": {part.items[0].body}'
            if part.is_gap
            else f'"matches": [{", ".join(i.body for i in part.items)}]'
        )
        kind = "ps2stream.gap" if part.is_gap else "ps2stream.matches"
        data = f'{{"session": {session}, {what}}}'
        return f'{{"type": "{kind}", "timestamp": "{at}", "data": {data}}}'.encode()

    async def attempt(self, name: str, body: bytes) -> SinkAttempt:
        """Signs and posts a body."""
        return await self._poster.post_json(body, signed(self._keys, name, int(time.time()), body))

    def describe(self, body: bytes) -> Any:
        """Returns the body as JSON."""
        return json.loads(body)
