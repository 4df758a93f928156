"""A server of feeds: documents with ETags, packed if wanted, redirects and failures as scripted."""

from __future__ import annotations

import gzip
import hashlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, NamedTuple


class FeedRequest(NamedTuple):
    path: str
    headers: dict[str, str]
    answered: int


class ScriptedAnswer(NamedTuple):
    """What is answered once to a path, instead of its document."""

    status: int
    headers: Mapping[str, str] = MappingProxyType({})
    body: bytes = b""


class FeedServer:
    """Serves `documents` by path; `script` holds the answers that come first, by path."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.documents: dict[str, bytes] = {}
        self.script: dict[str, list[ScriptedAnswer]] = {}
        self.requests: list[FeedRequest] = []
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        self._came = threading.Condition()

    def note(self, request: FeedRequest) -> None:
        with self._came:
            self.requests.append(request)
            self._came.notify_all()

    def wait_for(self, path: str, status: int, times: int = 1) -> None:
        """Returns once so many requests were answered so."""
        with self._came:
            assert self._came.wait_for(lambda: self.count(path, status) >= times, 120)

    def count(self, path: str, status: int) -> int:
        return sum(r.path == path and r.answered == status for r in self.requests)

    def answer(self, path: str, headers: dict[str, str]) -> ScriptedAnswer:
        if waiting := self.script.get(path):
            return waiting.pop(0)
        if (body := self.documents.get(path)) is None:
            return ScriptedAnswer(404)
        etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        if headers.get("if-none-match") == etag:
            return ScriptedAnswer(304, {"ETag": etag})
        if "gzip" in headers.get("accept-encoding", ""):
            packed = {"ETag": etag, "Content-Encoding": "gzip"}
            return ScriptedAnswer(200, packed, gzip.compress(body))
        return ScriptedAnswer(200, {"ETag": etag}, body)


@contextmanager
def feed_server() -> Iterator[FeedServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            path = self.path.partition("?")[0]
            found = served.answer(path, headers)
            self.send_response(found.status)
            for name, value in found.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(found.body)))
            self.end_headers()
            self.wfile.write(found.body)
            served.note(FeedRequest(path, headers, found.status))

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served = FeedServer(server)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()
