"""A receiver of webhooks that fails, waits and dies as told."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()


class Request(NamedTuple):
    """As it came; `good` whether its signature is."""

    headers: dict[str, str]
    body: dict[str, Any]
    good: bool
    answered: int

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def numbers(self) -> list[int]:
        return [match["seq"] for match in self.body["data"]["matches"]]


class Receiver:
    """Answers by `script`, one entry a request: a status, (status, headers), or None, which breaks
    the connection without an answer; then 204."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.script: list[Any] = []
        self.url = ""
        self._came = threading.Condition()

    def take(self, headers: dict[str, str], data: bytes) -> tuple[int, dict[str, str]] | None:
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + data
        digest = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
        with self._came:
            answer = self.script.pop(0) if self.script else 204
            status, more = answer if isinstance(answer, tuple) else (answer or 0, {})
            good = f"v1,{digest}" in headers["webhook-signature"].split()
            self.requests.append(Request(headers, json.loads(data), good, status))
            self._came.notify_all()
        return (status, more) if status else None

    def until(self, count: int) -> list[Request]:
        """All requests, once there are so many."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.requests) >= count, 60)
            return list(self.requests)


R = TypeVar("R", bound=Receiver)


@contextmanager
def receiving(cert: Path | None = None, key: Path | None = None) -> Iterator[Receiver]:
    """At a port of its own, with TLS if there is a certificate."""
    with serving(Receiver(), cert, key) as receiver:
        yield receiver


@contextmanager
def serving(receiver: R, cert: Path | None = None, key: Path | None = None) -> Iterator[R]:
    """Serves such a receiver."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            answer = receiver.take({k.lower(): v for k, v in self.headers.items()}, data)
            if answer is None:
                self.close_connection = True
                return
            self.send_response(answer[0])
            for name, value in {"content-length": "0", **answer[1]}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            pass  # who posts is killed

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    scheme = "http"
    if cert is not None:
        scheme = "https"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    receiver.url = f"{scheme}://127.0.0.1:{server.server_port}/hook"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
