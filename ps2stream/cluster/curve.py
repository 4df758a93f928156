"""Who may send to an actor from another host, and that nobody reads or alters it on the way.

ZeroMQ's CURVE encrypts every link, and both ends prove their keys. An actor makes its pair
itself; the secret key never leaves its process, and the public one travels over Ray's calls,
which ask for a token. An inbox lets in the keys of those who are its peers now: this is asked
of ZAP (rfc.zeromq.org/spec/27) at each handshake, on a thread of its own.
"""

from __future__ import annotations

import threading
from typing import Any

import zmq
from zmq.utils import z85

from ps2stream.protocol.addresses import Address

HANDSHAKE_MS = 3000
"""Who was turned away, or is not answered, tries again after that."""
HEARTBEAT_MS, SILENT_MS = 1000, 5000
_POLL_MS = 200
_DOMAIN = b"ps2stream"
_WELCOME, _LATER = b"200", b"300"  # 400 would end the link of who comes before it is known


class Curve:
    """The keys of the actor whose sockets are of `context`; `public` is told to its peers."""

    def __init__(self, context: zmq.Context[Any]) -> None:
        self.public, self._secret = zmq.curve_keypair()
        self._lock = threading.Lock()
        self._peers: dict[Address, bytes] = {}
        self._doors = context.socket(zmq.REP)
        self._doors.linger = 0
        self._doors.bind("inproc://zeromq.zap.01")
        self._closing = threading.Event()
        self.refused = 0
        self._thread = threading.Thread(target=self._run, daemon=True, name="doors")
        self._thread.start()

    def admit(self, peer: Address, public: bytes) -> None:
        """Let this key in as the peer's, and no earlier one of the peer's."""
        with self._lock:
            self._peers[peer] = z85.decode(public)

    def dismiss(self, peer: Address) -> None:
        """Let it in no more."""
        with self._lock:
            self._peers.pop(peer, None)

    def guard(self, inbox: zmq.Socket[bytes]) -> None:
        """Before it is bound."""
        self._careful(inbox)
        inbox.curve_server = True
        inbox.curve_secretkey = self._secret
        inbox.zap_domain = _DOMAIN

    def join(self, outlet: zmq.Socket[bytes], public: bytes) -> None:
        """Before it is connected, to an inbox of this key."""
        self._careful(outlet)
        outlet.curve_serverkey = public
        outlet.curve_publickey = self.public
        outlet.curve_secretkey = self._secret

    def close(self) -> None:
        """Before the context ends."""
        self._closing.set()
        self._thread.join()
        self._doors.close(0)

    @staticmethod
    def _careful(socket: zmq.Socket[bytes]) -> None:
        """A host that dies says nothing."""
        socket.handshake_ivl = HANDSHAKE_MS
        socket.connect_timeout = HANDSHAKE_MS
        socket.heartbeat_ivl = HEARTBEAT_MS
        socket.heartbeat_timeout = SILENT_MS

    def _run(self) -> None:
        while not self._closing.is_set():
            if self._doors.poll(_POLL_MS):
                self._answer(self._doors.recv_multipart())

    def _answer(self, asked: list[bytes]) -> None:
        version, number, domain, _, _, mechanism, *keys = asked
        with self._lock:
            known = mechanism == b"CURVE" and domain == _DOMAIN and keys[0] in self._peers.values()
        self.refused += not known
        code = _WELCOME if known else _LATER
        self._doors.send_multipart([version, number, code, b"", b"", b""])
