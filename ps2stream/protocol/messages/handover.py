"""The messages by which sessions go from one merger to another (docs/decisions/0036), and those
by which the number of mergers and that of dispatchers are changed.

The merger that gains sessions requests everything, and repeats a request until it is answered, so
any of these messages may be lost. They name the LSN `lsn` of the table of sessions that is
new; a merger ignores those of another one than it follows.
"""

from __future__ import annotations

import dataclasses
from enum import IntEnum

import numpy as np

from ps2stream.protocol.frame import I64, U8, Frame
from ps2stream.protocol.producer_map import ProducerMap
from ps2stream.protocol.session_map import SessionMaps


class HandoverStep(IntEnum):
    """The request of a merger that gains sessions: their numbers, once the other merger numbers no
    pair of theirs any more; their records in its match log; that it drops them."""

    NUMBERS = 0
    RECORDS = 1
    DROP = 2


@dataclasses.dataclass(frozen=True, eq=False)
class HandoverRequest(Frame):
    """gaining merger -> the one that loses the sessions. `step`: a HandoverStep; RECORDS are
    requested from the position `position` of its log on, 0 for the first."""

    KIND = 65
    merger: int
    lsn: int
    step: int
    position: int


@dataclasses.dataclass(frozen=True, eq=False)
class HandoverNumbers(Frame):
    """losing merger -> gaining merger, the answer to NUMBERS: the sessions that it knows of those
    that move, with their next number and up to which number their pairs are acknowledged, and
    acknowledged or lost."""

    KIND = 66
    merger: int
    lsn: int
    session: I64
    next: I64
    acked: I64
    lost: I64


@dataclasses.dataclass(frozen=True, eq=False)
class HandoverRecords(Frame):
    """losing merger -> gaining merger, the answer to RECORDS: encoded records of the match log,
    ragged, with what the sessions that move have in those from `position` up to `end`; last = 1:
    there are no more."""

    KIND = 67
    merger: int
    lsn: int
    position: int
    end: int
    last: int
    record_off: I64
    record: U8


@dataclasses.dataclass(frozen=True, eq=False)
class HandoverDropped(Frame):
    """losing merger -> gaining merger, the answer to DROP: it is durable that the sessions are no
    longer the sender's."""

    KIND = 68
    merger: int
    lsn: int


@dataclasses.dataclass(frozen=True, eq=False)
class SessionsHeld(Frame):
    """merger -> sequencer, now and then until sessions move no more: the merger holds all sessions
    that the table of the LSN `lsn` gives it, and those that they came from have dropped them."""

    KIND = 69
    merger: int
    lsn: int


@dataclasses.dataclass(frozen=True, eq=False)
class MergersRequest(Frame):
    """dispatcher -> sequencer: requests that so many mergers run, or, if it is 0, only how many
    do."""

    KIND = 26
    dispatcher: int
    seq: int
    mergers: int


@dataclasses.dataclass(frozen=True, eq=False)
class MergersReply(Frame):
    """sequencer -> dispatcher: the mergers that have sessions, since the LSN `lsn`; moving = 1: not
    all sessions are yet where they should be. `problem`: why nothing was done (UTF-8), else empty;
    wait = 1: it passes."""

    KIND = 27
    seq: int
    mergers: int
    lsn: int
    moving: int
    wait: int
    problem: U8

    @classmethod
    def make(cls, seq: int, maps: SessionMaps, wait: int, problem: str) -> MergersReply:
        """Returns the reply to request `seq` with these tables."""
        text = np.frombuffer(problem.encode(), np.uint8)
        moving = int(maps.before is not None)
        return cls(seq, maps.now.mergers, maps.now.lsn, moving, wait, text)


@dataclasses.dataclass(frozen=True, eq=False)
class DispatchersRequest(Frame):
    """dispatcher -> sequencer: requests that so many dispatchers run, or, if it is 0, only how many
    do."""

    KIND = 28
    dispatcher: int
    seq: int
    dispatchers: int


@dataclasses.dataclass(frozen=True, eq=False)
class DispatchersReply(Frame):
    """sequencer -> dispatcher: the dispatchers that there are, since the LSN `lsn`; moving = 1: not
    all producers are yet where they should be. `problem` and `wait`: as in MergersReply."""

    KIND = 29
    seq: int
    dispatchers: int
    lsn: int
    moving: int
    wait: int
    problem: U8

    @classmethod
    def make(cls, seq: int, producers: ProducerMap, wait: int, problem: str) -> DispatchersReply:
        """Returns the reply to request `seq` with this number."""
        text = np.frombuffer(problem.encode(), np.uint8)
        moving = int(producers.is_moving)
        return cls(seq, producers.dispatchers, producers.lsn, moving, wait, text)
