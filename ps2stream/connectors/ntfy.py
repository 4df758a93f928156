"""Notifications for ntfy: JSON to the server's address, with the topic in the body."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ps2stream.connectors.http_poster import HttpTarget
from ps2stream.connectors.message_receiver import MessageReceiver
from ps2stream.connectors.readable import MessageStyle, ReadableMatch
from ps2stream.errors import invalid

TOPIC = re.compile(r"[-_A-Za-z0-9]{1,64}")
TOKEN = re.compile(r"[!-~]{1,1024}")
TAG = re.compile(r"[^\s,\x00-\x1f\x7f]{1,50}")
MOST_TAGS = 10
SEQUENCE_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class NtfyTopic:
    """Where notifications go and how they look there. topic: on a public server, whoever knows it
    can read it. tags: words or names of emoji. priority: 1 to 5, 3 is usual."""

    topic: str
    tags: tuple[str, ...] = ()
    priority: int = 3
    token: str = ""


class NtfyReceiver(MessageReceiver):
    """A topic of an ntfy server. A message that is sent again replaces itself, as it has the same
    sequence id, from version 2.16 of the server on. Raises InvalidArgument."""

    def __init__(self, target: HttpTarget, style: MessageStyle, topic: NtfyTopic) -> None:
        if not TOPIC.fullmatch(topic.topic):
            raise invalid("topic", "expected 1 to 64 letters, digits, - and _")
        if len(topic.tags) > MOST_TAGS or not all(map(TAG.fullmatch, topic.tags)):
            raise invalid(
                "tag", f"expected at most {MOST_TAGS} words of 50 characters without commas"
            )
        headers = {"authorization": f"Bearer {topic.token}"} if topic.token else {}
        super().__init__(target, style, headers)
        self._topic = topic

    def escape(self, text: str) -> str:
        """Returns the text: without Markdown, ntfy gives nothing in it a meaning."""
        return text

    def build_message(
        self, name: str, title: str, lines: str, only: ReadableMatch | None
    ) -> dict[str, Any]:
        """Returns a notification; a tap on that of a single match opens its link."""
        topic = self._topic
        made: dict[str, Any] = {
            "topic": topic.topic,
            "title": title,
            "message": lines,
            "priority": topic.priority,
            "sequence_id": name[-SEQUENCE_CHARACTERS:],
        }
        if topic.tags:
            made["tags"] = list(topic.tags)
        if only is not None and only.link:
            made["click"] = only.link
            made["message"] = only._replace(link="").line(False)
        return made


def read_token(path: Path | None, field: str) -> str:
    """Returns the token that a file contains, or nothing without a file. Raises InvalidArgument,
    never showing it."""
    if path is None:
        return ""
    try:
        token = path.read_text("ascii").strip()
    except OSError as error:
        raise invalid(field, f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        token = ""
    if not TOKEN.fullmatch(token):
        raise invalid(field, f"{path}: expected one token of visible ASCII characters")
    return token
