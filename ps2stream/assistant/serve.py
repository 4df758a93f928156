"""Runs the MCP server: on standard input and output, or over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import RequestBodyLimitMiddleware, TransportSecuritySettings
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from ps2stream.assistant.callers import MAX_CALLERS, CallerTable, build_own_caller
from ps2stream.assistant.gate import AssistantGate
from ps2stream.assistant.server import build_server
from ps2stream.assistant.sessions import EACH, IDLE_S
from ps2stream.assistant.tools import SUBSCRIPTIONS, AssistantTools
from ps2stream.client.async_client import AsyncClient
from ps2stream.errors import PermissionDenied, Ps2StreamError, Unauthenticated, Unavailable, invalid
from ps2stream.limits import SESSION_BYTES
from ps2stream.security import check_web_options, is_loopback

PATH = "/mcp"
BODY_BYTES = 256 << 10
"""Bytes of a request over HTTP."""
CONNECTIONS = 256
PROTOCOL_SESSIONS = MAX_CALLERS * EACH
"""Sessions of the protocol of 2025; a request of the protocol of 2026 needs none."""
SWEEP_S = 30.0
STOP_S = 2
NAME_BYTES = SESSION_BYTES - 48
"""Bytes of a session's name: that of a subscription is longer."""
CORS = ("Authorization", "Content-Type", "Last-Event-ID", "Mcp-Session-Id", "Mcp-Protocol-Version")


class McpOptions(NamedTuple):
    """Options of an MCP server: the session of the service whose subscriptions and matches it
    serves, and how many it may have; over HTTP the address, its certificate, and the origins whose
    pages may use it."""

    session: str = "mcp"
    max_subscriptions: int = SUBSCRIPTIONS
    host: str = "127.0.0.1"
    port: int = 7081
    https_cert: Path | None = None
    https_key: Path | None = None
    allow_origin: tuple[str, ...] = ()


class AssistantWebServer(uvicorn.Server):
    """A web server that leaves signals to the program."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve_stdio(target: str, access: Mapping[str, Any], options: McpOptions) -> None:
    """Serves the protocol on standard input and output, until the input ends."""
    check(options)
    async with AsyncClient(target, **access) as client:
        caller = build_own_caller(client, access, options.session)
        server = build_server(AssistantTools(options.max_subscriptions), caller)
        try:
            async with stdio_server() as (reading, writing):
                await server.run(reading, writing, server.create_initialization_options())
        finally:
            await caller.close()


@asynccontextmanager
async def open_http(
    target: str, access: Mapping[str, Any], options: McpOptions
) -> AsyncIterator[str]:
    """Serves the protocol over HTTP within the block; yields the URL. Raises InvalidArgument for
    what cannot be served."""
    check(options)
    is_open = await check_service(target, access)
    if is_open and not is_loopback(options.host):
        raise invalid(
            "--host",
            f"{options.host} is not a loopback address, and the service asks nobody for a token: "
            "whoever reaches this address could use it; set auth in the service",
        )
    callers = CallerTable(target, access, options.session, is_open)
    with open_socket(options) as listening:
        port = listening.getsockname()[1]
        app = build_application(callers, options, port)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            ws="none",
            limit_concurrency=CONNECTIONS,
            timeout_graceful_shutdown=STOP_S,
            ssl_certfile=options.https_cert,
            ssl_keyfile=options.https_key,
            ssl_keyfile_password=None if options.https_key is None else "",
        )
        try:
            config.load()
        except OSError as error:  # ssl.SSLError is one
            why = error.strerror or str(error)
            raise invalid("--https-cert, --https-key", f"cannot be used: {why}") from None
        async with run_server(AssistantWebServer(config), listening), close_idle_callers(callers):
            name = f"[{options.host}]" if ":" in options.host else options.host
            yield f"http{'s' * (options.https_cert is not None)}://{name}:{port}{PATH}"


def build_application(callers: CallerTable, options: McpOptions, port: int) -> ASGIApp:
    """Returns the ASGI application: the protocol behind the gate."""
    secure = options.https_cert is not None
    origins = list(options.allow_origin)
    hosts = list_hosts(port, secure) if is_loopback(options.host) else None
    server = build_server(AssistantTools(options.max_subscriptions))
    app: ASGIApp = server.streamable_http_app(
        streamable_http_path=PATH,
        host=options.host,
        session_idle_timeout=IDLE_S,
        max_sessions=PROTOCOL_SESSIONS,
        transport_security=TransportSecuritySettings(
            enable_dns_rebinding_protection=hosts is not None,
            allowed_hosts=hosts or [],
            allowed_origins=origins,
        ),
    )
    # It reads the body, so that nothing has been answered when one does not arrive.
    app = RequestBodyLimitMiddleware(app, BODY_BYTES)
    app = AssistantGate(app, callers, hosts, origins)
    if origins:
        app = CORSMiddleware(
            app,
            allow_origins=origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=CORS,
            expose_headers=["Mcp-Session-Id"],
        )
    return app


async def check_service(target: str, access: Mapping[str, Any]) -> bool:
    """Returns whether the service lets everybody in. Raises Unavailable when it does not answer."""
    own = ("token", "tls_cert", "tls_key")
    bare = {name: value for name, value in access.items() if name not in own}
    async with AsyncClient(target, **bare) as client:
        try:
            await client.list_page("mcp", page_size=1)
        except (Unauthenticated, PermissionDenied):
            return False
    return True


def check(options: McpOptions) -> None:
    """Checks the options. Raises InvalidArgument, naming the option."""
    size = len(options.session.encode("utf-8", "replace"))
    if not 0 < size <= NAME_BYTES:
        raise invalid("--session", f"has {size} bytes; the limits are 1 and {NAME_BYTES}")
    check_web_options(options.host, options.https_cert, options.https_key, options.allow_origin)


def list_hosts(port: int, secure: bool) -> list[str]:
    """Returns the values of Host that name this machine."""
    names = ("127.0.0.1", "localhost", "[::1]")
    usual = port == (443 if secure else 80)
    return [f"{name}:{port}" for name in names] + list(names) * usual


@contextlib.contextmanager
def open_socket(options: McpOptions) -> Iterator[socket.socket]:
    """Listens on the address within the block. Raises InvalidArgument when that is not possible."""
    try:
        family, *_, address = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.create_server(address[:2], family=family)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = "is in use" if taken else f"cannot be opened: {error.strerror}"
        raise invalid("--port", f"{options.port} on {options.host} {why}") from None
    with listening:
        yield listening


@asynccontextmanager
async def run_server(server: uvicorn.Server, listening: socket.socket) -> AsyncIterator[None]:
    """Runs a web server within the block."""
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        while not server.started:
            if serving.done():
                await serving
                raise Unavailable("the web server did not start")
            await asyncio.sleep(0.01)
        yield
    finally:
        server.should_exit = True
        await asyncio.gather(serving, return_exceptions=True)


@asynccontextmanager
async def close_idle_callers(callers: CallerTable) -> AsyncIterator[None]:
    """Closes the callers that are idle, and in the end all."""

    async def sweep() -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            with contextlib.suppress(Ps2StreamError, TimeoutError):
                await callers.close_idle()

    sweeping = asyncio.create_task(sweep())
    try:
        yield
    finally:
        sweeping.cancel()
        await callers.close()
