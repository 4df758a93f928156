"""What links need of sockets, on one host and between hosts."""

from __future__ import annotations

import abc
from collections import deque
from collections.abc import Sequence

from ps2stream.cluster.actor_home import ActorHome
from ps2stream.protocol.addresses import Address

LINK_BYTES = 128 << 20
"""Bytes that may wait in a sender for one peer."""

MessageParts = Sequence[bytes | memoryview]
"""A message as it was received: its head and frames, or its frames alone."""


class LinkSockets(abc.ABC):
    """The sockets of one actor: an inbox, and an outlet to every peer. An outlet keeps the order
    of what is sent and never waits. `gone` lists peers whose end of a link was closed, in that
    order. Everything but `send` is for the thread that receives; `send` is called by one thread at
    a time, which holds the lock that the sockets were made with."""

    gone: deque[Address]

    @abc.abstractmethod
    def connect(self, peer: Address, endpoint: str, home: ActorHome | None) -> None:
        """Opens an outlet to `peer` in place of an earlier one. Its incarnation may have died."""

    @abc.abstractmethod
    def disconnect(self, peer: Address) -> None:
        """Closes the outlet to `peer`, if there is one."""

    @abc.abstractmethod
    def send(self, peer: Address, parts: Sequence[bytes]) -> bool:
        """Sends a head and frames as one message, if the peer is connected; returns False if too
        much waits for it, so that the message was dropped."""

    @abc.abstractmethod
    def receive(self, wait_ms: int) -> MessageParts | None:
        """Returns the next message; None when none comes within `wait_ms`, or a peer is gone."""

    @abc.abstractmethod
    def fileno(self) -> int:
        """Returns a descriptor that can be read when a message comes or a peer is gone."""

    @abc.abstractmethod
    def find_gone(self, surely: bool) -> None:
        """Notes the peers that are gone by now; unless `surely`, only if the descriptor shows that
        there are any."""

    @abc.abstractmethod
    def close(self) -> None:
        """Closes all sockets, and drops what was not sent. May be repeated."""


class WaitingBytes:
    """The number of bytes that wait in a sender for one peer."""

    def __init__(self) -> None:
        self._waiting = 0

    def admit(self, size: int) -> bool:
        """Adds a message unless there would be too much; alone it may have any size."""
        if self._waiting and self._waiting + size > LINK_BYTES:
            return False
        self._waiting += size
        return True

    def remove(self, size: int) -> None:
        """Takes out bytes that have left."""
        self._waiting -= size
