"""The sessions of the protocol of 2025: how many each caller has open over HTTP.

The SDK keeps them, for all callers together. One caller shall not take the room of the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Message, Send

from ps2stream.errors import ResourceExhausted

EACH = 16
IDLE_S = 600.0
"""A session without a request for so long ends."""
NAME = "mcp-session-id"
VERSION = "mcp-protocol-version"


class ProtocolSessions:
    """Counts the sessions that were used within IDLE_S, by caller; `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._used: dict[str, dict[str, float]] = {}  # by caller: when each was used last

    def check_room(self, caller: str, request: Request) -> None:
        """Raises ResourceExhausted for a request that begins a session too many."""
        if not _begins_session(request):
            return
        old = self._clock() - IDLE_S
        kept = {name: at for name, at in self._used.pop(caller, {}).items() if at > old}
        if kept:
            self._used[caller] = kept
        if len(kept) >= EACH:
            raise ResourceExhausted(
                f"{EACH} sessions of the protocol are open, the limit of one caller (sessions); "
                f"each ends {IDLE_S:g} s after its last request",
                60_000,
            )

    def watch_answer(self, caller: str, request: Request, send: Send) -> Send:
        """Returns what sends the answer to a request, and notes the session that it names."""

        async def send_and_note(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._note_use(caller, request, message)
            await send(message)

        return send_and_note

    def _note_use(self, caller: str, request: Request, start: Message) -> None:
        name = Headers(raw=start.get("headers", [])).get(NAME) or request.headers.get(NAME)
        known = self._used.get(caller, {})
        if name is None or (start["status"] >= 400 and name not in known):
            return
        known = self._used.setdefault(caller, known)
        if request.method == "DELETE" or start["status"] == 404:
            known.pop(name, None)
        else:
            known[name] = self._clock()


def _begins_session(request: Request) -> bool:
    if NAME in request.headers or request.method != "POST":
        return False
    version = request.headers.get(VERSION)
    return version is None or version in HANDSHAKE_PROTOCOL_VERSIONS
