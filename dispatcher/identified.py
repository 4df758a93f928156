"""Publications with a producer and a seq: a repeat gets the first answer (docs/decisions/0015).

One dispatcher remembers a producer. The others forward its publications to that one.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from ps2stream.dispatcher.events import PublishRequested
from ps2stream.dispatcher.gateway import AcceptedBatch, PublicationIdentity, UnknownPublication
from ps2stream.dispatcher.instructions import AnswerCall, Instruction, RefuseCall
from ps2stream.dispatcher.intake import PublicationIntake, WaitingPublication
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.dispatcher.ports import PublishingRouter
from ps2stream.dispatcher.producers import check_digest, find_owner
from ps2stream.dispatcher.window_moves import WindowMoves
from ps2stream.errors import (
    AlreadyExists,
    FailedPrecondition,
    Ps2StreamError,
    ResourceExhausted,
    Unavailable,
)
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.messages.publications import PublishForward, PublishReply, PublishStatus
from ps2stream.protocol.rows import ObjectRows

FORWARD_TICKS = 60
"""Ticks after which a forwarded publication is given up, since a message was lost: more than a
publication waits for room."""
STATUSES: dict[type[Ps2StreamError], PublishStatus] = {
    ResourceExhausted: PublishStatus.FULL,
    Unavailable: PublishStatus.UNAVAILABLE,
    AlreadyExists: PublishStatus.OTHER_CONTENT,
    UnknownPublication: PublishStatus.UNKNOWN,  # before its base class
    FailedPrecondition: PublishStatus.TOO_OLD,
}
Key = tuple[str, int]


class RemoteCaller(NamedTuple):
    """A publication that another dispatcher forwarded, by its number of that dispatcher's
    incarnation."""

    dispatcher: int
    epoch: int
    number: int


class ForwardedPublication(NamedTuple):
    """A publication for which another dispatcher is asked, until the tick `until`."""

    call: Any
    owner: int
    until: int


class OpenPublication:
    """A publication that is not yet answered. `callers` are the first and its repeats."""

    def __init__(self, identity: PublicationIdentity, caller: Any) -> None:
        self.identity = identity
        self.callers = [caller]


class IdentifiedPublications:
    """The publications with an identity of one dispatcher, until they are answered; instructions go
    to `out`."""

    def __init__(
        self,
        router: PublishingRouter,
        log: ObjectLog,
        intake: PublicationIntake,
        out: list[Instruction],
    ) -> None:
        self._router = router
        self._windows = log.windows
        self.moves = WindowMoves(router, log, lambda: self.open_producers, out)
        self._intake = intake
        self._out = out
        self._open: dict[Key, OpenPublication] = {}
        self._forwarded: dict[int, ForwardedPublication] = {}  # by number
        self._failure: Exception | None = None
        self._number = 0
        self._ticks = 0

    def __len__(self) -> int:
        return len(self._open) + len(self._forwarded)

    @property
    def open_producers(self) -> Collection[str]:
        """The producers of which publications are taken in and not answered."""
        return {producer for producer, _ in self._open}

    def add(self, event: PublishRequested, identity: PublicationIdentity) -> None:
        """Takes a client's publication in, answers it as a repeat, forwards or refuses it."""
        owner = find_owner(identity.producer, self._router.dispatchers)
        if owner == self._router.index:
            self._take_in(event.call, event.rows, identity, event.since, event.wait_s)
            return
        self._number += 1
        until = self._ticks + FORWARD_TICKS
        self._forwarded[self._number] = ForwardedPublication(event.call, owner, until)
        forward = PublishForward(
            self._router.index,
            self._router.epoch,
            self._number,
            round(event.wait_s * 1000),
            np.frombuffer(event.rows.encode(), np.uint8),
            np.array([identity.seq], np.uint64),
            np.frombuffer(identity.producer.encode(), np.uint8),
            np.frombuffer(identity.digest, np.uint8),
            int(identity.repeats),
        )
        self._out.append(Send(Address("dispatcher", owner), forward))

    def receive(self, forward: PublishForward, now: float) -> None:
        """Handles a publication that another dispatcher forwarded."""
        caller = RemoteCaller(forward.dispatcher, forward.epoch, forward.number)
        producer, digest = forward.producer.tobytes().decode(), forward.digest.tobytes()
        identity = PublicationIdentity(producer, int(forward.seq[0]), digest, bool(forward.repeats))
        rows = ObjectRows.decode(forward.rows.data)
        # The other counts versions of literals of its own.
        rows = rows.with_terms(rows.term_off, rows.term, searched=0)
        self._take_in(caller, rows, identity, now, forward.wait_ms / 1000)

    def settle(self, reply: PublishReply) -> None:
        """Answers a publication that was forwarded, unless it was given up."""
        if reply.epoch != self._router.epoch:
            return
        forwarded = self._forwarded.pop(reply.number, None)
        if forwarded is None:
            return
        if reply.status == PublishStatus.OK:
            answer = AcceptedBatch(reply.partition, reply.offset, reply.lsn)
            self._out.append(AnswerCall(forwarded.call, answer))
        else:
            self._out.append(RefuseCall(forwarded.call, _read_error(reply)))

    def answer(self, publication: OpenPublication, answer: AcceptedBatch) -> None:
        """Answers a publication that is durable, and its repeats."""
        for caller in self._close(publication):
            self._answer_one(caller, answer)

    def refuse(self, publication: OpenPublication, error: Exception) -> None:
        """Refuses a publication of which nothing was accepted, and its repeats."""
        for caller in self._close(publication):
            self._refuse_one(caller, error)

    def fail(self, error: Exception) -> None:
        """Refuses all from now on, since the log failed: the windows tell of more than is
        durable."""
        self._failure = error

    def withdraw(self, call: Any, waited_s: float) -> None:
        """Ends the call of a client that has waited too long. What may be accepted all the same
        ends with Unavailable, since the client can repeat it."""
        problem = f"publish: not answered within {waited_s:g} s; repeat it with the same seq"
        for number, forwarded in self._forwarded.items():
            if forwarded.call is call:
                del self._forwarded[number]
                self._out.append(RefuseCall(call, Unavailable(problem)))
                return
        for publication in self._open.values():
            if call not in publication.callers:
                continue
            if len(publication.callers) > 1:
                publication.callers.remove(call)
                self._out.append(RefuseCall(call, Unavailable(problem)))
            elif self._intake.withdraw(publication):
                problem = f"publish: not routed within {waited_s:g} s"
                self.refuse(publication, ResourceExhausted(problem))
            return

    def joined(self, peer: Address) -> None:
        """Gives up what was forwarded to the previous incarnation of a dispatcher."""
        if peer.role == "dispatcher":
            self._give_up([n for n, f in self._forwarded.items() if f.owner == peer.index])

    def tick(self) -> None:
        """Counts a tick, and gives up what was forwarded long ago."""
        self._ticks += 1
        self.moves.tick()
        if self._forwarded:
            self._give_up([n for n, f in self._forwarded.items() if f.until <= self._ticks])

    def _take_in(
        self,
        caller: Any,
        rows: ObjectRows,
        identity: PublicationIdentity,
        now: float,
        wait_s: float,
    ) -> None:
        """Takes a publication in, answers it as a repeat or refuses it."""
        key = identity.producer, identity.seq
        if self._failure is not None:
            self._refuse_one(caller, self._failure)
            return
        if problem := self.moves.describe_refusal(identity.producer):
            self._refuse_one(caller, Unavailable(problem))
            return
        try:
            if (publication := self._open.get(key)) is not None:
                check_digest(identity, publication.identity.digest)
                publication.callers.append(caller)
                return
            if (answer := self._windows.find(identity)) is not None:
                self._answer_one(caller, answer)
                return
            if identity.repeats:
                raise UnknownPublication("publish: no publication of this seq is remembered")
            self._windows.make_room(identity.producer, now)
            publication = OpenPublication(identity, caller)
            waiting = WaitingPublication(publication, rows, True, now, now + wait_s, identity)
            if not self._intake.add(waiting):
                raise self._intake.make_refusal()
        except Ps2StreamError as error:
            self._refuse_one(caller, error)
        else:
            self._open[key] = publication

    def _close(self, publication: OpenPublication) -> list[Any]:
        del self._open[publication.identity.producer, publication.identity.seq]
        return publication.callers

    def _answer_one(self, caller: Any, answer: AcceptedBatch) -> None:
        if isinstance(caller, RemoteCaller):
            self._reply(caller, PublishStatus.OK, answer)
        else:
            self._out.append(AnswerCall(caller, answer))

    def _refuse_one(self, caller: Any, error: Exception) -> None:
        if isinstance(caller, RemoteCaller):
            status = next(
                (status for kind, status in STATUSES.items() if isinstance(error, kind)),
                PublishStatus.UNAVAILABLE,
            )
            retry_after_ms = getattr(error, "retry_after_ms", 0)
            self._reply(caller, status, AcceptedBatch(0, 0, 0), retry_after_ms, str(error))
        else:
            self._out.append(RefuseCall(caller, error))

    def _reply(
        self,
        caller: RemoteCaller,
        status: PublishStatus,
        answer: AcceptedBatch,
        retry_after_ms: int = 0,
        problem: str = "",
    ) -> None:
        text = np.frombuffer(problem.encode(), np.uint8)
        reply = PublishReply(caller.epoch, caller.number, status, *answer, retry_after_ms, text)
        self._out.append(Send(Address("dispatcher", caller.dispatcher), reply))

    def _give_up(self, numbers: list[int]) -> None:
        for number in numbers:
            forwarded = self._forwarded.pop(number)
            problem = f"publish: dispatcher {forwarded.owner} has not answered; repeat it"
            self._out.append(RefuseCall(forwarded.call, Unavailable(problem)))


def _read_error(reply: PublishReply) -> Ps2StreamError:
    """Returns the error of a reply."""
    problem = reply.problem.tobytes().decode()
    if reply.status == PublishStatus.FULL:
        return ResourceExhausted(problem, reply.retry_after_ms)
    kinds = {status: kind for kind, status in STATUSES.items()}
    return kinds[PublishStatus(reply.status)](problem)
