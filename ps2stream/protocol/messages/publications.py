"""The messages between dispatchers about publications that have a producer and a seq."""

from __future__ import annotations

import dataclasses
from enum import IntEnum

from ps2stream.protocol.frame import I64, U8, U64, Frame


class PublishStatus(IntEnum):
    """The outcome of a forwarded publication; all but OK: nothing of it was accepted."""

    OK = 0
    FULL = 1
    UNAVAILABLE = 2
    OTHER_CONTENT = 3
    TOO_OLD = 4
    UNKNOWN = 5


@dataclasses.dataclass(frozen=True, eq=False)
class PublishForward(Frame):
    """dispatcher -> the dispatcher that remembers the producer: publishes a batch for a client of
    the sender. It is sent once: `number`, of the sender's incarnation `epoch`, names it in the
    answer. rows: encoded ObjectRows; it may wait for room for `wait_ms`; seq, one integer,
    producer, digest and repeats, 1 if it can only be a repeat: of PublicationIdentity."""

    KIND = 86
    ADDED = 1
    dispatcher: int
    epoch: int
    number: int
    wait_ms: int
    rows: U8
    seq: U64
    producer: U8
    digest: U8
    repeats: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class PublishReply(Frame):
    """dispatcher -> dispatcher: answers PublishForward. status: a PublishStatus; the rest of the
    answer is that of AcceptedBatch, or `problem` and perhaps `retry_after_ms` of the error."""

    KIND = 87
    epoch: int
    number: int
    status: int
    partition: int
    offset: int
    lsn: int
    retry_after_ms: int
    problem: U8


@dataclasses.dataclass(frozen=True, eq=False)
class WindowsRequest(Frame):
    """dispatcher -> the one that remembered some of its producers before the number of dispatchers
    changed at the LSN `lsn`: requests their windows, of those that come after `after`, the name of
    a producer. Repeated until it is answered, once none of their publications is open."""

    KIND = 95
    dispatcher: int
    lsn: int
    after: U8


@dataclasses.dataclass(frozen=True, eq=False)
class WindowsReply(Frame):
    """dispatcher -> dispatcher: answers WindowsRequest with encoded ProducerRecords, ragged, by the
    names of their producers; last = 1: there are no more."""

    KIND = 96
    dispatcher: int
    lsn: int
    last: int
    after: U8
    record_off: I64
    record: U8


@dataclasses.dataclass(frozen=True, eq=False)
class WindowsHeld(Frame):
    """dispatcher -> sequencer, now and then until producers move no more: the windows of all
    producers that this dispatcher remembers since the LSN `lsn` are durable in its log."""

    KIND = 97
    dispatcher: int
    lsn: int


@dataclasses.dataclass(frozen=True, eq=False)
class DispatcherEmptied(Frame):
    """dispatcher -> sequencer, now and then until it has left: nothing of this dispatcher, which
    leaves since the LSN `lsn`, is under way, and its log says so durably. left_out: the latest
    end, Unix ms, of the valid objects that it gave up; 0 for none."""

    KIND = 98
    dispatcher: int
    lsn: int
    left_out: int
