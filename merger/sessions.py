"""Sessions: numbering, streams with credits, acknowledgements, and losses that are announced.

A session numbers its pairs (session_seq, from 1, without gaps). The pairs that are not
acknowledged are in the match log, and the backlog has their places. A stream has been sent
those up to `taken`; a new stream starts behind the acknowledged ones. Beyond the quota the
oldest pairs are lost, and a Gap replaces them once the log has recorded it.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

import numpy as np

from ps2stream.errors import DataDirectoryError
from ps2stream.merger import fanout
from ps2stream.merger.backlog import BacklogPlace, SessionBacklog
from ps2stream.merger.journal import MatchJournal
from ps2stream.merger.kernels import add_new, copy_rows
from ps2stream.merger.records import MatchedRecord, MissingRecord
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import I64, sealed
from ps2stream.protocol.messages.sessions import (
    StreamAttach,
    StreamAttached,
    StreamCredit,
    StreamDelivery,
    StreamDetach,
)
from ps2stream.protocol.wire import DeliveryColumns, StringColumn, deliver_batch

MAX_KNOWN = 1 << 22  # blocks of 64 handles; beyond that, a stream is sent all names anew


class KnownHandles:
    """The handles whose names a stream has been sent."""

    def __init__(self) -> None:
        self._table = np.zeros((32, 2), np.uint64)  # see add_new
        self._used = 0

    @property
    def held_bytes(self) -> int:
        return self._table.nbytes

    def learn(self, handles: I64) -> I64:
        """Adds handles, and returns those that were not known, each once."""
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
            old = self._table
            self._table = np.zeros((4 * len(old), 2), np.uint64)
            copy_rows(old, self._table)


@dataclasses.dataclass(slots=True, eq=False)
class MergerStream:
    """An open Deliver stream: what it was sent, and how much more it may be sent."""

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
    known: KnownHandles = dataclasses.field(default_factory=KnownHandles)

    @property
    def open(self) -> bool:
        """True if one more batch may be sent, which may exceed the bytes."""
        return (
            self.batches < self.window_batches + self.taken_batches
            and self.bytes < self.window_bytes + self.taken_bytes
        )


class BacklogSource(Protocol):
    """The port through which a session reads its backlog back."""

    def record(self, position: int) -> MatchedRecord | MissingRecord: ...

    def names_of(self, handles: I64) -> StringColumn: ...

    def count(self, pairs: int) -> None: ...


class MergerSession:
    """A named subscriber.

    Its pairs have numbers, of which the next is `next`. Those up to `acked` are acknowledged;
    those up to `lost` are acknowledged or lost, and the log has recorded losses up to `noted`.
    The stream was sent those up to `taken`. While records of it come from another merger, it has
    no stream and its places are in `arriving`, in any order.
    """

    __slots__ = (
        "_epoch", "acked", "arriving", "backlog", "lost", "next", "noted", "number", "stream",
        "taken",
    )  # fmt: skip

    def __init__(self, number: int, journal: MatchJournal) -> None:
        self.number = number
        self.next = 1
        self.acked = self.lost = self.noted = self.taken = 0
        self.backlog = SessionBacklog(number, journal)
        self.arriving: list[BacklogPlace] | None = None
        self.stream: MergerStream | None = None
        self._epoch = 0  # the highest epoch of a stream that was opened or closed

    @property
    def floor(self) -> int:
        """The number up to which no pair is needed any more."""
        return max(self.acked, self.lost)

    @property
    def waiting(self) -> bool:
        """True if the session has a stream that was not sent all pairs."""
        return self.stream is not None and self.taken + 1 < self.next

    @property
    def held_bytes(self) -> int:
        """The memory that the session takes, about."""
        stream = 0 if self.stream is None else 400 + self.stream.known.held_bytes
        return 400 + stream + self.backlog.held_bytes

    def attach(self, attach: StreamAttach) -> list[Send]:
        """Opens a stream and closes the one before; a stale request is refused."""
        if attach.epoch <= self._epoch:
            if self.stream is None or self.stream.epoch != attach.epoch:
                return [make_closing(self.number, attach.epoch, attach.dispatcher, 1)]
            return [self._make_attached(attach.epoch, attach.dispatcher, self.stream.number)]
        if attach.ack >= self.next:
            return [self._make_attached(attach.epoch, attach.dispatcher, 0, refused=1)]
        out = self._close_stream()
        self._epoch = attach.epoch
        self.stream = MergerStream(
            attach.epoch,
            attach.dispatcher,
            attach.fields,
            attach.credit_batches,
            attach.credit_bytes,
        )
        self._acknowledge_pairs(attach.ack)
        self.taken = self.acked
        return [*out, self._make_attached(attach.epoch, attach.dispatcher, 0)]

    def credit(self, credit: StreamCredit) -> list[Send]:
        """Drops the acknowledged pairs, as far as they were sent, and grants what the client has
        dealt with. A credit with nothing new is answered with what was sent. A credit of a lost
        stream is answered with a higher number than was sent, so that the stream is attached
        anew."""
        acked = self.acked
        self._acknowledge_pairs(min(credit.ack, self.taken))
        stream = self.stream
        if stream is None or stream.epoch != credit.epoch:
            lost = credit.epoch >= self._epoch and stream is None
            return [self._make_attached(credit.epoch, credit.dispatcher, 1 << 62)] if lost else []
        now = (credit.batches, credit.bytes)
        old = (stream.taken_batches, stream.taken_bytes)
        stream.taken_batches, stream.taken_bytes = map(max, now, old)
        if self.acked > acked or now > old:
            return []
        return [self._make_attached(stream.epoch, stream.dispatcher, stream.number)]

    def detach(self, detach: StreamDetach) -> None:
        """Closes the stream. A Detach that overtakes its Attach counts too."""
        self._epoch = max(self._epoch, detach.epoch)
        if self.stream is not None and self.stream.epoch <= detach.epoch:
            self.stream = None

    def add(self, position: int, pairs: int, size: int) -> int:
        """Numbers new pairs, `size` bytes at `position` of the log; returns the first's number."""
        first = self.next
        self.next += pairs
        if self.arriving is None:
            self.backlog.append(position, first, self.next - 1, size)
        else:
            self.arriving.append(BacklogPlace(position, first, self.next - 1, size))
        return first

    def settle(self) -> None:
        """Builds the backlog once all records have come from another merger. Raises
        DataDirectoryError if a pair is missing."""
        place_of = {place.first: place for place in self.arriving or ()}
        self.arriving = None
        places = sorted(place_of.values(), key=lambda place: place.first)
        reached = self.floor
        for place in places:
            if place.first > reached + 1:
                break
            reached = max(reached, place.last)
        if reached + 1 < self.next:
            problem = f"pair {reached + 1} of session {self.number} did not come with the others"
            raise DataDirectoryError(problem)
        self.backlog.restore((0, place) for place in places)
        self.backlog.drop(self.floor)

    def lose_bytes(self, most: int) -> None:
        """Drops the oldest places until at most `most` bytes are kept."""
        while self.backlog.size > most and (place := self.backlog.oldest) is not None:
            self._lose_pairs(place.last)

    def lose_before(self, position: int) -> bool:
        """Drops the places before this position of the log; returns whether there were any."""
        before = self.lost
        while (place := self.backlog.oldest) is not None and place.position < position:
            self._lose_pairs(place.last)
        return self.lost > before

    def send(self, source: BacklogSource, record: MatchedRecord, a: int, b: int) -> list[Send]:
        """Sends the pairs a..b of a record, which are the next, as far as the credits allow."""
        out: list[Send] = []
        while (stream := self.stream) is not None and a < b and stream.open:
            end = fanout.find_delivery_end(record, a, b, stream.fields)
            # Sorted, the names are found several times as fast.
            new = np.sort(stream.known.learn(record.handle[a:end]))
            first = self.taken + 1
            names = source.names_of(new)
            batch = fanout.make_delivery(record, a, end, first, stream.fields, new, names)
            out.append(self._deliver_batch(stream, batch, self.taken + end - a))
            source.count(end - a)
            a = end
        return out

    def pump(self, source: BacklogSource) -> list[Send]:
        """Sends the next place that waits, or a gap, as far as the credits allow."""
        stream = self.stream
        if stream is None or not self.waiting or not stream.open:
            return []
        if self.taken < self.lost:
            if self.noted < self.lost:
                return []
            return [self._deliver_batch(stream, fanout.gap(self.taken + 1, self.lost), self.lost)]
        place = self.backlog.find(self.taken + 1)
        record = source.record(place.position)
        if isinstance(record, MissingRecord):
            shed = fanout.find_shed(record, self.number)
            gap = fanout.gap(self.taken + 1, place.last, shed)
            return [self._deliver_batch(stream, gap, place.last)]
        i = int(np.searchsorted(record.session, self.number))
        a = int(record.cut[i]) + self.taken + 1 - int(record.first[i])
        return self.send(source, record, a, int(record.cut[i + 1]))

    def free_known_handles(self, bytes: int) -> None:
        """Drops the known handles of a stream without credits if they take more bytes."""
        stream = self.stream
        if stream is not None and not stream.open and stream.known.held_bytes > bytes:
            stream.known = KnownHandles()

    def _acknowledge_pairs(self, number: int) -> None:
        if number > self.acked:
            self.acked = number
            self.backlog.drop(number)

    def _lose_pairs(self, number: int) -> None:
        self.lost = number
        self.backlog.drop(number)

    def _deliver_batch(self, stream: MergerStream, batch: DeliveryColumns, taken: int) -> Send:
        data = np.frombuffer(deliver_batch(batch), np.uint8)
        self.taken = taken
        stream.batches += 1
        stream.bytes += len(data)
        stream.number += 1
        return Send(
            Address("dispatcher", stream.dispatcher),
            StreamDelivery(self.number, stream.epoch, stream.number, 0, data),
        )

    def _make_attached(self, epoch: int, dispatcher: int, sent: int, refused: int = 0) -> Send:
        return Send(
            Address("dispatcher", dispatcher),
            StreamAttached(self.number, epoch, sent, self.next - 1, self.acked, refused),
        )

    def _close_stream(self) -> list[Send]:
        if self.stream is None:
            return []
        stream, self.stream = self.stream, None
        return [make_closing(self.number, stream.epoch, stream.dispatcher, stream.number + 1)]


def make_closing(session: int, epoch: int, dispatcher: int, number: int) -> Send:
    """Returns the message that a stream is closed, as another has taken its session over; number:
    one more than the last delivery's."""
    closing = StreamDelivery(session, epoch, number, 1, np.zeros(0, np.uint8))
    return Send(Address("dispatcher", dispatcher), closing)
