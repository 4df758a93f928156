"""Posts of HTTP to one URL, with the rules of all sinks: addresses, answers, times."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from ps2stream import __version__
from ps2stream.connectors.addresses import (
    AddressReach,
    check_address,
    check_url,
    names_this_machine,
)
from ps2stream.connectors.readable import clean_text
from ps2stream.connectors.sink_loop import SinkAttempt, SinkVerdict
from ps2stream.errors import Ps2StreamError, invalid

ATTEMPT_S = 15.0
AGAIN = frozenset({408, 425, 429, *range(500, 600)})
GONE = 410
REASON_CHARACTERS = 200
"""Most characters that are shown of what a receiver says."""


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """The URL of a receiver, the option that named it, the CAs that count for it, and the addresses
    at which it may be. The URL may be a secret: no error shows it."""

    url: str
    field: str = "url"
    ca: Path | None = None
    reach: AddressReach = AddressReach.USUAL


class HttpPoster:
    """Posts while it is open as an async context manager. Follows no redirects, keeps no cookies,
    knows no proxies, and connects to no address that the target's reach excludes: each is checked
    when its socket is made, so that a name that resolves to something else now does not matter.
    Raises InvalidArgument."""

    def __init__(self, target: HttpTarget) -> None:
        check_url(target.url, target.reach, target.field)
        self._target = target
        self._here = names_this_machine(target.url)
        self._tls = _build_tls(target.ca)
        self._http: aiohttp.ClientSession | None = None
        self._refused: Ps2StreamError | None = None

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=ATTEMPT_S),
            headers={"user-agent": f"ps2stream/{__version__}"},
            connector=aiohttp.TCPConnector(
                limit=1, ssl=self._tls, socket_factory=self._open_socket
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._http is not None:
            await self._http.close()

    async def post_json(self, body: bytes, headers: Mapping[str, str]) -> SinkAttempt:
        """Posts a body once. Raises InvalidArgument for a URL that cannot be used, and
        PermissionDenied for a host at an address that is excluded."""
        assert self._http is not None
        sent = {"content-type": "application/json", **headers}
        self._refused = None
        try:
            async with self._http.post(
                self._target.url, data=body, headers=sent, allow_redirects=False
            ) as answer:
                wanted = retry_after(answer.headers.get("retry-after", ""), datetime.now(UTC))
                return judge_answer(answer.status, answer.reason or "", wanted)
        except aiohttp.InvalidURL:
            raise invalid(self._target.field, "is not a URL that can be used") from None
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if self._refused is not None:
                raise self._refused from None
            return SinkAttempt(SinkVerdict.AGAIN, describe_failure(error))

    def _open_socket(self, found: tuple[Any, ...]) -> socket.socket:
        """Returns a socket for a resolved address. Raises OSError for one that is excluded, which
        the library takes for a failed connection; the reason is kept."""
        family, kind, protocol, _, address = found
        try:
            reach, field = self._target.reach, self._target.field
            check_address(str(address[0]), reach, field, here=self._here)
        except Ps2StreamError as error:
            self._refused = error
            raise OSError(str(error)) from None
        return socket.socket(family, kind, protocol)


def judge_answer(status: int, reason: str, wanted_s: float) -> SinkAttempt:
    """Returns what an answer of HTTP means: 2xx accepts, 408, 425, 429 and 5xx ask for another
    attempt, 410 ends, and anything else refuses."""
    outcome = f"answered {status} {clean_text(reason, REASON_CHARACTERS)}".rstrip()
    if 200 <= status < 300:
        return SinkAttempt(SinkVerdict.ACCEPTED, outcome)
    if 300 <= status < 400:
        outcome += " (redirects are not followed)"
    if status in AGAIN:
        return SinkAttempt(SinkVerdict.AGAIN, outcome, wanted_s)
    verdict = SinkVerdict.ENDED if status == GONE else SinkVerdict.REFUSED
    return SinkAttempt(verdict, outcome)


def describe_failure(error: Exception) -> str:
    """Returns what is said of an attempt without an answer: one line, and never the URL, which
    errors about a malformed answer contain."""
    what = str(error)
    if isinstance(error, aiohttp.ClientResponseError):
        what = f"{error.status} {error.message}"
    return f"{type(error).__name__}: {clean_text(what, REASON_CHARACTERS)}".rstrip(": ")


def retry_after(value: str, now: datetime) -> float:
    """Returns the seconds that a Retry-After header asks for, as a number or a date; 0 without."""
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(value) - now).total_seconds())
    except (OverflowError, TypeError, ValueError):
        return 0.0


def _build_tls(ca: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if ca is None else str(ca))
    except OSError as error:
        problem = f"{ca}: {error.strerror or error}"
        raise invalid("receiver_ca", problem) from None
