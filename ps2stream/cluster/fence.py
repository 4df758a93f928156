"""The head of every message, and the fence that refuses messages by it.

A receiver keeps the highest epoch and number of each sender. It refuses messages of earlier
incarnations, repeated and late ones, so a link is first in, first out, without repeats, but
perhaps with holes (docs/decisions/0006).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ps2stream.protocol.addresses import ROLES, Address
from ps2stream.protocol.frame import FrameError

_HEAD = struct.Struct("<4sHHi4xqqd")  # magic, version, role, index, epoch, number, sent
_MAGIC = b"PS2h"
_VERSION = 3


class MessageHead(NamedTuple):
    """The head of a message: the sender, its epoch, and the number of the message among all that
    it sends, from 1. `sent` is in seconds of the host's monotonic clock; 0: the receiver has
    another."""

    sender: Address
    epoch: int
    number: int
    sent: float = 0.0

    def encode(self) -> bytes:
        role = ROLES.index(self.sender.role)
        return _HEAD.pack(
            _MAGIC, _VERSION, role, self.sender.index, self.epoch, self.number, self.sent
        )

    @classmethod
    def decode(cls, data: bytes | memoryview) -> MessageHead:
        """Decodes a head. Raises FrameError."""
        if len(data) != _HEAD.size:
            raise FrameError(f"the head of a message has {_HEAD.size} bytes, not {len(data)}")
        magic, version, role, index, epoch, number, sent = _HEAD.unpack(data)
        if magic != _MAGIC or version != _VERSION or role >= len(ROLES):
            raise FrameError("not the head of a message")
        return cls(Address(ROLES[role], index), epoch, number, sent)


class MessageFence:
    """The highest epoch and number of each sender. `refused` counts messages not accepted."""

    def __init__(self) -> None:
        self._last: dict[Address, tuple[int, int]] = {}
        self.refused = 0

    def raise_to(self, sender: Address, epoch: int) -> None:
        """Refuses messages of incarnations of `sender` before this one."""
        self._last[sender] = max(self._last.get(sender, (0, 0)), (epoch, 0))

    def accept(self, head: MessageHead) -> bool:
        """Returns whether the message counts, and notes it if so."""
        now = (head.epoch, head.number)
        if now <= self._last.get(head.sender, (0, 0)):
            self.refused += 1
            return False
        self._last[head.sender] = now
        return True
