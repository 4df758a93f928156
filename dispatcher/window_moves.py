"""The windows of producers that move between dispatchers when some join or leave
(docs/decisions/0037, 0038).

A dispatcher that gains producers requests their windows of those that remembered them, piece by
piece, and takes none of their publications before these are durable in its log. One that loses
producers takes none of their publications from the LSN of the change on, and answers once all that
it took before are over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from ps2stream.dispatcher.instructions import Instruction, SyncLog
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.dispatcher.ports import PublishingRouter
from ps2stream.dispatcher.producers import find_owner
from ps2stream.errors import Unavailable
from ps2stream.protocol.addresses import SEQUENCER, Address, Send
from ps2stream.protocol.frame import U8, column_to_bytes, decode
from ps2stream.protocol.log_records import ProducerRecord
from ps2stream.protocol.messages.publications import WindowsHeld, WindowsReply, WindowsRequest
from ps2stream.protocol.producer_map import ProducerMap
from ps2stream.protocol.ticks import REPEAT_TICKS

PIECE_BYTES = 1 << 20
"""The bytes of a piece of windows, about."""


class WindowMoves:
    """The moves of windows to and from one dispatcher. `list_open` returns the producers of which
    publications are not answered; instructions go to `out`."""

    def __init__(
        self,
        router: PublishingRouter,
        log: ObjectLog,
        list_open: Callable[[], Collection[str]],
        out: list[Instruction],
    ) -> None:
        self._router = router
        self._log = log
        self._list_open = list_open
        self._out = out
        self._map: ProducerMap | None = None  # the one that is followed
        self._has_dropped = True  # whether the windows of other dispatchers' producers are dropped
        self._missing: dict[int, str] = {}  # the last producer that came from each source
        self._unsynced: list[tuple[int, int]] = []  # end of the log, source of which all has come
        self._ticks = 0

    def describe_refusal(self, producer: str) -> str:
        """Returns why a publication of this producer cannot be taken in here now; empty if it
        can."""
        producers = self._router.producers
        if not self._router.ready:
            return "publish: the dispatcher is catching up with the ledger"
        if find_owner(producer, producers.dispatchers) != self._router.index:
            return "publish: another dispatcher remembers the producer now; repeat it"
        if self._missing and find_owner(producer, producers.before) in self._missing:
            return "publish: the producer moves to another dispatcher; repeat it"
        return ""

    def follow(self) -> None:
        """Follows the number of dispatchers that the ledger has."""
        producers, index = self._router.producers, self._router.index
        if producers is not self._map and producers != self._map:
            if not self._forget_earlier(producers):
                return
            self._map = producers
            self._missing = dict.fromkeys(producers.sources_of(index), "")
            self._unsynced.clear()
            self._has_dropped = False
            self._send_requests()
        if not (self._has_dropped or producers.is_moving) and self._router.is_current:
            self._log.windows.keep_owned(index, producers.dispatchers)
            self._has_dropped = True

    def tick(self) -> None:
        """Counts a tick; sends again what may have been lost."""
        self._ticks += 1
        self.follow()
        if self._ticks % REPEAT_TICKS == 0:
            self._send_requests()

    def answer(self, request: WindowsRequest) -> None:
        """Answers a request, unless a publication of one of the producers is open: then, or if the
        ledger has not come here so far, it is repeated."""
        producers, index = self._router.producers, self._router.index
        if request.lsn != producers.lsn or not producers.is_moving:
            return

        def moves(producer: str) -> bool:
            return (
                find_owner(producer, producers.before) == index
                and find_owner(producer, producers.dispatchers) == request.dispatcher
            )

        if any(map(moves, self._list_open())):
            return
        after = request.after.tobytes().decode()
        names = sorted(p for p in self._log.windows.names if p > after and moves(p))
        parts: list[bytes] = []
        size = 0
        for name in names:
            parts.append(self._log.windows.make_record(name).encode())
            size += len(parts[-1])
            if size >= PIECE_BYTES:
                break
        ends = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        records = np.frombuffer(b"".join(parts), np.uint8)
        last = int(len(parts) == len(names))
        reply = WindowsReply(index, producers.lsn, last, request.after, ends, records)
        self._out.append(Send(Address("dispatcher", request.dispatcher), reply))

    def receive(self, reply: WindowsReply, now: float) -> None:
        """Writes a piece of windows to the log; now in monotonic seconds."""
        producers, source = self._router.producers, reply.dispatcher
        after = reply.after.tobytes().decode()
        if reply.lsn != producers.lsn or self._missing.get(source) != after:
            return
        self._out.append(SyncLog())  # also if appending fails: then this incarnation may end
        try:
            for data in column_to_bytes(reply.record_off, reply.record):
                record = decode(data)
                assert isinstance(record, ProducerRecord)
                self._log.append_window(record, now)
                after = record.producer.tobytes().decode()
        except Unavailable:
            return  # a full disk; it is requested again
        if reply.last:
            self._unsynced.append((self._log.log.end, source))
        else:
            self._missing[source] = after
            self._send_request(source)

    def synced(self, end: int) -> None:
        """Takes the producers over whose windows have become durable."""
        arrived = [source for at, source in self._unsynced if at <= end]
        if not arrived:
            return
        self._unsynced = [(at, source) for at, source in self._unsynced if source not in arrived]
        for source in arrived:
            self._missing.pop(source, None)
        if not self._missing:
            self._send_requests()

    def _forget_earlier(self, producers: ProducerMap) -> bool:
        """If this dispatcher joins, and may have been there before, forgets what it remembered
        then; others may have forgotten it since. Returns False if it has to be tried again."""
        log = self._log
        if not producers.joins(self._router.index) or log.joined_at >= producers.lsn:
            return True
        self._out.append(SyncLog())  # also if appending fails: then this incarnation may end
        try:
            log.forget_windows(producers.lsn)
        except Unavailable:
            return False
        return True

    def _send_requests(self) -> None:
        """Requests what is missing, or reports that nothing is."""
        producers = self._router.producers
        if not producers.is_moving:
            return
        coming = {source for _, source in self._unsynced}
        for source in self._missing.keys() - coming:
            self._send_request(source)
        if not self._missing and self._router.index < producers.dispatchers:
            held = WindowsHeld(self._router.index, producers.lsn)
            self._out.append(Send(SEQUENCER, held))

    def _send_request(self, source: int) -> None:
        after = _encode_name(self._missing[source])
        request = WindowsRequest(self._router.index, self._router.producers.lsn, after)
        self._out.append(Send(Address("dispatcher", source), request))


def _encode_name(name: str) -> U8:
    return np.frombuffer(name.encode(), np.uint8)
