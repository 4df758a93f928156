"""The WebSocket of a Jetstream: what is asked for, what is refused, and when to connect again."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import aiohttp

from ps2stream import __version__
from ps2stream.connectors.jetstream_events import COLLECTION
from ps2stream.errors import FailedPrecondition, InvalidArgument, invalid

CONNECT_S = 30.0
AGAIN = frozenset({408, 425, 429, *range(500, 600)})
"""Answers to a request for a connection after which it is requested again."""


class ConnectionEnded(Exception):
    """The connection is over, and another one may go on where it was."""


@dataclass(frozen=True, slots=True)
class JetstreamAddress:
    """Where a Jetstream is, and the bounds of its connection: max_bytes of one message; silence_s
    without a message, after which the connection counts as lost; ca: a file in PEM. Raises
    InvalidArgument for a URL that is none."""

    url: str
    max_bytes: int = 256 << 10
    silence_s: float = 60.0
    ca: Path | None = None

    def __post_init__(self) -> None:
        where = urlsplit(self.url)
        if where.scheme not in ("ws", "wss") or not where.hostname:
            raise _url_error("expected wss://HOST/subscribe, or ws://")
        if where.username or where.password:
            raise _url_error(
                "must not contain a name or password, because other users can see the options of a "
                "command"
            )
        if where.fragment:
            raise _url_error("must not contain a fragment")

    @property
    def name(self) -> str:
        """The URL without what is asked for."""
        return self.url.partition("?")[0]

    def ask_from(self, cursor: int) -> str:
        """Returns the URL that asks for posts from a cursor on, microseconds since 1970; 0: for
        those from now on. What the URL asks for itself stays, but for these parameters."""
        where = urlsplit(self.url)
        ours = {"wantedCollections": COLLECTION, "maxMessageSizeBytes": str(self.max_bytes)}
        if cursor:
            ours["cursor"] = str(cursor)
        # Compression would need the dictionary of this server's version; it is not asked for.
        mine = {*ours, "cursor", "compress", "requireHello"}
        kept = [(k, v) for k, v in parse_qsl(where.query, True) if k not in mine]
        return urlunsplit(where._replace(query=urlencode([*kept, *ours.items()])))


class JetstreamSocket:
    """One connection. `receive` returns its messages, one by one."""

    def __init__(self, socket: Any, address: JetstreamAddress) -> None:
        self._socket = socket
        self._address = address

    async def receive(self) -> bytes:
        """Returns the next message. Raises ConnectionEnded, FailedPrecondition for a message beyond
        the bound: it would come again after each new connection."""
        try:
            message = await self._socket.receive(timeout=self._address.silence_s)
        except TimeoutError:
            silence_s = self._address.silence_s
            raise ConnectionEnded(f"no message for {silence_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionEnded(_describe(error)) from None
        if message.type == aiohttp.WSMsgType.TEXT:
            return str(message.data).encode("utf-8", "surrogatepass")
        if self._socket.close_code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG:
            limit = self._address.max_bytes
            raise FailedPrecondition(
                f"{self._address.name} sent a message of more than {limit} bytes although the "
                "connector asked for none: raise --max-bytes"
            )
        if message.type == aiohttp.WSMsgType.BINARY:
            raise FailedPrecondition(
                f"{self._address.name} sent a binary message: expected texts of JSON"
            )
        raise ConnectionEnded(f"closed with code {self._socket.close_code}")


@asynccontextmanager
async def open_socket(address: JetstreamAddress, cursor: int) -> AsyncIterator[JetstreamSocket]:
    """Connects, from a cursor on. Raises ConnectionEnded, FailedPrecondition for an answer that
    will not change: redirects are not followed."""
    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(_refuse_redirect)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=1, ssl=_build_tls(address.ca)),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"user-agent": f"ps2stream/{__version__}"},
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=CONNECT_S),
        trace_configs=[trace],
    ) as http:
        socket = await _connect(http, address, cursor)
        try:
            yield JetstreamSocket(socket, address)
        finally:
            await socket.close()


async def _connect(http: aiohttp.ClientSession, address: JetstreamAddress, cursor: int) -> Any:
    try:
        return await http.ws_connect(
            address.ask_from(cursor),
            max_msg_size=address.max_bytes,
            timeout=aiohttp.ClientWSTimeout(ws_close=2.0),
        )
    except aiohttp.InvalidURL as error:
        raise _url_error(str(error)) from None
    except aiohttp.WSServerHandshakeError as error:
        problem = f"answered {error.status}"
        if error.status in AGAIN:
            raise ConnectionEnded(problem) from None
        raise FailedPrecondition(f"{address.name} {problem}, no WebSocket") from None
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise ConnectionEnded(_describe(error)) from None


async def _refuse_redirect(_session: Any, _context: Any, found: Any) -> None:
    raise FailedPrecondition(
        f"the Jetstream answered {found.response.status} with another place; redirects are not "
        "followed: give its URL"
    )


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


def _build_tls(ca: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if ca is None else str(ca))
    except OSError as error:
        raise invalid("feed_ca", f"{ca}: {error.strerror or error}") from None


def _url_error(problem: str) -> InvalidArgument:
    return invalid("url", problem)
