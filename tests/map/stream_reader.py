"""A reader of server-sent events on a bare socket, which can be cut at any byte."""

from __future__ import annotations

import json
import socket
import struct
import time
import urllib.parse
from collections.abc import Mapping
from typing import Any, NamedTuple

NONE: Mapping[str, str] = {}
PATIENCE_S = 60.0
"""How long an event is waited for, though beats come."""


class SentEvent(NamedTuple):
    """An event: its id, its kind, and its data."""

    id: str
    event: str
    data: Any


class StreamReader:
    """One request, for server-sent events: what HTTP says of lengths is taken off, and whole events
    are read."""

    def __init__(
        self,
        home: str,
        path: str,
        headers: Mapping[str, str] = NONE,
        timeout: float = 20.0,
        method: str = "GET",
    ) -> None:
        place = urllib.parse.urlsplit(home)
        self._socket = socket.create_connection((place.hostname, place.port), timeout)
        lines = {"Host": place.netloc, "Accept": "text/event-stream", **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._socket.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode())
        self._deadline = time.monotonic() + PATIENCE_S
        self._raw, self._text = b"", b""
        self.comments = 0
        self.retry = 0
        top = self._read_until(b"\r\n\r\n").decode().split("\r\n")
        self.status = int(top[0].split()[1])
        self.headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in top[1:])
        }

    def body(self) -> Any:
        """The JSON of an answer that is no stream."""
        size = int(self.headers["content-length"])
        while len(self._raw) < size:
            self._receive()
        return json.loads(self._raw[:size])

    def next(self) -> SentEvent:
        """The next event. Raises EOFError at the end of the stream, and TimeoutError if none comes
        in time, whatever else keeps the stream alive."""
        self._deadline = time.monotonic() + PATIENCE_S
        while True:
            while b"\n\n" not in self._text:
                self._read_chunk()
            block, _, self._text = self._text.partition(b"\n\n")
            fields: dict[str, str] = {}
            for line in block.decode().split("\n"):
                name, _, value = line.partition(": ")
                fields[name] = value
            self.comments += "" in fields
            self.retry = int(fields.get("retry", self.retry))
            if "data" in fields:
                data = json.loads(fields["data"])
                return SentEvent(fields.get("id", ""), fields["event"], data)

    def cut(self) -> None:
        """Resets the connection: what is under way is lost."""
        if self._socket.fileno() < 0:
            return
        linger = struct.pack("ii", 1, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._socket.close()

    def _read_chunk(self) -> None:
        size = int(self._read_until(b"\r\n").split(b";")[0], 16)
        while len(self._raw) < size + 2:
            self._receive()
        self._text += self._raw[:size]
        self._raw = self._raw[size + 2 :]
        if not size:
            raise EOFError

    def _read_until(self, end: bytes) -> bytes:
        while end not in self._raw:
            self._receive()
        found, _, self._raw = self._raw.partition(end)
        return found

    def _receive(self) -> None:
        if time.monotonic() > self._deadline:
            raise TimeoutError("no event came in time")
        data = self._socket.recv(1 << 14)
        if not data:
            raise EOFError
        self._raw += data
