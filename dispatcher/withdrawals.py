"""Withdrawals of objects: every dispatcher notes the ids in its log, then the client is answered
(docs/decisions/0032).

A withdrawal concerns the objects that a dispatcher accepted before it, which is what comes before
its record in the log. So an object that is published again under the same id later is there, and
whoever reads the log, after a crash or for the archive, finds the same.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import Any, NamedTuple

from ps2stream.dispatcher.events import LogFailed, WithdrawRequested
from ps2stream.dispatcher.instructions import AnswerCall, Instruction, RefuseCall, SyncLog
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.dispatcher.ports import PublishingRouter
from ps2stream.dispatcher.retro import RetroMatching
from ps2stream.dispatcher.watchers import StreamWatchers
from ps2stream.errors import Ps2StreamError, ResourceExhausted, Unavailable
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import I64, U8, column_to_bytes
from ps2stream.protocol.id_sets import IdSet
from ps2stream.protocol.messages.withdrawals import WithdrawForward, WithdrawReply

OPEN_CALLS = 64
"""The calls that one dispatcher has under way."""
REPEAT_TICKS = 20
"""Ticks after which a message that is not answered is sent again."""
PATIENCE_TICKS = 200
"""Ticks after which a call is given up, since some dispatcher does not answer."""


@dataclasses.dataclass(slots=True)
class _OpenWithdrawal:
    """A client's call: which dispatchers have not noted it yet; begun at a tick. In this log it is
    noted up to `end`."""

    call: Any
    id_off: I64
    id: U8
    missing: set[int]
    since: int
    end: int = 0


class _NotedWithdrawal(NamedTuple):
    """A withdrawal in this log up to `end`, perhaps not yet synced: of a call of dispatcher
    `dispatcher`."""

    end: int
    dispatcher: int
    epoch: int
    number: int


class ObjectWithdrawals:
    """The withdrawals of one dispatcher; instructions go to `out`."""

    def __init__(
        self,
        router: PublishingRouter,
        log: ObjectLog,
        retro: RetroMatching | None,
        watchers: StreamWatchers,
        out: list[Instruction],
    ) -> None:
        self._router = router
        self._log = log
        self._retro = retro
        self._watchers = watchers
        self._out = out
        self._open: dict[int, _OpenWithdrawal] = {}
        self._unsynced: deque[_NotedWithdrawal] = deque()
        self._durable: deque[_NotedWithdrawal] = deque()  # not answered yet
        self._noted: dict[int, dict[tuple[int, int], int]] = {}  # see _find_noted
        self._number = 0
        self._ticks = 0

    def add(self, event: WithdrawRequested) -> None:
        """Takes a client's withdrawal in, and forwards it to the other dispatchers."""
        router = self._router
        if (problem := self._find_problem()) is not None:
            self._out.append(RefuseCall(event.call, problem))
            return
        self._number += 1
        missing = set(range(router.counted))
        opened = _OpenWithdrawal(event.call, event.id_off, event.id, missing, self._ticks)
        self._open[self._number] = opened
        try:
            self._note_own(self._number, opened)
        except Unavailable as error:
            del self._open[self._number]
            self._out.append(RefuseCall(event.call, error))
        else:
            self._send(self._number, opened)

    def receive(self, forward: WithdrawForward) -> None:
        """Notes a withdrawal of another dispatcher's client. A repeat is not noted again: the
        client may have been answered, and have published an object under the id since."""
        noted, key = self._find_noted(forward), (forward.epoch, forward.number)
        if key in noted:
            self._unsynced.append(_NotedWithdrawal(noted[key], forward.dispatcher, *key))
            self._out.append(SyncLog())
            return
        try:
            noted[key] = self._note(forward.dispatcher, *key, forward.id_off, forward.id)
        except Unavailable:
            return  # a full disk; it comes again

    def settle(self, reply: WithdrawReply) -> None:
        """Notes that a dispatcher has a withdrawal, and answers the client if all have."""
        if reply.epoch == self._router.epoch:
            self._settle(reply.number, reply.dispatcher)

    def synced(self, end: int) -> None:
        """Answers what has become durable here."""
        while self._unsynced and self._unsynced[0].end <= end:
            self._durable.append(self._unsynced.popleft())
        self._answer_durable()

    def failed(self, event: LogFailed) -> None:
        """Refuses what will not become durable."""
        self._unsynced.clear()
        self._durable.clear()
        for opened in self._open.values():
            self._out.append(RefuseCall(opened.call, event.error))
        self._open.clear()

    def tick(self) -> None:
        """Sends again what is not answered, and gives up what has waited too long."""
        self._ticks += 1
        self._leave_out_departed()
        self._answer_durable()
        for number, opened in list(self._open.items()):
            waited = self._ticks - opened.since
            if waited >= PATIENCE_TICKS:
                del self._open[number]
                who = ", ".join(map(str, sorted(opened.missing)))
                problem = f"withdraw: dispatcher {who} did not answer; try again"
                self._out.append(RefuseCall(opened.call, Unavailable(problem)))
            elif waited % REPEAT_TICKS == 0:
                self._send(number, opened)

    def _find_noted(self, forward: WithdrawForward) -> dict[tuple[int, int], int]:
        """Returns what of a dispatcher is noted and may come again: the end of its record by epoch
        and number."""
        first, known = (forward.epoch, forward.oldest), self._noted.get(forward.dispatcher, {})
        found = {key: end for key, end in known.items() if key >= first}
        self._noted[forward.dispatcher] = found
        return found

    def _find_problem(self) -> Ps2StreamError | None:
        """Returns the error with which a new call is refused; None if it is not."""
        if len(self._open) >= OPEN_CALLS:
            return ResourceExhausted(f"withdraw: {OPEN_CALLS} calls are under way (limit)")
        if not self._router.ready:  # so it may not know how many dispatchers there are
            return Unavailable("withdraw: the dispatcher is catching up with the ledger")
        return None

    def _note_own(self, number: int, opened: _OpenWithdrawal) -> None:
        """Logs a client's withdrawal, also of what dispatchers have accepted that are not there.
        Raises Unavailable."""
        router = self._router
        place = router.index, router.epoch, number
        ids = opened.id_off, opened.id
        opened.end = self._note(*place, *ids, router.counted, router.applied)

    def _note(
        self, dispatcher: int, epoch: int, number: int, id_off: I64, id: U8, counted: int = 0,
        lsn: int = 0,
    ) -> int:  # fmt: skip
        """Logs a withdrawal, and drops the valid objects that it concerns. Returns the end of the
        log from which on it is durable. counted, lsn: see WithdrawalRecord. Raises Unavailable."""
        self._out.append(SyncLog())  # also if appending fails: then this incarnation may end
        ids = IdSet(column_to_bytes(id_off, id))
        end = self._log.append_withdrawal(ids, counted, lsn)
        if self._retro is not None:
            self._retro.withdraw(ids)
        self._watchers.withdrawn(id_off, id)
        self._unsynced.append(_NotedWithdrawal(end, dispatcher, epoch, number))
        return end

    def _send(self, number: int, opened: _OpenWithdrawal) -> None:
        router, ids = self._router, (opened.id_off, opened.id)
        oldest = min(self._open, default=number)
        for index in sorted(opened.missing - {router.index}):
            forward = WithdrawForward(router.index, router.epoch, number, oldest, *ids)
            self._out.append(Send(Address("dispatcher", index), forward))

    @property
    def is_idle(self) -> bool:
        """Returns whether nobody waits for a withdrawal."""
        return not (self._open or self._unsynced)

    def _answer_durable(self) -> None:
        """Answers what is durable. One that leaves does so once its archive has it, too: it may be
        killed then, and has no successor. Whom it does not answer does without it."""
        router = self._router
        has_left = router.index >= router.dispatchers
        while self._durable and (not has_left or self._log.settle(self._durable[0].end)):
            noted = self._durable.popleft()
            if noted.dispatcher != router.index:
                reply = WithdrawReply(router.index, noted.epoch, noted.number)
                self._out.append(Send(Address("dispatcher", noted.dispatcher), reply))
            elif (opened := self._open.get(noted.number)) and opened.end <= noted.end:
                self._settle(noted.number, router.index)

    def _leave_out_departed(self) -> None:
        """Waits no more for dispatchers that have left, and with them their valid objects. What
        else they had, and may not have noted, is withdrawn by another record here."""
        router = self._router
        if not router.is_current:
            return
        for number, opened in list(self._open.items()):
            departed = {each for each in opened.missing if each >= router.counted}
            if departed:
                try:
                    self._note_own(number, opened)
                except Unavailable:
                    continue  # a full disk; the next tick tries again
                opened.missing -= departed
                opened.missing.add(router.index)

    def _settle(self, number: int, dispatcher: int) -> None:
        opened = self._open.get(number)
        if opened is None:
            return
        opened.missing.discard(dispatcher)
        if not opened.missing:
            del self._open[number]
            self._out.append(AnswerCall(opened.call, None))
