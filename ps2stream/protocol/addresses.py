"""Who machines are, and what they return: messages to send and answers to give.

Addresses are (role, index). `Send` is what a machine returns. Every message is a
`Frame`, so the same value can be handed over in one process or as bytes.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from ps2stream.protocol.frame import U8, Frame

Role = Literal["dispatcher", "worker", "merger", "sequencer", "controller"]


ROLES: tuple[Role, ...] = ("dispatcher", "worker", "merger", "sequencer", "controller")


def nothing() -> U8:
    """An empty column."""
    return np.zeros(0, np.uint8)


class Address(NamedTuple):
    role: Role
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs


class Send(NamedTuple):
    to: Address
    frame: Frame


class Reply(NamedTuple):
    """A dispatcher machine's answer to its edge (the gRPC service): an UpdateDecision
    that has become visible, a SessionGrant, a LookupReply, a Delivery. `frame.seq` or
    `frame.session` says whom it answers."""

    frame: Frame


Out = Send | Reply
