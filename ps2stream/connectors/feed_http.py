"""Feeds over HTTP: a document is requested again only if it changed, within bounds.

What a server sends is untrusted: bytes are counted after unpacking, redirects are followed a few
times, only to hosts that are allowed, and never from https to http.
"""

from __future__ import annotations

import ssl
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import SplitResult, urljoin, urlsplit

import aiohttp

from ps2stream import __version__
from ps2stream.errors import FailedPrecondition, InvalidArgument, Unavailable, invalid

REDIRECTS = 5
ATTEMPT_S = 60.0
LONGEST_S = 3600.0
"""Longest pause that a server may ask for."""
AGAIN = frozenset({408, 425, 429, *range(500, 600)})
CHUNK = 1 << 16
URL_BYTES = 4096


class FeedVersion(NamedTuple):
    """What a server needs to tell whether a document changed: two headers of its last answer."""

    etag: str = ""
    modified: str = ""


UNKNOWN = FeedVersion()


class FeedDocument(NamedTuple):
    """An answer. body: None if the document is the same as before."""

    body: bytes | None
    version: FeedVersion


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits of a fetcher. most_bytes: of a document, unpacked. hosts: to which redirects and links
    may lead, beside the host of the feed. ca: authorities in PEM; None: those of this machine."""

    most_bytes: int = 64 << 20
    hosts: tuple[str, ...] = ()
    user_agent: str = f"ps2stream/{__version__}"
    ca: Path | None = None


class FeedUnavailable(Unavailable):
    """A document that may be there later; `wait_s` is the pause that the server asks for."""

    def __init__(self, problem: str, wait_s: float = 0.0) -> None:
        self.wait_s = wait_s
        super().__init__(problem)


class FeedFetcher:
    """Requests documents of the host of `url`, and of those that the limits allow. Is an
    asynchronous context manager. Raises InvalidArgument for a URL that is none."""

    def __init__(self, url: str, limits: FetchLimits) -> None:
        home = check_feed_url(url)
        self._limits = limits
        self._is_secure = home.scheme == "https"
        self._hosts = {home.hostname, *(host.lower() for host in limits.hosts)}
        self._tls = _build_tls(limits.ca)

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=ATTEMPT_S),
            connector=aiohttp.TCPConnector(limit=4, ssl=self._tls),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            headers={"user-agent": self._limits.user_agent, "accept-encoding": "gzip"},
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def fetch(self, url: str, known: FeedVersion = UNKNOWN) -> FeedDocument:
        """Requests a document. Raises FeedUnavailable if another try may help, else
        FailedPrecondition."""
        headers = {}
        if known.etag:
            headers["if-none-match"] = known.etag
        if known.modified:
            headers["if-modified-since"] = known.modified
        for _ in range(REDIRECTS + 1):
            self._check_target(url)
            try:
                async with self._http.get(url, headers=headers, allow_redirects=False) as answer:
                    if answer.status not in (301, 302, 303, 307, 308):
                        return await self._read_answer(url, answer)
                    url = _join_url(url, answer.headers.get("location", ""))
            except aiohttp.InvalidURL:
                raise FailedPrecondition("a link or redirect is no URL") from None
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise FeedUnavailable(f"{_name(url)}: {type(error).__name__}: {error}") from None
        raise FailedPrecondition(f"{_name(url)}: more than {REDIRECTS} redirects")

    def _check_target(self, url: str) -> None:
        """Raises FailedPrecondition for a URL that is not requested."""
        try:
            parts = check_feed_url(url)
        except InvalidArgument as error:
            problem = "; ".join(v.description for v in error.violations)
            raise FailedPrecondition(f"a link or redirect is no URL: {problem}") from None
        if (host := parts.hostname) not in self._hosts:
            problem = f"a link or redirect leads to the host {host}, which is not allowed"
            raise FailedPrecondition(f"{problem}; to allow it: --allow-host {host}")
        if self._is_secure and parts.scheme != "https":
            raise FailedPrecondition(f"{_name(url)}: no link or redirect from https to http")

    async def _read_answer(self, url: str, answer: aiohttp.ClientResponse) -> FeedDocument:
        version = FeedVersion(_short_header(answer, "etag"), _short_header(answer, "last-modified"))
        if answer.status == 304:
            return FeedDocument(None, version)
        if answer.status in AGAIN:
            wanted = read_retry_after(answer.headers.get("retry-after", ""), datetime.now(UTC))
            problem = f"{_name(url)}: answered {answer.status} {answer.reason or ''}".rstrip()
            raise FeedUnavailable(problem, min(wanted, LONGEST_S))
        if answer.status != 200:
            problem = f"{_name(url)}: answered {answer.status} {answer.reason or ''}".rstrip()
            raise FailedPrecondition(f"{problem}, expected 200 or 304")
        return FeedDocument(await self._read_body(url, answer), version)

    async def _read_body(self, url: str, answer: aiohttp.ClientResponse) -> bytes:
        coding = answer.headers.get("content-encoding", "identity").strip().lower()
        try:
            unpacker = BoundedUnpacker(coding, self._limits.most_bytes)
            async for chunk in answer.content.iter_chunked(CHUNK):
                unpacker.add(chunk)
            return unpacker.finish()
        except ValueError as error:
            raise FailedPrecondition(f"{_name(url)}: {error}") from None


class BoundedUnpacker:
    """Unpacks a body of the coding gzip, or none, up to `most` bytes. Raises ValueError."""

    def __init__(self, coding: str, most: int) -> None:
        if coding not in ("identity", "gzip", "x-gzip", ""):
            raise ValueError(f"expected the content coding gzip or none, got {coding[:40]!r}")
        self._inflate = zlib.decompressobj(31) if "gzip" in coding else None
        self._most = most
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, chunk: bytes) -> None:
        """Adds bytes as they came. Raises ValueError beyond `most`."""
        if self._inflate is None:
            self._keep(chunk)
            return
        while chunk:
            try:
                self._keep(self._inflate.decompress(chunk, self._most - self._size + 1))
            except zlib.error as error:
                raise ValueError(f"the body is not gzip: {error}") from None
            chunk = self._inflate.unconsumed_tail
            if self._inflate.eof and (chunk := self._inflate.unused_data):
                self._inflate = zlib.decompressobj(31)  # gzip may have several members

    def finish(self) -> bytes:
        """Returns the body. Raises ValueError if its end is missing."""
        if self._inflate is not None and not self._inflate.eof:
            raise ValueError("the gzip body ends too early")
        return b"".join(self._parts)

    def _keep(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._most:
            raise ValueError(f"has more than {self._most} bytes (--max-bytes)")
        self._parts.append(data)


def check_feed_url(url: str, field: str = "url") -> SplitResult:
    """Returns the parts of an http or https URL. Raises InvalidArgument for another one, and for
    one with a password."""
    try:
        found = urlsplit(url)
        bad = found.scheme not in ("http", "https") or not found.hostname or found.port == 0
    except ValueError:
        bad = True
    if bad or len(url) > URL_BYTES:
        raise invalid(field, f"expected http://... or https://... of at most {URL_BYTES} bytes")
    if found.username or found.password:
        problem = "must not contain a name or password, because other users can see the options"
        raise invalid(field, problem)
    return found


def make_user_agent(contact: str | None) -> str:
    """Returns what requests say of who makes them. Raises InvalidArgument."""
    if contact is None:
        return f"ps2stream/{__version__}"
    if not contact.isprintable() or not contact.isascii() or len(contact) > 200:
        raise invalid("contact", "expected at most 200 printable ASCII characters")
    return f"ps2stream/{__version__} ({contact})"


def read_retry_after(value: str, now: datetime) -> float:
    """Returns the seconds that a Retry-After header asks for, as a number or a date; 0 without."""
    if value.strip().isdecimal():
        return float(value[:12])
    try:
        return max(0.0, (parsedate_to_datetime(value) - now).total_seconds())
    except (OverflowError, TypeError, ValueError):
        return 0.0


def _join_url(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError:
        raise FailedPrecondition(f"{_name(url)}: a redirect leads to no URL") from None


def _name(url: str) -> str:
    """Returns a URL as logs show it: without its query, which may hold a key."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


def _short_header(answer: aiohttp.ClientResponse, name: str) -> str:
    value = answer.headers.get(name, "")
    return value if len(value) <= 512 else ""


def _build_tls(ca: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if ca is None else str(ca))
    except OSError as error:
        raise invalid("feed_ca", f"cannot use {ca}: {error}") from None
