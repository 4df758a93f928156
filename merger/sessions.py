"""Sessions: numbering, streams with credits, acknowledgements, and losses that are announced.

A session numbers its pairs (session_seq, from 1, without gaps). All that is not
acknowledged stands in the match log, and the backlog says where; a stream has been sent it
up to `taken`, a new stream starts behind what is acknowledged. Beyond the quota the oldest
pairs are lost: a Gap stands for them, once it is in the log.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

import numpy as np

from ps2stream.merger import fanout
from ps2stream.merger.backlog import Backlog
from ps2stream.merger.journal import Journal
from ps2stream.merger.kernels import add_new
from ps2stream.merger.records import Matched, Missing
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import I64, sealed
from ps2stream.protocol.messages.sessions import Attach, Attached, Credit, Delivery, Detach
from ps2stream.protocol.wire import Deliver, StringColumn, deliver_batch

MAX_KNOWN = 1 << 22  # handles; a stream that knows more is told all anew


class Known:
    """The handles whose names a stream has been sent."""

    def __init__(self) -> None:
        self._table = np.zeros(64, np.int64)
        self._used = 0

    @property
    def held_bytes(self) -> int:
        return self._table.nbytes

    def learn(self, handles: I64) -> I64:
        """Those that were not known, each once; now they are."""
        if self._used > MAX_KNOWN:
            self.__init__()  # type: ignore[misc]
        new = np.empty(len(handles), np.int64)
        found = at = 0
        while True:
            at, self._used, more = add_new(
                self._table, self._used, sealed(handles), at, new[found:]
            )
            found += more
            if at == len(handles):
                return new[:found]
            old = self._table[self._table != 0]
            self._table = np.zeros(4 * len(self._table), np.int64)
            _, self._used, _ = add_new(self._table, 0, sealed(old), 0, np.empty_like(old))


@dataclasses.dataclass(slots=True, eq=False)
class Stream:
    """An open Deliver stream: what it was sent, and how far it may be sent more."""

    epoch: int
    dispatcher: int
    fields: int
    window_batches: int
    window_bytes: int
    taken_batches: int = 0
    taken_bytes: int = 0
    batches: int = 0
    bytes: int = 0
    number: int = 0
    known: Known = dataclasses.field(default_factory=Known)

    @property
    def open(self) -> bool:
        """Whether one more batch may be sent; it may overdraw the bytes."""
        return (
            self.batches < self.window_batches + self.taken_batches
            and self.bytes < self.window_bytes + self.taken_bytes
        )


class Source(Protocol):
    """What a session needs to read its backlog back."""

    def record(self, position: int) -> Matched | Missing: ...

    def names_of(self, handles: I64) -> StringColumn: ...

    def count(self, pairs: int) -> None: ...


class Session:
    """One subscriber.

    Numbers of pairs: the next is `next`; to `acked` they are acknowledged, to `lost` they are
    so or lost, of which the log knows to `noted`; the stream was sent those to `taken`.
    """

    __slots__ = (
        "_epoch", "acked", "backlog", "lost", "next", "noted", "number", "stream", "taken",
    )  # fmt: skip

    def __init__(self, number: int, journal: Journal) -> None:
        self.number = number
        self.next = 1
        self.acked = self.lost = self.noted = self.taken = 0
        self.backlog = Backlog(number, journal)
        self.stream: Stream | None = None
        self._epoch = 0  # the highest that was opened or closed

    @property
    def floor(self) -> int:
        """Nothing to this number is needed any more."""
        return max(self.acked, self.lost)

    @property
    def waiting(self) -> bool:
        """Whether a stream has not been sent all."""
        return self.stream is not None and self.taken + 1 < self.next

    @property
    def held_bytes(self) -> int:
        """Memory taken, about."""
        stream = 0 if self.stream is None else 400 + self.stream.known.held_bytes
        return 400 + stream + self.backlog.held_bytes

    def attach(self, attach: Attach) -> list[Send]:
        """Open a stream; an older one is closed, a stale one refused."""
        if attach.epoch <= self._epoch:
            if self.stream is None or self.stream.epoch != attach.epoch:
                return [self._closed(attach.epoch, attach.dispatcher, 1)]
            return [self._attached(attach.epoch, attach.dispatcher, self.stream.number)]
        if attach.ack >= self.next:
            return [self._attached(attach.epoch, attach.dispatcher, 0, refused=1)]
        out = self._close()
        self._epoch = attach.epoch
        self.stream = Stream(
            attach.epoch,
            attach.dispatcher,
            attach.fields,
            attach.credit_batches,
            attach.credit_bytes,
        )
        self._acknowledge(attach.ack)
        self.taken = self.acked
        return [*out, self._attached(attach.epoch, attach.dispatcher, 0)]

    def credit(self, credit: Credit) -> list[Send]:
        """Let go of what is acknowledged, as far as it was sent; grant what was taken. One
        that says nothing new asks what was sent, one of a lost stream hears of more than it
        has: it attaches anew."""
        acked = self.acked
        self._acknowledge(min(credit.ack, self.taken))
        stream = self.stream
        if stream is None or stream.epoch != credit.epoch:
            lost = credit.epoch >= self._epoch and stream is None
            return [self._attached(credit.epoch, credit.dispatcher, 1 << 62)] if lost else []
        now = (credit.batches, credit.bytes)
        old = (stream.taken_batches, stream.taken_bytes)
        stream.taken_batches, stream.taken_bytes = map(max, now, old)
        if self.acked > acked or now > old:
            return []
        return [self._attached(stream.epoch, stream.dispatcher, stream.number)]

    def detach(self, detach: Detach) -> None:
        """The stream is gone; a Detach that overtakes its Attach holds too."""
        self._epoch = max(self._epoch, detach.epoch)
        if self.stream is not None and self.stream.epoch <= detach.epoch:
            self.stream = None

    def add(self, position: int, pairs: int, size: int) -> int:
        """Take so many new pairs, `size` bytes at `position` of the log; the first's number."""
        first = self.next
        self.next += pairs
        self.backlog.append(position, first, self.next - 1, size)
        return first

    def lose_bytes(self, most: int) -> None:
        """Drop the oldest places until at most so many bytes are kept."""
        while self.backlog.size > most and (place := self.backlog.oldest) is not None:
            self._lose(place.last)

    def lose_before(self, position: int) -> bool:
        """Drop the places before this position of the log; whether there were any."""
        before = self.lost
        while (place := self.backlog.oldest) is not None and place.position < position:
            self._lose(place.last)
        return self.lost > before

    def send(self, source: Source, record: Matched, a: int, b: int) -> list[Send]:
        """The pairs a..b of a record, which are the next, as far as the stream takes them."""
        out: list[Send] = []
        while (stream := self.stream) is not None and a < b and stream.open:
            end = fanout.part(record, a, b)
            # Sorted, the names are found several times as fast.
            new = np.sort(stream.known.learn(record.handle[a:end]))
            first = self.taken + 1
            names = source.names_of(new)
            batch = fanout.delivery(record, a, end, first, stream.fields, new, names)
            out.append(self._deliver(stream, batch, self.taken + end - a))
            source.count(end - a)
            a = end
        return out

    def pump(self, source: Source) -> list[Send]:
        """One place of what waits, or a gap, as far as the stream takes it."""
        stream = self.stream
        if stream is None or not self.waiting or not stream.open:
            return []
        if self.taken < self.lost:
            if self.noted < self.lost:
                return []
            return [self._deliver(stream, fanout.gap(self.taken + 1, self.lost), self.lost)]
        place = self.backlog.find(self.taken + 1)
        record = source.record(place.position)
        if isinstance(record, Missing):
            return [self._deliver(stream, fanout.gap(self.taken + 1, place.last), place.last)]
        i = int(np.searchsorted(record.session, self.number))
        a = int(record.cut[i]) + self.taken + 1 - int(record.first[i])
        return self.send(source, record, a, int(record.cut[i + 1]))

    def rest(self, bytes: int) -> None:
        """While its stream has no credits, it holds no more than this of names' handles."""
        stream = self.stream
        if stream is not None and not stream.open and stream.known.held_bytes > bytes:
            stream.known = Known()

    def _acknowledge(self, number: int) -> None:
        if number > self.acked:
            self.acked = number
            self.backlog.drop(number)

    def _lose(self, number: int) -> None:
        self.lost = number
        self.backlog.drop(number)

    def _deliver(self, stream: Stream, batch: Deliver, taken: int) -> Send:
        data = np.frombuffer(deliver_batch(batch), np.uint8)
        self.taken = taken
        stream.batches += 1
        stream.bytes += len(data)
        stream.number += 1
        return Send(
            Address("dispatcher", stream.dispatcher),
            Delivery(self.number, stream.epoch, stream.number, 0, data),
        )

    def _attached(self, epoch: int, dispatcher: int, sent: int, refused: int = 0) -> Send:
        return Send(
            Address("dispatcher", dispatcher),
            Attached(self.number, epoch, sent, self.next - 1, self.acked, refused),
        )

    def _close(self) -> list[Send]:
        if self.stream is None:
            return []
        stream, self.stream = self.stream, None
        return [self._closed(stream.epoch, stream.dispatcher, stream.number + 1)]

    def _closed(self, epoch: int, dispatcher: int, number: int) -> Send:
        return Send(
            Address("dispatcher", dispatcher),
            Delivery(self.number, epoch, number, 1, np.zeros(0, np.uint8)),
        )
