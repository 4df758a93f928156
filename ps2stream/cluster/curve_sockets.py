"""Links between actors of several hosts: ZeroMQ over TCP with CURVE; see `curve`."""

from __future__ import annotations

import contextlib
import select
import threading
from collections import deque
from collections.abc import Sequence

import zmq

from ps2stream.cluster.actor_home import ActorHome, numeric
from ps2stream.cluster.curve import CurveKeys
from ps2stream.cluster.link_sockets import LinkSockets, MessageParts, WaitingBytes
from ps2stream.errors import Unavailable
from ps2stream.protocol.addresses import Address

INBOX_MESSAGES = 256
"""Messages of each peer that ZeroMQ reads ahead."""
_TRACKED_BYTES = 4 << 20
"""Bytes that are sent before ZeroMQ is again asked to report when they have left: each report wakes
a thread of its own, and costs more than a copy of the message."""


class CurveSockets(LinkSockets):
    """The sockets of an actor with peers on other hosts; see LinkSockets. Opens the inbox at `home`
    and one of these ports, or any port where there are none; `endpoint` is where it listens, `key`
    its public key. Raises Unavailable when all ports are in use."""

    def __init__(self, lock: threading.Lock, home: ActorHome, ports: range) -> None:
        self.gone: deque[Address] = deque()
        self._lock = lock
        self._context = zmq.Context()
        self._keys = CurveKeys(self._context)
        self._inbox = self._open_socket(zmq.PULL)
        self._inbox.rcvhwm = INBOX_MESSAGES
        self._keys.guard(self._inbox)
        self._inbox.ipv6 = ":" in home.host
        self._poller = zmq.Poller()
        self._poller.register(self._inbox, zmq.POLLIN)
        self._readiness: select.epoll | None = None
        self._monitors: dict[Address, zmq.Socket[bytes]] = {}
        self._outlets: dict[Address, _CurveOutlet] = {}
        self.key = self._keys.public
        try:
            self.endpoint = self._bind(home.host, ports)
        except Unavailable:
            self.close()
            raise

    def admit(self, peer: Address, home: ActorHome) -> None:
        """Admits this incarnation of `peer`. From any thread."""
        self._keys.admit(peer, home.key)

    def connect(self, peer: Address, endpoint: str, home: ActorHome | None) -> None:
        assert home is not None
        outlet = self._open_socket(zmq.PUSH)
        self._keys.admit(peer, home.key)
        self._keys.join(outlet, home.key)
        outlet.ipv6 = ":" in home.host
        monitor = outlet.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        outlet.connect(endpoint)
        with self._lock:
            old, self._outlets[peer] = self._outlets.get(peer), _CurveOutlet(outlet)
        self._close_outlet(peer, old)
        self._monitors[peer] = monitor
        self._poller.register(monitor, zmq.POLLIN)
        if self._readiness is not None:
            self._readiness.register(monitor.FD, select.EPOLLIN)
            self._await_event(0)

    def disconnect(self, peer: Address) -> None:
        self._keys.dismiss(peer)
        with self._lock:
            outlet = self._outlets.pop(peer, None)
        self._close_outlet(peer, outlet)

    def send(self, peer: Address, parts: Sequence[bytes]) -> bool:
        outlet = self._outlets.get(peer)
        return outlet is None or outlet.send(parts)

    def receive(self, wait_ms: int) -> MessageParts | None:
        try:
            return self._inbox.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            if not wait_ms:
                return None
            self._await_event(wait_ms)
            return self.receive(0)

    def fileno(self) -> int:
        if self._readiness is None:
            self._readiness = select.epoll()
            for socket in (self._inbox, *self._monitors.values()):
                self._readiness.register(socket.FD, select.EPOLLIN)
            self._await_event(0)  # ZeroMQ signals only what comes after a look that found nothing
        return self._readiness.fileno()

    def find_gone(self, surely: bool) -> None:
        assert self._readiness is not None
        inbox = self._inbox.FD
        if surely or any(descriptor != inbox for descriptor, _ in self._readiness.poll(0)):
            self._await_event(0)

    def close(self) -> None:
        self._keys.close()
        self._context.destroy(0)
        if self._readiness is not None:
            self._readiness.close()

    def _bind(self, host: str, ports: range) -> str:
        where = f"tcp://{numeric(host)}"
        for port in ports or (0,):
            with contextlib.suppress(zmq.ZMQError):
                self._inbox.bind(f"{where}:{port}")
                return self._inbox.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        which = f"{ports[0]}-{ports[-1]}" if ports else "all ports"
        raise Unavailable(f"link_ports: none of {which} is free on {host}")

    def _await_event(self, most_ms: int) -> None:
        """Waits until a message comes, a peer is gone, or the time is over."""
        ready = dict(self._poller.poll(most_ms))
        for peer, monitor in self._monitors.items():
            if monitor in ready:
                with contextlib.suppress(zmq.Again):
                    while monitor.recv_multipart(zmq.NOBLOCK):
                        pass
                self.gone.append(peer)

    def _close_outlet(self, peer: Address, outlet: _CurveOutlet | None) -> None:
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


class _CurveOutlet:
    """A link to one peer, and the bytes that wait on it."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self.socket = socket
        self._sent: deque[tuple[zmq.MessageTracker, int]] = deque()  # in order, with their bytes
        self._untracked = 0  # bytes sent since the last tracked ones
        self._waiting = WaitingBytes()

    def send(self, parts: Sequence[bytes]) -> bool:
        """Sends the parts as one message; returns False if too much waits, so it was dropped."""
        while self._sent and self._sent[0][0].done:
            self._waiting.remove(self._sent.popleft()[1])
        size = sum(map(len, parts))
        if not self._waiting.admit(size):
            return False
        self._untracked += size
        *rest, last = parts
        self.socket.send_multipart(rest, zmq.SNDMORE)
        if self._untracked < _TRACKED_BYTES:
            self.socket.send(last)
        else:
            tracker = self.socket.send(last, copy=False, track=True)
            self._sent.append((tracker, self._untracked))
            self._untracked = 0
        return True
