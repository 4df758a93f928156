"""Sessions: numbering, credits, and a bounded backlog whose losses are announced.

A session numbers its pairs (session_seq, from 1, without gaps). What its stream has taken
but not acknowledged, and what waits for a stream or for credits, is held; a new stream
gets the unacknowledged again, with the same numbers. Beyond the quota the oldest goes:
first what was sent, then the head of the backlog, and a Gap takes its place.
"""

from __future__ import annotations

import dataclasses
from collections import deque

import numpy as np

from ps2stream.batch import I64
from ps2stream.merger.fanout import Entry
from ps2stream.merger.kernels import add_new
from ps2stream.messages import Address, Attach, Credit, Delivery, Detach, Send
from ps2stream.wire import Deliver, Gap, deliver_batch

MAX_KNOWN = 1 << 22  # handles; a stream that knows more is told all anew

Item = Entry | Gap


class Known:
    """The handles whose names a stream has been sent."""

    def __init__(self) -> None:
        self._table = np.zeros(64, np.int64)
        self._used = 0

    def learn(self, handles: I64) -> I64:
        """Those that were not known, each once; now they are."""
        if self._used > MAX_KNOWN:
            self.__init__()  # type: ignore[misc]
        new = np.empty(len(handles), np.int64)
        found = at = 0
        while True:
            at, self._used, more = add_new(self._table, self._used, handles, at, new[found:])
            found += more
            if at == len(handles):
                return new[:found]
            old = self._table[self._table != 0]
            self._table = np.zeros(4 * len(self._table), np.int64)
            _, self._used, _ = add_new(self._table, 0, old, 0, np.empty_like(old))


@dataclasses.dataclass(slots=True, eq=False)
class Stream:
    """An open Deliver stream and what it may still be sent."""

    epoch: int
    dispatcher: int
    fields: int
    batches: int
    bytes: int
    known: Known = dataclasses.field(default_factory=Known)


class Session:
    """One subscriber. `held` is the number of bytes kept for it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.next_seq = 1
        self.held = 0
        self.stream: Stream | None = None
        self._epoch = 0  # the highest that was opened or closed
        self._acked = 0
        self._taken = 0  # the highest number that a stream was sent
        self._sent: deque[Item] = deque()  # not acknowledged
        self._backlog: deque[Item] = deque()  # not sent
        self._lapsed: Gap | None = None  # sent, not acknowledged, no longer held

    def add(self, entries: list[Entry], quota: int) -> list[Send]:
        """Take new entries, numbered from `next_seq`; send what may be sent."""
        for entry in entries:
            self.next_seq = entry.last + 1
            self._backlog.append(entry)
            self.held += entry.cost
        out = self._pump()
        for item in reversed(self._backlog):
            if isinstance(item, Entry) and item.names is not None:
                before = item.cost
                item.keep_names()
                self.held += item.cost - before
            else:
                break
        self.shrink(quota)
        return out

    def attach(self, attach: Attach) -> list[Send]:
        """Open a stream; an older one is closed, a stale one refused."""
        if attach.epoch <= self._epoch:
            if self.stream is not None and self.stream.epoch == attach.epoch:
                return []
            return [self._closed(attach.epoch, attach.dispatcher)]
        out = []
        if self.stream is not None:
            out.append(self._closed(self.stream.epoch, self.stream.dispatcher))
        self._requeue()
        self._epoch = attach.epoch
        self.stream = Stream(
            attach.epoch,
            attach.dispatcher,
            attach.fields,
            attach.credit_batches,
            attach.credit_bytes,
        )
        return out + self._pump()

    def credit(self, credit: Credit) -> list[Send]:
        """Let go of what is acknowledged; with a current epoch, send on."""
        self._acked = max(self._acked, min(credit.ack, self._taken))
        if self._lapsed is not None and self._lapsed.last <= self._acked:
            self._lapsed = None
        for queue in (self._sent, self._backlog):
            while queue and queue[0].last <= self._acked:
                self.held -= _cost(queue.popleft())
        if self.stream is None or self.stream.epoch != credit.epoch:
            return []
        self.stream.batches += credit.batches
        self.stream.bytes += credit.bytes
        return self._pump()

    def detach(self, detach: Detach) -> list[Send]:
        """The stream is gone; a Detach that overtakes its Attach holds too."""
        self._epoch = max(self._epoch, detach.epoch)
        if self.stream is not None and self.stream.epoch <= detach.epoch:
            self.stream = None
            self._requeue()
        return []

    def shrink(self, quota: int) -> None:
        """Drop the oldest until at most `quota` bytes are held."""
        while self.held > quota and self._sent:
            item = self._sent.popleft()
            self.held -= _cost(item)
            self._lapsed = _merged(self._lapsed, item)
        gap: Gap | None = None
        while self._backlog and (self.held > quota or isinstance(self._backlog[0], Gap)):
            item = self._backlog.popleft()
            self.held -= _cost(item)
            gap = _merged(gap, item)
        if gap is not None:
            self._backlog.appendleft(gap)

    def _pump(self) -> list[Send]:
        stream = self.stream
        out: list[Send] = []
        while stream is not None and self._backlog and stream.batches > 0 and stream.bytes > 0:
            item = self._backlog.popleft()
            if isinstance(item, Gap):
                batch = _gap_alone(item)
            else:
                # Sorted, the names are found several times as fast.
                new = np.sort(stream.known.learn(item.handle))
                batch = item.deliver(stream.fields, new)
            data = np.frombuffer(deliver_batch(batch), np.uint8)
            self._sent.append(item)
            self._taken = max(self._taken, item.last)
            stream.batches -= 1
            stream.bytes -= len(data)
            out.append(
                Send(
                    Address("dispatcher", stream.dispatcher),
                    Delivery(self.number, stream.epoch, 0, data),
                )
            )
        return out

    def _requeue(self) -> None:
        """What was sent and not acknowledged waits for the next stream."""
        lapsed: list[Item] = []
        if self._lapsed is not None:
            first = max(self._lapsed.first, self._acked + 1)
            lapsed = [Gap(first, self._lapsed.last, self._lapsed.last - first + 1)]
            self._lapsed = None
        for item in self._sent:
            if isinstance(item, Entry):
                before = item.cost
                item.keep_names()
                self.held += item.cost - before
        self._backlog = deque([*lapsed, *self._sent, *self._backlog])
        self._sent.clear()

    def _closed(self, epoch: int, dispatcher: int) -> Send:
        return Send(
            Address("dispatcher", dispatcher),
            Delivery(self.number, epoch, 1, np.zeros(0, np.uint8)),
        )


def _cost(item: Item) -> int:
    return item.cost if isinstance(item, Entry) else 0


def _merged(gap: Gap | None, item: Item) -> Gap:
    count = item.pairs if isinstance(item, Gap) else len(item.handle)
    if gap is None:
        return Gap(item.first, item.last, count)
    return Gap(gap.first, item.last, gap.pairs + count)


def _gap_alone(gap: Gap) -> Deliver:
    """A batch without pairs; its number is that of the next pair."""
    none = np.zeros(0, np.int64)
    text = np.zeros(1, np.int64), np.zeros(0, np.uint8)
    return Deliver(gap.last + 1, none, text, none, np.zeros(0, np.uint32), text, none, 0, gap=gap)
