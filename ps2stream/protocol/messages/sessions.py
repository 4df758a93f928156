"""The messages between a session's merger and the dispatcher that holds its Deliver stream.

Any of them may be lost: an Attach is repeated until Attached, a Credit carries totals and is
repeated, Deliveries are numbered, and after a gap the stream is attached anew; Arrived carries
totals.
"""

from __future__ import annotations

import dataclasses

from ps2stream.protocol.frame import U8, Frame


@dataclasses.dataclass(frozen=True, eq=False)
class StreamAttach(Frame):
    """dispatcher -> merger: `dispatcher` holds a Deliver stream for `session`, as stream `epoch`
    (the higher wins and the older stream ends; of the same epoch one counts). fields: bit 0
    text, 1 position, 2 time. credit_batches and credit_bytes may be sent before more are
    granted. `ack`: the client has dealt with the pairs to this number, 0 where it says nothing
    of it. `since`: the LSN of the table by which the dispatcher found this merger."""

    KIND = 41
    session: int
    epoch: int
    dispatcher: int
    fields: int
    credit_batches: int
    credit_bytes: int
    ack: int
    since: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class StreamAttached(Frame):
    """merger -> dispatcher: stream `epoch` is the session's, and was sent `sent` deliveries; the
    answer to an Attach, and to a Credit without news. `last`: the number of the last pair so
    far, `acked` of the last that is acknowledged; refused = 1: `ack` of the Attach is above
    `last`, a cursor of another session or data directory, and there is no stream."""

    KIND = 45
    session: int
    epoch: int
    sent: int
    last: int
    acked: int
    refused: int


@dataclasses.dataclass(frozen=True, eq=False)
class StreamCredit(Frame):
    """dispatcher -> merger: since the Attach the client accepted this many batches and bytes in
    all; `ack` is the highest session_seq that it acknowledged; `since` as in StreamAttach."""

    KIND = 42
    session: int
    epoch: int
    dispatcher: int
    batches: int
    bytes: int
    ack: int
    since: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class StreamDetach(Frame):
    """dispatcher -> merger: the stream `epoch` is gone; matches go to the backlog."""

    KIND = 43
    session: int
    epoch: int


@dataclasses.dataclass(frozen=True, eq=False)
class StreamDelivery(Frame):
    """merger -> dispatcher: bytes for the stream, an encoded DeliverResponse, the `number`-th of
    this stream, from 1. closed = 1: another stream took the session over; end the stream."""

    KIND = 44
    session: int
    epoch: int
    number: int
    closed: int
    data: U8


@dataclasses.dataclass(frozen=True, eq=False)
class DeliveryArrivals(Frame):
    """dispatcher -> merger: the total `bytes` of deliveries that have arrived since both began.
    What is lost on the way counts as under way for a second."""

    KIND = 48
    dispatcher: int
    bytes: int


@dataclasses.dataclass(frozen=True, eq=False)
class SessionRequest(Frame):
    """dispatcher -> sequencer: requests the number of the session of this name. `make` = 1: a
    new name gets one."""

    KIND = 15
    dispatcher: int
    seq: int
    make: int
    name: U8


@dataclasses.dataclass(frozen=True, eq=False)
class SessionGrant(Frame):
    """sequencer -> dispatcher: the answer to SessionRequest; 0: there is no such session, or it
    could not be made; negative: minus the quota that forbids it. `stream`: an epoch for a
    Deliver stream, above all before."""

    KIND = 16
    seq: int
    session: int
    stream: int
