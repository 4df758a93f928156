"""Encryption and authentication of the links between hosts.

ZeroMQ's CURVE encrypts every link, and both ends prove their keys. An actor makes its pair of
keys itself; the secret key never leaves its process, and the public one travels over Ray's calls,
which need a token. An inbox admits the keys of its present peers only: ZeroMQ asks for that by
ZAP (rfc.zeromq.org/spec/27) at each handshake, and a thread of its own answers.
"""

from __future__ import annotations

import threading
from typing import Any

import zmq
from zmq.utils import z85

from ps2stream.protocol.addresses import Address

HANDSHAKE_MS = 3000
"""A peer that was refused, or gets no answer, tries again after that."""
HEARTBEAT_MS, SILENT_MS = 1000, 5000
_POLL_MS = 200
_DOMAIN = b"ps2stream"
# 400 would end the link of a peer that connects before it is admitted.
_WELCOME, _LATER = b"200", b"300"


class CurveKeys:
    """The keys of the actor whose sockets are of `context`; its peers need `public`."""

    def __init__(self, context: zmq.Context[Any]) -> None:
        self.public, self._secret = zmq.curve_keypair()
        self._lock = threading.Lock()
        self._peers: dict[Address, bytes] = {}
        self._zap = context.socket(zmq.REP)
        self._zap.linger = 0
        self._zap.bind("inproc://zeromq.zap.01")
        self._closing = threading.Event()
        self.refused = 0
        self._thread = threading.Thread(target=self._answer_requests, daemon=True, name="doors")
        self._thread.start()

    def admit(self, peer: Address, public: bytes) -> None:
        """Admits this key of the peer in place of an earlier one."""
        with self._lock:
            self._peers[peer] = z85.decode(public)

    def dismiss(self, peer: Address) -> None:
        """Admits the peer no longer."""
        with self._lock:
            self._peers.pop(peer, None)

    def guard(self, inbox: zmq.Socket[bytes]) -> None:
        """Makes an inbox demand keys, before it is bound."""
        self._set_timeouts(inbox)
        inbox.curve_server = True
        inbox.curve_secretkey = self._secret
        inbox.zap_domain = _DOMAIN

    def join(self, outlet: zmq.Socket[bytes], public: bytes) -> None:
        """Gives an outlet its keys, before it is connected to the inbox with this one."""
        self._set_timeouts(outlet)
        outlet.curve_serverkey = public
        outlet.curve_publickey = self.public
        outlet.curve_secretkey = self._secret

    def close(self) -> None:
        """Stops answering, before the context ends."""
        self._closing.set()
        self._thread.join()
        self._zap.close(0)

    @staticmethod
    def _set_timeouts(socket: zmq.Socket[bytes]) -> None:
        """Sets timeouts and heartbeats, since a host that dies closes no connection."""
        socket.handshake_ivl = HANDSHAKE_MS
        socket.connect_timeout = HANDSHAKE_MS
        socket.heartbeat_ivl = HEARTBEAT_MS
        socket.heartbeat_timeout = SILENT_MS

    def _answer_requests(self) -> None:
        while not self._closing.is_set():
            if self._zap.poll(_POLL_MS):
                self._answer_request(self._zap.recv_multipart())

    def _answer_request(self, request: list[bytes]) -> None:
        version, number, domain, _, _, mechanism, *keys = request
        with self._lock:
            known = mechanism == b"CURVE" and domain == _DOMAIN and keys[0] in self._peers.values()
        self.refused += not known
        code = _WELCOME if known else _LATER
        self._zap.send_multipart([version, number, code, b"", b"", b""])
