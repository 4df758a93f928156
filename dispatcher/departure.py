"""The end of a dispatcher that leaves the service (docs/decisions/0038).

From the LSN of the change on it takes nothing in from clients, and ends their streams, so that they
go elsewhere. What was taken in before is completed. When nothing of it is under way, it gives its
valid objects up, notes that in its log, and reports it once that is durable, and once the archive,
if there is one, has all of the log: whoever is killed afterwards has no successor that writes it.
"""

from __future__ import annotations

from collections.abc import Callable

from ps2stream.dispatcher.instructions import Instruction, SyncLog
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.dispatcher.ports import PublishingRouter
from ps2stream.errors import Unavailable
from ps2stream.protocol.addresses import SEQUENCER, Send
from ps2stream.protocol.messages.publications import DispatcherEmptied
from ps2stream.protocol.ticks import REPEAT_TICKS

ARCHIVE_TICKS = 200
"""Ticks for which the report waits for an archive."""


class DispatcherDeparture:
    """The departure of one dispatcher, if it leaves. is_idle: returns whether nothing of it is
    under way; end_streams ends all of its streams with an error. Instructions go to `out`."""

    def __init__(
        self,
        router: PublishingRouter,
        log: ObjectLog,
        is_idle: Callable[[], bool],
        end_streams: Callable[[Exception], None],
        out: list[Instruction],
    ) -> None:
        self._router = router
        self._log = log
        self._is_idle = is_idle
        self._end_streams = end_streams
        self._out = out
        self._left_at = 0  # the LSN since which it leaves, or has left; 0: it does not
        self._end: int | None = None  # of the log, from which on nothing is under way
        self._is_durable = self._is_archived = False
        self._waited = 0  # ticks, for the archive
        self._ticks = 0

    def find_problem(self) -> Unavailable | None:
        """Returns the error with which a new call of a client is refused; None if it is not."""
        if self._router.index < self._router.dispatchers:
            return None
        return Unavailable(
            f"dispatcher {self._router.index} has left the service, or is about to; call another "
            "one: ListDispatchers says where they listen"
        )

    def follow(self) -> None:
        """Follows the number of dispatchers that the ledger has."""
        router = self._router
        producers = router.producers
        lsn = producers.lsn if router.index >= producers.dispatchers else 0
        if lsn == self._left_at or not router.is_current:
            return
        self._left_at, self._end, self._waited = lsn, None, 0
        self._is_durable = self._is_archived = False
        if (problem := self.find_problem()) is not None:
            self._end_streams(problem)

    def tick(self) -> None:
        """Counts a tick. Goes on with the departure if there is one."""
        self._ticks += 1
        self.follow()
        router = self._router
        if not (self._left_at and router.producers.leaves(router.index)):
            return
        if self._end is None and router.ready and self._is_idle():
            self._out.append(SyncLog())  # also if appending fails: then this incarnation may end
            try:
                self._end = self._log.note_departure(router.oldest)
            except Unavailable:
                return  # a full disk; the next tick tries again
        if self._end is not None and self._is_durable and not self._is_archived:
            self._waited += 1
            self._await_archive(self._end)
        elif self._ticks % REPEAT_TICKS == 0:
            self._report()

    def synced(self, end: int) -> None:
        """Reports the end once it is durable."""
        if self._end is not None and self._end <= end and not self._is_durable:
            self._is_durable = True
            self._await_archive(self._end)

    def _await_archive(self, end: int) -> None:
        """Reports once the archive has everything, cannot be written, or takes too long."""
        if self._log.settle(end) or self._waited >= ARCHIVE_TICKS:
            self._is_archived = True
            self._report()

    def _report(self) -> None:
        router = self._router
        if self._is_archived and router.producers.leaves(router.index):
            left_out = self._log.validity.left_out
            frame = DispatcherEmptied(router.index, router.producers.lsn, left_out)
            self._out.append(Send(SEQUENCER, frame))
