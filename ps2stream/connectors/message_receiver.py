"""What the sinks have in common that post messages for people: Slack and ntfy."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from ps2stream.connectors.deliveries import DeliveryItem
from ps2stream.connectors.http_poster import HttpPoster, HttpTarget
from ps2stream.connectors.readable import MessageStyle, ReadableMatch, read_gap
from ps2stream.connectors.sink_loop import SinkAttempt, SinkPart

MESSAGE_BYTES = 3800
"""Most bytes of the lines of a message, escaped. ntfy makes more than 4,096 bytes an attachment,
and Slack recommends no more than 4,000 characters."""


class MessageReceiver(ABC):
    """A URL to which messages for people are posted as JSON. Raises InvalidArgument."""

    def __init__(self, target: HttpTarget, style: MessageStyle, headers: Mapping[str, str]) -> None:
        self._poster = HttpPoster(target)
        self._style = style
        self._headers = headers

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
        """Returns the bytes of the item's line, with the query's id."""
        if item.query_id is None:
            return 0
        return len(self._write_line(self._style.read(item), True).encode()) + 1

    def prepare(self, part: SinkPart) -> bytes:
        """Returns the message of a part as JSON."""
        if part.is_gap:
            gap = read_gap(part.items[0], self._style.session_name)
            made = self.build_message(part.name, gap.title, gap.text, None)
        else:
            matches = [self._style.read(item) for item in part.items]
            many = len(matches) > 1
            lines = "\n".join(self._write_line(match, many) for match in matches)
            only = None if many else matches[0]
            made = self.build_message(part.name, self._style.title(matches), lines, only)
        return json.dumps(made, ensure_ascii=False).encode()

    async def attempt(self, name: str, body: bytes) -> SinkAttempt:
        """Posts a message."""
        return await self._poster.post_json(body, self._headers)

    def describe(self, body: bytes) -> Any:
        """Returns the message."""
        return json.loads(body)

    def _write_line(self, match: ReadableMatch, with_query: bool) -> str:
        return match.line(with_query, self.escape, self.escape_link)

    def escape_link(self, link: str) -> str:
        """Returns a link of our own making so that the receiver shows it as one."""
        return link

    @abstractmethod
    def escape(self, text: str) -> str:
        """Returns the text so that the receiver shows it as it is."""

    @abstractmethod
    def build_message(
        self, name: str, title: str, lines: str, only: ReadableMatch | None
    ) -> dict[str, Any]:
        """Returns what is posted. title: not escaped; lines: escaped; only: the match if it is a
        single one."""
