"""The data plane between actors: one ZeroMQ inbox each, and an outlet to every peer.

Ray places, starts, watches and ends the actors; what flows between them does not pass
through its calls, of which each costs as much as matching a thousand objects
(docs/decisions/0003). A link keeps the order of its sender and never blocks it: what is
under way is bounded by the batches in flight and by the sessions' credits. What was sent
to an incarnation that died is lost with it.
"""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import zmq

from ps2stream.cluster.fence import Fence, Head
from ps2stream.messages import Address, Send

POLL_MS = 100


@dataclasses.dataclass
class _Outlet:
    socket: zmq.Socket[bytes]
    number: int = 0


class Links:
    """The links of `owner` in its incarnation `epoch`. Sends from any thread, receives from
    one."""

    def __init__(self, owner: Address, epoch: int) -> None:
        self.owner = owner
        self.epoch = epoch
        self.fence = Fence()
        self._lock = threading.Lock()
        self._context = zmq.Context()
        self._inbox = self._socket(zmq.PULL)
        self._inbox.rcvtimeo = POLL_MS
        self._outlets: dict[Address, _Outlet] = {}

    def bind(self, folder: Path) -> str:
        """Open the inbox as a Unix socket in `folder`, which only its owner may enter;
        the endpoint to connect to."""
        endpoint = f"ipc://{folder}/{self.owner.role}-{self.owner.index}.{self.epoch}"
        self._inbox.bind(endpoint)
        return endpoint

    def connect(self, peer: Address, endpoint: str, epoch: int) -> None:
        """Open an outlet to this incarnation of `peer`, instead of one to an earlier; what
        an earlier one still sends is refused from now on."""
        self.fence.raise_to(peer, epoch)
        outlet = self._socket(zmq.PUSH)
        outlet.connect(endpoint)
        with self._lock:
            old, self._outlets[peer] = self._outlets.get(peer), _Outlet(outlet)
        if old is not None:
            old.socket.close(0)

    def post(self, sends: list[Send]) -> None:
        """Encode and send; what goes to one peer travels as one message. After `close`
        there is nobody to send to."""
        by_peer: dict[Address, list[bytes]] = {}
        encoded: dict[int, bytes] = {}
        for to, frame in sends:
            data = encoded.get(id(frame))
            if data is None:
                data = encoded[id(frame)] = frame.encode()
            by_peer.setdefault(to, []).append(data)
        with self._lock:
            if self._context.closed:
                return
            for to, frames in by_peer.items():
                if (outlet := self._outlets.get(to)) is not None:
                    outlet.number += 1
                    head = Head(self.owner, self.epoch, outlet.number).encode()
                    outlet.socket.send_multipart([head, *frames])

    def receive(self, wait: bool = True) -> list[bytes] | None:
        """The frames of the next message, none of a refused one; None when no message comes
        within POLL_MS, or, without `wait`, when none is there."""
        try:
            head, *frames = self._inbox.recv_multipart(0 if wait else zmq.NOBLOCK)
        except zmq.Again:
            return None
        return frames if self.fence.accept(Head.decode(head)) else []

    def close(self) -> None:
        """Close all sockets, and drop what was not sent."""
        with self._lock:
            self._context.destroy(0)

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.set_hwm(0)
        socket.linger = 0
        return socket
