"""The data plane between actors: one ZeroMQ inbox each, and an outlet to every peer.

Ray places, starts, watches and ends the actors; what flows between them does not pass
through its calls, each of which costs as much as matching a thousand objects
(docs/decisions/0003). A link keeps the order of its sender and never blocks it. Messages to an
incarnation that died are lost with it. Messages to a slow or absent peer are dropped while
LINK_BYTES wait for it: it requests what it lacks, or is sent it again (docs/decisions/0006).
"""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import zmq

from ps2stream.cluster.actor_home import ActorHome, clock, numeric
from ps2stream.cluster.curve import CurveKeys
from ps2stream.cluster.fence import MessageFence, MessageHead
from ps2stream.errors import Unavailable
from ps2stream.observability.meter import StageMeter
from ps2stream.protocol.addresses import Address, Send

POLL_MS = 100
LINK_BYTES = 128 << 20
"""Bytes that may wait in a sender for one peer."""
INBOX_MESSAGES = 256
"""Messages of each peer that ZeroMQ reads ahead."""
_TRACKED_BYTES = 4 << 20
"""Bytes that are sent before ZeroMQ is again asked to report when they have left: each report wakes
a thread of its own, and costs more than a copy of the message."""


class _PeerOutlet:
    """A link to one peer, and the bytes that wait on it. `near`: the clock is the same there."""

    def __init__(self, socket: zmq.Socket[bytes], near: bool) -> None:
        self.socket = socket
        self._near = near
        self._number = 0
        self._sent: deque[tuple[zmq.MessageTracker, int]] = deque()  # in order, with their bytes
        self._untracked = 0  # bytes sent since the last tracked ones
        self._waiting = 0

    def send(self, owner: Address, epoch: int, frames: Sequence[bytes]) -> bool:
        """Sends the frames as one message; returns False if too much waits, so it was dropped."""
        while self._sent and self._sent[0][0].done:
            self._waiting -= self._sent.popleft()[1]
        size = sum(map(len, frames))
        if self._waiting and self._waiting + size > LINK_BYTES:
            return False
        self._number += 1
        self._waiting += size
        self._untracked += size
        sent = time.monotonic() if self._near else 0.0
        *rest, last = [MessageHead(owner, epoch, self._number, sent).encode(), *frames]
        self.socket.send_multipart(rest, zmq.SNDMORE)
        if self._untracked < _TRACKED_BYTES:
            self.socket.send(last)
        else:
            tracker = self.socket.send(last, copy=False, track=True)
            self._sent.append((tracker, self._untracked))
            self._untracked = 0
        return True


class PeerLinks:
    """The links of `owner` in its incarnation `epoch`. Sends from any thread, receives from
    one. `meter` counts how long messages were on their way; `dropped` counts messages that
    found LINK_BYTES waiting; `gone` lists peers whose end of a link was closed, in that order."""

    def __init__(self, owner: Address, epoch: int, meter: StageMeter | None = None) -> None:
        self.owner = owner
        self.epoch = epoch
        self._meter = StageMeter() if meter is None else meter
        self.fence = MessageFence()
        self.dropped = 0
        self.gone: deque[Address] = deque()
        self._lock = threading.Lock()
        self._context = zmq.Context()
        self._inbox = self._open_socket(zmq.PULL)
        self._inbox.rcvhwm = INBOX_MESSAGES
        self._poller = zmq.Poller()
        self._poller.register(self._inbox, zmq.POLLIN)
        self._readiness: select.epoll | None = None
        self._monitors: dict[Address, zmq.Socket[bytes]] = {}
        self._outlets: dict[Address, _PeerOutlet] = {}
        self._curve: CurveKeys | None = None

    def bind(self, folder: Path) -> str:
        """Opens the inbox as a Unix socket in `folder`, which only its owner may enter; returns
        the endpoint to connect to."""
        endpoint = f"ipc://{folder}/{self.owner.role}-{self.owner.index}.{self.epoch}"
        self._inbox.bind(endpoint)
        return endpoint

    def listen(self, home: ActorHome, ports: range = range(0)) -> tuple[str, ActorHome]:
        """Opens the inbox to other hosts, at `home` and one of these ports, or any port where
        there are none; returns the endpoint, and the home with the key. Raises Unavailable when
        all ports are in use."""
        self._curve = CurveKeys(self._context)
        self._curve.guard(self._inbox)
        self._inbox.ipv6 = ":" in home.host
        where = f"tcp://{numeric(home.host)}"
        for port in ports or (0,):
            with contextlib.suppress(zmq.ZMQError):
                self._inbox.bind(f"{where}:{port}")
                endpoint = self._inbox.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
                return endpoint, home._replace(key=self._curve.public)
        which = f"{ports[0]}-{ports[-1]}" if ports else "all ports"
        raise Unavailable(f"link_ports: none of {which} is free on {home.host}")

    def admit(self, peer: Address, home: ActorHome) -> None:
        """Admits this incarnation of `peer`, perhaps of another host, before it is known where
        it listens. From any thread."""
        if self._curve is not None:
            self._curve.admit(peer, home.key)

    def connect(
        self, peer: Address, endpoint: str, epoch: int, home: ActorHome | None = None
    ) -> None:
        """Opens an outlet to this incarnation of `peer` in place of one to an earlier, whose
        messages are refused from now on. On the thread that receives."""
        self.fence.raise_to(peer, epoch)
        outlet = self._open_socket(zmq.PUSH)
        if home is not None and self._curve is not None:
            self._curve.admit(peer, home.key)
            self._curve.join(outlet, home.key)
            outlet.ipv6 = ":" in home.host
        near = home is None or home.clock == clock()
        monitor = outlet.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        outlet.connect(endpoint)
        with self._lock:
            old, self._outlets[peer] = self._outlets.get(peer), _PeerOutlet(outlet, near)
        self._close_outlet(peer, old)
        self._monitors[peer] = monitor
        self._poller.register(monitor, zmq.POLLIN)
        if self._readiness is not None:
            self._readiness.register(monitor.FD, select.EPOLLIN)
            self._await_event(0)

    def disconnect(self, peer: Address) -> None:
        """Closes the outlet to `peer`, until it is connected again. On the thread that
        receives."""
        if self._curve is not None:
            self._curve.dismiss(peer)
        with self._lock:
            outlet = self._outlets.pop(peer, None)
        self._close_outlet(peer, outlet)

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
        with self._lock:
            if self._context.closed:
                return
            for to, frames in by_peer.items():
                if (outlet := self._outlets.get(to)) is not None:
                    self.dropped += not outlet.send(self.owner, self.epoch, frames)

    def receive(self, wait_ms: int = POLL_MS) -> list[bytes] | None:
        """Returns the frames of the next message, no frames for a refused one; None when no
        message comes within `wait_ms`, or when a peer is gone."""
        try:
            first, *frames = self._inbox.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            if not wait_ms:
                return None
            self._await_event(wait_ms)
            return self.receive(0)
        head = MessageHead.decode(first)
        if not self.fence.accept(head):
            return []
        if head.sent:
            self._meter.add("link", time.monotonic() - head.sent)
        return frames

    def fileno(self) -> int:
        """Returns a descriptor that can be read when a message comes or a peer is gone; then
        `find_gone` and `receive` follow, until nothing is left. On the thread that receives."""
        if self._readiness is None:
            self._readiness = select.epoll()
            for socket in (self._inbox, *self._monitors.values()):
                self._readiness.register(socket.FD, select.EPOLLIN)
            self._await_event(0)  # ZeroMQ signals only what comes after a look that found nothing
        return self._readiness.fileno()

    def find_gone(self, surely: bool) -> None:
        """Notes the peers that are gone by now, after `fileno`; unless `surely`, only if the
        descriptor shows that there are any."""
        assert self._readiness is not None
        inbox = self._inbox.FD
        if surely or any(descriptor != inbox for descriptor, _ in self._readiness.poll(0)):
            self._await_event(0)

    def close(self) -> None:
        """Closes all sockets, and drops what was not sent."""
        if self._curve is not None:
            self._curve.close()
        with self._lock:
            self._context.destroy(0)
        if self._readiness is not None:
            self._readiness.close()

    def _await_event(self, most_ms: int) -> None:
        """Waits until a message comes, a peer is gone, or the time is over."""
        ready = dict(self._poller.poll(most_ms))
        for peer, monitor in self._monitors.items():
            if monitor in ready:
                with contextlib.suppress(zmq.Again):
                    while monitor.recv_multipart(zmq.NOBLOCK):
                        pass
                self.gone.append(peer)

    def _close_outlet(self, peer: Address, outlet: _PeerOutlet | None) -> None:
        if outlet is None:
            return
        # ZeroMQ's thread would wait for ever on a monitor whose events nobody reads.
        outlet.socket.disable_monitor()
        monitor = self._monitors.pop(peer)
        self._poller.unregister(monitor)
        if self._readiness is not None:
            self._readiness.unregister(monitor.FD)
        monitor.close(0)
        outlet.socket.close(0)

    def _open_socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.set_hwm(0)
        socket.linger = 0
        socket.copy_threshold = 0  # otherwise short messages are not tracked
        return socket
