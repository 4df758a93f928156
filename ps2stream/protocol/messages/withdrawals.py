"""The messages between dispatchers about objects that are withdrawn (docs/decisions/0032)."""

from __future__ import annotations

import dataclasses

from ps2stream.protocol.frame import I64, U8, Frame


@dataclasses.dataclass(frozen=True, eq=False)
class WithdrawForward(Frame):
    """dispatcher -> every other dispatcher: withdraws the objects with these ids for a client of
    the sender. It is sent until it is answered: `number`, of the sender's incarnation `epoch`,
    names it in the answer. Those below `oldest` are not sent again."""

    KIND = 92
    dispatcher: int
    epoch: int
    number: int
    oldest: int
    id_off: I64
    id: U8


@dataclasses.dataclass(frozen=True, eq=False)
class WithdrawReply(Frame):
    """dispatcher -> dispatcher: the withdrawal is durable in the log of the dispatcher with number
    `dispatcher`."""

    KIND = 93
    dispatcher: int
    epoch: int
    number: int
