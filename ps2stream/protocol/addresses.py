"""The addresses of machines, and what machines return: messages to send and replies to give.

An address is (role, index). Every message is a `Frame`, so that the same value can be passed on
within a process or as bytes.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from ps2stream.protocol.frame import U8, Frame

Role = Literal["dispatcher", "worker", "merger", "sequencer", "controller"]


ROLES: tuple[Role, ...] = ("dispatcher", "worker", "merger", "sequencer", "controller")


def nothing() -> U8:
    """Returns an empty column."""
    return np.zeros(0, np.uint8)


class Address(NamedTuple):
    """The address of a machine: its role, and its number among those of the role."""

    role: Role
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs


SEQUENCER = Address("sequencer", 0)
CONTROLLER = Address("controller", 0)
"""The addresses of the machines of which there is one."""


class Send(NamedTuple):
    """A message that a machine sends, and to whom."""

    to: Address
    frame: Frame


class Reply(NamedTuple):
    """A reply of a router machine to the dispatcher's machine around it: an UpdateDecision that has
    become visible, a SessionGrant, a LookupReply or a Delivery. `frame.seq` or `frame.session`
    says which call it is for."""

    frame: Frame


Out = Send | Reply
