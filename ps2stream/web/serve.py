"""Runs a map: an event loop on a thread of its own, with the page and its client."""

from __future__ import annotations

import asyncio
import errno
import secrets
import ssl
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web

from ps2stream.client.async_client import AsyncClient
from ps2stream.errors import invalid
from ps2stream.security import check_web_options, is_loopback
from ps2stream.web.api.callers import Callers
from ps2stream.web.api.ephemeral import LIMIT, EphemeralQueries
from ps2stream.web.app import build_application
from ps2stream.web.connections import IDLE_S, ConnectionWatch
from ps2stream.web.gate import PageGate
from ps2stream.web.hub import PageHub
from ps2stream.web.own import DrawnQueries

PATIENCE_S = 10.0


class MapOptions(NamedTuple):
    """Options of a map: where the page is served; session None: a new one, whose queries go with
    the map; also: other dispatchers, whose objects are shown, too; allow_origin: origins whose
    pages may use the HTTP interface; ephemeral_queries: of GET /v1/stream, for each identity."""

    host: str = "127.0.0.1"
    port: int = 7080
    https_cert: Path | None = None
    https_key: Path | None = None
    session: str | None = None
    also: tuple[str, ...] = ()
    allow_origin: tuple[str, ...] = ()
    ephemeral_queries: int = LIMIT


class ServedMap(NamedTuple):
    """A map that is served: the link to open, and its hub."""

    url: str
    hub: PageHub


@contextmanager
def serving(target: str, access: Mapping[str, Any], options: MapOptions) -> Iterator[ServedMap]:
    """Serves the map of the service at `target` within the block; `access` as the client's
    parameters. Raises InvalidArgument for what cannot be served."""
    check_web_options(options.host, options.https_cert, options.https_key, options.allow_origin)
    ready = threading.Event()
    outcome: list[ServedMap | BaseException] = []
    stop: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def run() -> None:
        done = asyncio.Event()
        stop.append((asyncio.get_running_loop(), done))
        async with open_map(target, access, options) as running:
            outcome.append(running)
            ready.set()
            await done.wait()

    def main() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:  # noqa: BLE001
            outcome.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=main, name="ps2stream-map")
    thread.start()
    ready.wait()
    try:
        found = outcome[0]
        if isinstance(found, BaseException):
            raise found
        yield found
    finally:
        if thread.is_alive():
            loop, done = stop[0]
            loop.call_soon_threadsafe(done.set)
        thread.join()


@asynccontextmanager
async def open_map(
    target: str, access: Mapping[str, Any], options: MapOptions
) -> AsyncIterator[ServedMap]:
    """Serves the map on the running loop; see `serving`."""
    secret = any(access.get(name) for name in ("token", "tls_cert"))
    key = secrets.token_urlsafe(24) if secret or not is_loopback(options.host) else ""
    trust = _build_tls(options)
    async with AsyncExitStack() as stack:
        parameters = {"timeout": PATIENCE_S, **access}
        client, *others = [
            await stack.enter_async_context(AsyncClient(at, **parameters))
            for at in dict.fromkeys((target, *options.also))
        ]
        own = DrawnQueries(client, options.session)
        gate = PageGate(options.host, key, trust is not None, options.allow_origin)
        callers = Callers(target, parameters, client, gate)
        hub = PageHub(client, own, others)
        if options.session is not None:
            await own.find()
        app = build_application(hub, gate, callers, EphemeralQueries(options.ephemeral_queries))
        watch = ConnectionWatch()
        app.middlewares.insert(0, watch.note_request)
        runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=1.0,
            keepalive_timeout=IDLE_S,
            auto_decompress=False,  # api.bodies unpacks, and counts
        )
        await runner.setup()
        assert runner.server is not None
        watching = asyncio.create_task(watch.end_silent(runner.server))
        try:
            site = web.TCPSite(runner, options.host, options.port, ssl_context=trust)
            await _start_listening(site, options)
            gate.port = runner.addresses[0][1]
            yield ServedMap(_build_url(options.host, gate, trust is not None), hub)
        finally:
            watching.cancel()
            await runner.cleanup()
            await hub.close()
            await own.leave()


def _build_tls(options: MapOptions) -> ssl.SSLContext | None:
    if options.https_cert is None or options.https_key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(options.https_cert, options.https_key, password="")
    except OSError as error:  # ssl.SSLError is one
        why = error.strerror or str(error)
        raise invalid("--https-cert, --https-key", f"cannot be used: {why}") from None
    return context


async def _start_listening(site: web.TCPSite, options: MapOptions) -> None:
    try:
        await site.start()
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = "is in use" if taken else f"cannot be opened: {error.strerror}"
        raise invalid("--port", f"{options.port} on {options.host} {why}") from None


def _build_url(host: str, gate: PageGate, secure: bool) -> str:
    name = f"[{host}]" if ":" in host else host
    key = f"?key={gate.key}" if gate.key else ""
    return f"http{'s' * secure}://{name}:{gate.port}/{key}"
