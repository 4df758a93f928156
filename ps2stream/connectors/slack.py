"""Messages for Slack's incoming webhooks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ps2stream.connectors.message_receiver import MessageReceiver
from ps2stream.connectors.readable import ReadableMatch
from ps2stream.errors import invalid

URL_BYTES = 2048
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_SPECIAL = re.compile("[&<>]")
_MENTION = re.compile(r"(?<!\w)@(?=\w)")
_INVISIBLE = "\u2060"


class SlackReceiver(MessageReceiver):
    """An incoming webhook. Nothing in a text is a mention, a link with another label, or formatted;
    addresses of pages stay, but are not previewed."""

    def escape(self, text: str) -> str:
        """Escapes what makes mentions and links. An @ before a name gets an invisible character,
        because receivers that resemble Slack mention people without brackets."""
        return self.escape_link(_MENTION.sub(f"@{_INVISIBLE}", text))

    def escape_link(self, link: str) -> str:
        """Escapes the three characters for which Slack has escapes."""
        return _SPECIAL.sub(lambda found: _ENTITIES[found[0]], link)

    def build_message(
        self, name: str, title: str, lines: str, only: ReadableMatch | None
    ) -> dict[str, Any]:
        """Returns the title and the lines as one text."""
        return {
            "text": f"{self.escape(title)}\n{lines}",
            "mrkdwn": False,
            "unfurl_links": False,
            "unfurl_media": False,
        }


def read_url(path: Path, field: str = "url_file") -> str:
    """Returns the URL that a file contains. Raises InvalidArgument, never showing it."""
    try:
        with path.open("rb") as file:
            found = file.read(URL_BYTES + 1)
        url = found.decode("ascii").strip()
    except OSError as error:
        raise invalid(field, f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        url = ""
    if not url or len(found) > URL_BYTES or len(url.split()) != 1:
        raise invalid(field, f"{path}: expected one URL of at most {URL_BYTES} bytes")
    return url
