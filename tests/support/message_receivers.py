"""Receivers that take what Slack and ntfy take, and refuse what these refuse."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.support.webhook_receiver import Receiver, Request

NTFY_BYTES = 4096
NTFY_MEMBERS = {"topic", "title", "message", "tags", "priority", "click", "sequence_id"}


class MessageLog(Receiver):
    """Keeps messages, as Receiver does; one that is not `fit` is answered with 400."""

    def fit(self, headers: dict[str, str], body: dict[str, Any]) -> bool:
        raise NotImplementedError

    def take(self, headers: dict[str, str], data: bytes) -> tuple[int, dict[str, str]] | None:
        with self._came:
            answer = self.script.pop(0) if self.script else 200
            status, more = answer if isinstance(answer, tuple) else (answer or 0, {})
            body = json.loads(data)
            good = self.fit(headers, body)
            status = status if good else 400
            self.requests.append(Request(headers, body, good, status))
            self._came.notify_all()
        return (status, more) if status else None

    @property
    def accepted(self) -> Iterator[dict[str, Any]]:
        """The messages that were answered with 200, in order."""
        return (r.body for r in self.requests if r.answered == 200)


class SlackChannel(MessageLog):
    """An incoming webhook: only escaped text, as Slack documents it."""

    def fit(self, headers: dict[str, str], body: dict[str, Any]) -> bool:
        text = body.get("text", "")
        escaped = re.sub("&(amp|lt|gt);", "", text)
        return (
            headers["content-type"] == "application/json"
            and 0 < len(text) <= 4000
            and not set("<>&") & set(escaped)
        )


class NtfyServer(MessageLog):
    """A server with access control: JSON to its root."""

    token = "tk_only_for_tests"

    def fit(self, headers: dict[str, str], body: dict[str, Any]) -> bool:
        return (
            headers.get("authorization") == f"Bearer {self.token}"
            and body.keys() <= NTFY_MEMBERS
            and re.fullmatch(r"[-_A-Za-z0-9]{1,64}", body["topic"]) is not None
            and re.fullmatch(r"[-_A-Za-z0-9]{1,64}", body["sequence_id"]) is not None
            and 0 < len(body["message"].encode()) <= NTFY_BYTES
            and body.get("priority") in range(1, 6)
        )
