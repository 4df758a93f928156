"""The data plane between actors: one ZeroMQ inbox each, and an outlet to every peer.

Ray places, starts, watches and ends the actors; what flows between them does not pass
through its calls, of which each costs as much as matching a thousand objects
(docs/decisions/0003). A link keeps the order of its sender and never blocks it: what is
under way is bounded by the batches in flight and by the sessions' credits.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import zmq

from ps2stream.messages import Address, Send

POLL_MS = 100


class Links:
    """Sends from any thread, receives from one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._context = zmq.Context()
        self._inbox = self._socket(zmq.PULL)
        self._inbox.rcvtimeo = POLL_MS
        self._outlets: dict[Address, zmq.Socket[bytes]] = {}

    def bind(self, folder: Path, name: str) -> str:
        """Open the inbox as a Unix socket in `folder`, which only its owner may enter;
        the endpoint to connect to."""
        endpoint = f"ipc://{folder}/{name}"
        self._inbox.bind(endpoint)
        return endpoint

    def connect(self, endpoints: Mapping[Address, str]) -> None:
        """Open an outlet to each; called once."""
        for address, endpoint in endpoints.items():
            outlet = self._socket(zmq.PUSH)
            outlet.connect(endpoint)
            self._outlets[address] = outlet

    def post(self, sends: list[Send]) -> None:
        """Encode and send; what goes to one peer travels as one message. After `close`
        there is nobody to send to."""
        by_peer: dict[Address, list[bytes]] = {}
        for to, frame in sends:
            by_peer.setdefault(to, []).append(frame.encode())
        with self._lock:
            if self._context.closed:
                return
            for to, frames in by_peer.items():
                self._outlets[to].send_multipart(frames)

    def receive(self, wait: bool = True) -> list[bytes]:
        """The frames of the next message; empty when none comes within POLL_MS, or, without
        `wait`, when none is there."""
        try:
            return self._inbox.recv_multipart(0 if wait else zmq.NOBLOCK)
        except zmq.Again:
            return []

    def close(self) -> None:
        """Close all sockets, and drop what was not sent."""
        with self._lock:
            self._context.destroy(0)

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.set_hwm(0)
        socket.linger = 0
        return socket
