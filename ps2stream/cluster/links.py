"""The data plane between actors: an inbox each, and an outlet to every peer that is sent to.

Ray places, starts, watches and ends the actors; what flows between them does not pass
through its calls, each of which costs as much as matching a thousand objects
(docs/decisions/0003). A link keeps the order of its sender and never blocks it. Messages to an
incarnation that died are lost with it. Messages to a slow or absent peer are dropped while
LINK_BYTES wait for it: it requests what it lacks, or is sent it again (docs/decisions/0006).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ps2stream.cluster.actor_home import ActorHome, clock
from ps2stream.cluster.fence import MessageFence, MessageHead
from ps2stream.cluster.link_sockets import LinkSockets, MessageParts, WaitingBytes
from ps2stream.cluster.unix_sockets import UnixSockets
from ps2stream.observability.meter import StageMeter
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import FrameError

if TYPE_CHECKING:
    from ps2stream.cluster.curve_sockets import CurveSockets

POLL_MS = 100


class _HeldMessages:
    """Messages to a peer to which there is no outlet yet."""

    def __init__(self) -> None:
        self.messages: list[list[bytes]] = []
        self._waiting = WaitingBytes()

    def add(self, parts: list[bytes]) -> bool:
        """Adds a message; returns False if too much waits, so that it was dropped."""
        fits = self._waiting.admit(sum(map(len, parts)))
        if fits:
            self.messages.append(parts)
        return fits


class PeerLinks:
    """The links of `owner` in its incarnation `epoch`, to peers on its host unless it listens to
    others. Sends from any thread, receives from one. `meter` counts how long messages were on
    their way; `dropped` counts messages that found LINK_BYTES waiting, `sent_frames` and
    `sent_bytes` what was sent, without the heads of messages.

    The outlet to a peer is opened when a first message is sent there, for most actors never send
    to most others. Dispatchers open all at once: they learn by them which peers are gone."""

    def __init__(self, owner: Address, epoch: int, meter: StageMeter | None = None) -> None:
        self.owner = owner
        self.epoch = epoch
        self._meter = StageMeter() if meter is None else meter
        self.fence = MessageFence()
        self.dropped = 0
        self.sent_frames = self.sent_bytes = 0
        self._lock = threading.Lock()
        self._sent = 0  # the number of the last message
        self._far: set[Address] = set()  # peers with another clock
        self._receiver = threading.get_ident()  # the thread that receives, or will start that one
        self._unopened: dict[Address, tuple[str, ActorHome | None]] = {}
        self._held: dict[Address, _HeldMessages] = {}  # of other threads, to unopened ones
        self._is_closed = False
        self._curve: CurveSockets | None = None
        self._sockets: LinkSockets = UnixSockets(self._lock)

    @property
    def gone(self) -> deque[Address]:
        """The peers whose end of a link was closed, in that order."""
        return self._sockets.gone

    def bind(self, folder: Path) -> str:
        """Opens the inbox as a Unix socket in `folder`, which only its owner may enter; returns
        the endpoint to connect to."""
        path = folder / f"{self.owner.role}-{self.owner.index}.{self.epoch}"
        assert isinstance(self._sockets, UnixSockets)
        self._sockets.bind(path)
        return f"ipc://{path}"

    def listen(self, home: ActorHome, ports: range = range(0)) -> tuple[str, ActorHome]:
        """Opens the inbox to other hosts, at `home` and one of these ports, or any port where
        there are none; returns the endpoint, and the home with the key. Raises Unavailable when
        all ports are in use."""
        from ps2stream.cluster.curve_sockets import CurveSockets

        curve = CurveSockets(self._lock, home, ports)
        self._sockets.close()
        self._sockets = self._curve = curve
        return curve.endpoint, home._replace(key=curve.key)

    def admit(self, peer: Address, home: ActorHome) -> None:
        """Admits this incarnation of `peer`, perhaps of another host, before it is known where
        it listens. From any thread."""
        if self._curve is not None:
            self._curve.admit(peer, home)

    def connect(
        self, peer: Address, endpoint: str, epoch: int, home: ActorHome | None = None
    ) -> None:
        """Has messages to `peer` go to this incarnation instead of an earlier one, whose messages
        are refused from now on. On the thread that receives."""
        self.fence.raise_to(peer, epoch)
        near = home is None or home.clock == clock()
        (self._far.discard if near else self._far.add)(peer)
        if self.owner.role == "dispatcher":
            self._sockets.connect(peer, endpoint, home)
            return
        self.disconnect(peer)
        if home is not None:
            self.admit(peer, home)
        with self._lock:
            self._unopened[peer] = endpoint, home

    def disconnect(self, peer: Address) -> None:
        """Closes the outlet to `peer`, until it is connected again. On the thread that
        receives."""
        with self._lock:
            self._unopened.pop(peer, None)
            self._held.pop(peer, None)
        self._sockets.disconnect(peer)

    def post(self, sends: list[Send]) -> None:
        """Encodes and sends; the frames to one peer travel as one message. Does nothing after
        `close`."""
        by_peer: dict[Address, list[bytes]] = {}
        encoded: dict[int, bytes] = {}
        for to, frame in sends:
            data = encoded.get(id(frame))
            if data is None:
                data = encoded[id(frame)] = frame.encode()
            by_peer.setdefault(to, []).append(data)
        if self._unopened and self._receiver == threading.get_ident():
            self._open_outlets(by_peer)
        with self._lock:
            if self._is_closed:
                return
            for to, frames in by_peer.items():
                self._sent += 1
                self.sent_frames += len(frames)
                self.sent_bytes += sum(map(len, frames))
                sent = 0.0 if to in self._far else time.monotonic()
                head = MessageHead(self.owner, self.epoch, self._sent, sent).encode()
                self.dropped += not self._send([head, *frames], to)

    def receive(self, wait_ms: int = POLL_MS) -> MessageParts | None:
        """Returns the frames of the next message, no frames for a refused one; None when no
        message comes within `wait_ms`, or when a peer is gone."""
        self._receiver = threading.get_ident()
        if self._held:
            self._open_outlets(tuple(self._held))
        parts = self._sockets.receive(wait_ms)
        if parts is None:
            return None
        try:
            head = MessageHead.decode(parts[0] if parts else b"")
        except FrameError:  # of a stranger
            self.fence.refused += 1
            return []
        if not self.fence.accept(head):
            return []
        if head.sent:
            self._meter.add("link", time.monotonic() - head.sent)
        return parts[1:]

    def _send(self, parts: list[bytes], to: Address) -> bool:
        """Sends a message, or holds it until the thread that receives has opened the outlet, which
        it looks for at least every POLL_MS; returns False if too much waits. With the lock."""
        if to not in self._unopened:
            return self._sockets.send(to, parts)
        return self._held.setdefault(to, _HeldMessages()).add(parts)

    def _open_outlets(self, peers: Iterable[Address]) -> None:
        """Opens the outlets to those of these peers to which there is none, and sends what was held
        for them. On the thread that receives."""
        for peer in peers:
            if (where := self._unopened.get(peer)) is None:
                continue
            self._sockets.connect(peer, *where)
            with self._lock:
                del self._unopened[peer]
                for parts in self._held.pop(peer, _HeldMessages()).messages:
                    self.dropped += not self._sockets.send(peer, parts)

    def fileno(self) -> int:
        """Returns a descriptor that can be read when a message comes or a peer is gone; then
        `find_gone` and `receive` follow, until nothing is left. On the thread that receives."""
        return self._sockets.fileno()

    def find_gone(self, surely: bool) -> None:
        """Notes the peers that are gone by now, after `fileno`; unless `surely`, only if the
        descriptor shows that there are any."""
        self._sockets.find_gone(surely)

    def close(self) -> None:
        """Closes all sockets, and drops what was not sent."""
        with self._lock:
            self._is_closed = True
            self._sockets.close()
