"""Service to HTTP: a session's matches, posted in order, each until the receiver has it."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from ps2stream import __version__
from ps2stream.client.client import Client
from ps2stream.connectors.counts import ConnectorCounts, CountsReporter
from ps2stream.connectors.deliveries import DeliveryItem, DeliveryReader, encode_items
from ps2stream.connectors.rejected_file import append_records
from ps2stream.connectors.retry import ConnectorAbandoned, RetryBackoff
from ps2stream.connectors.signature import read_secrets, signed
from ps2stream.errors import FailedPrecondition, InvalidArgument, invalid
from ps2stream.security import is_loopback
from ps2stream.v1 import delivery_pb2

log = logging.getLogger(__name__)

MOST_BYTES = 1 << 20
"""Most bytes of a body, unless one match has more."""
ATTEMPT_S = 15.0
LONGEST_S = 3600.0
"""Longest pause that a receiver may ask for."""
AGAIN = frozenset({408, 425, 429, *range(500, 600)})


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    """Options of a webhook. most: matches of a body. give_up_s: after so long a body counts as
    refused; 0: never. dead_letters: where refused bodies go; without, the first one ends the
    connector."""

    session: str
    url: str
    secret_file: Path
    most: int = 100
    give_up_s: float = 0.0
    dead_letters: Path | None = None
    ca: Path | None = None


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
        check_url(options.url)
        self._client = client
        self._options = options
        self._counts = counts
        self._teller = teller
        self._keys = read_secrets(options.secret_file)
        self._backoff = RetryBackoff(0.25, 60.0)
        self._tls = _build_tls(options.ca)

    def run(self, stop: threading.Event, ready: Callable[[], None]) -> None:
        """Runs the connector; calls `ready` once subscribed. Raises what no retry can help."""
        subscription = self._client.subscribe(self._options.session, payload=True)
        with DeliveryReader(subscription, self._counts) as deliveries:
            ready()
            try:
                asyncio.run(self._post_deliveries(deliveries, stop))
            except ConnectorAbandoned:
                log.warning(
                    "the last body was not accepted; it will be posted again at the next start"
                )

    async def _post_deliveries(self, deliveries: DeliveryReader, stop: threading.Event) -> None:
        timeout = aiohttp.ClientTimeout(total=ATTEMPT_S)
        headers = {
            "content-type": "application/json",
            "user-agent": f"ps2stream/{__version__}",
        }
        connector = aiohttp.TCPConnector(limit=1, ssl=self._tls)
        async with aiohttp.ClientSession(
            timeout=timeout,
            headers=headers,
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
        ) as http:
            while not stop.is_set():
                batches = await asyncio.to_thread(deliveries.take, self._options.most, 0.2)
                found = (item for batch in batches for item in encode_items(batch))
                for part in parts(found, self._options.most):
                    cursor = deliveries.cursor_at(part[-1].number)
                    await self._post_part(http, part, cursor, stop)
                    pairs = sum(item.query_id is not None for item in part)
                    deliveries.done(part[-1].number, pairs)
                    if self._teller.due():
                        self._teller.tell()
                    if stop.is_set():
                        break
                if self._teller.due():
                    self._teller.tell()

    async def _post_part(
        self,
        http: aiohttp.ClientSession,
        part: list[DeliveryItem],
        cursor: bytes,
        stop: threading.Event,
    ) -> None:
        """Posts a body until it is accepted, or refused for good and put away."""
        place = delivery_pb2.Cursor.FromString(cursor)
        first = part[0].number
        name = f"msg_{place.incarnation:016x}_{place.session}_{first}_{part[-1].number}"
        body = self._build_body(part)
        began, attempt = time.monotonic(), 0
        while True:
            status, wanted, outcome = await self._attempt_post(http, name, body)
            if 200 <= status < 300:
                return
            waited = time.monotonic() - began
            late = self._options.give_up_s and waited >= self._options.give_up_s
            if status == 410 or (status and status not in AGAIN) or late:
                self._put_away_body(status, outcome, name, body)
                return
            pause = self._backoff.pause(attempt, min(wanted, LONGEST_S))
            log.warning("posting %s again in %.1f s: %s", name, pause, outcome)
            self._counts.add("retries")
            attempt += 1
            await self._sleep_before_retry(pause, stop)

    async def _attempt_post(
        self, http: aiohttp.ClientSession, name: str, body: bytes
    ) -> tuple[int, float, str]:
        """Returns (status, 0 where there was none; seconds that the receiver wants; outcome)."""
        headers = signed(self._keys, name, int(time.time()), body)
        try:
            async with http.post(
                self._options.url, data=body, headers=headers, allow_redirects=False
            ) as answer:
                outcome = f"answered {answer.status} {answer.reason or ''}".rstrip()
                if 300 <= answer.status < 400:
                    outcome += " (redirects are not followed)"
                wanted = retry_after(answer.headers.get("retry-after", ""), datetime.now(UTC))
                return answer.status, wanted, outcome
        except aiohttp.InvalidURL as error:
            raise invalid("url", str(error)) from None
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return 0, 0.0, f"{type(error).__name__}: {error}".rstrip(": ")

    def _build_body(self, part: list[DeliveryItem]) -> bytes:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        session = json.dumps(self._options.session, ensure_ascii=False)
        gap = part[0].query_id is None
        what = (
            f'"gap": {part[0].body}' if gap else f'"matches": [{", ".join(i.body for i in part)}]'
        )
        kind = "ps2stream.gap" if gap else "ps2stream.matches"
        data = f'{{"session": {session}, {what}}}'
        return f'{{"type": "{kind}", "timestamp": "{at}", "data": {data}}}'.encode()

    def _put_away_body(self, status: int, outcome: str, name: str, body: bytes) -> None:
        self._counts.add("bad")
        if self._options.dead_letters is None or status == 410:
            raise FailedPrecondition(f"the receiver did not accept {name}: {outcome}")
        log.warning("%s is written to the dead letters: %s", name, outcome)
        record = {"id": name, "reason": outcome, "body": json.loads(body)}
        append_records(self._options.dead_letters, [record])

    async def _sleep_before_retry(self, pause: float, stop: threading.Event) -> None:
        """Sleeps. Raises Abandoned once a stop is requested: the body is left to the next run."""
        end = time.monotonic() + pause
        while (left := end - time.monotonic()) > 0:
            if await asyncio.to_thread(stop.wait, min(left, 1.0)):
                raise ConnectorAbandoned
            if self._teller.due():
                self._teller.tell()


def check_url(url: str) -> None:
    """Raises InvalidArgument unless it is https, or http to this machine, without a password."""
    where = urlsplit(url)
    try:
        here = bool(where.hostname) and is_loopback(where.hostname or "")
    except ValueError:
        here = False
    if where.scheme not in ("http", "https") or not where.hostname:
        raise _url_error("expected an https URL")
    if where.scheme == "http" and not here:
        raise _url_error(f"matches would travel in plaintext to {where.hostname}; use https")
    if where.username or where.password:
        raise _url_error(
            "must not contain a name or password, because other users can see the options of a "
            "command"
        )


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


def parts(found: Iterator[DeliveryItem], most: int) -> Iterator[list[DeliveryItem]]:
    """Yields parts of one body each: `most` matches and MOST_BYTES at most; a gap has its own."""
    part: list[DeliveryItem] = []
    size = 0
    for item in found:
        more = len(item.body)
        alone = item.query_id is None or (part and part[-1].query_id is None)
        if part and (alone or len(part) >= most or size + more > MOST_BYTES):
            yield part
            part, size = [], 0
        part.append(item)
        size += more
    if part:
        yield part


def _build_tls(ca: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if ca is None else str(ca))
    except OSError as error:
        problem = f"{ca}: {error.strerror or error}"
        raise invalid("receiver_ca", problem) from None


def _url_error(problem: str) -> InvalidArgument:
    return invalid("url", problem)
