"""The memory of publications that have a producer and a seq, by which repeats get the first answer
(docs/decisions/0015).

A producer's window is one table of integers, in no order: searching it is one comparison of a
column, and the object log keeps it as it is.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np

from ps2stream.dispatcher.gateway import AcceptedBatch, PublicationIdentity
from ps2stream.errors import AlreadyExists, FailedPrecondition, ResourceExhausted
from ps2stream.limits import PRODUCER_WINDOW, PRODUCERS, TENANT_PRODUCERS
from ps2stream.protocol.frame import U64, column_to_strings, decode
from ps2stream.protocol.log_records import ForgottenRecord, IdentifiedRecord, ProducerRecord
from ps2stream.protocol.ports import Log
from ps2stream.tenants import key_of, own

KEPT_S = 600.0
"""Seconds since its last publication for which a producer is remembered at least."""
FIELDS = 6
"""The columns of a window: seq, partition, offset, LSN, and the digest as two integers."""
_LEAST_ROOM = 4
_NEVER = float("-inf")


def find_owner(producer: str, dispatchers: int) -> int:
    """Returns the index of the dispatcher that remembers this producer's publications."""
    return zlib.crc32(producer.encode()) % dispatchers


class RememberedPublication(NamedTuple):
    """A publication in a window: its answer, and the digest of its content."""

    answer: AcceptedBatch
    digest: bytes


class ProducerWindow:
    """The last publications of one producer, by seq. None at or below `floor` is published any
    more. `touched` is when one came last, in monotonic seconds."""

    def __init__(self) -> None:
        self.floor = 0
        self.touched = _NEVER
        self.count = 0
        self._rows = np.zeros((_LEAST_ROOM, FIELDS), np.uint64)

    @property
    def rows(self) -> U64:
        """The publications, uint64[count, FIELDS]."""
        return self._rows[: self.count]

    @property
    def lowest(self) -> int:
        """The seq below which nothing is published any more."""
        if self.count < PRODUCER_WINDOW:
            return self.floor + 1
        return max(self.floor + 1, int(self.rows[:, 0].min()))

    def find(self, seq: int) -> RememberedPublication | None:
        """Returns the publication of this seq; None if it is not in the window."""
        at = np.flatnonzero(self.rows[:, 0] == np.uint64(seq))
        if not len(at):
            return None
        row = self._rows[at[0]]
        return RememberedPublication(AcceptedBatch(*row[1:4].tolist()), row[4:].tobytes())

    def add(self, row: U64) -> None:
        """Adds a publication; a full window drops that of the lowest seq. If its seq is there, the
        later one counts: a log may still tell of the time before the producer was forgotten."""
        if len(same := np.flatnonzero(self.rows[:, 0] == row[0])):
            self._rows[same[0]] = row
            return
        if self.count == PRODUCER_WINDOW:
            at = int(self.rows[:, 0].argmin())
            self.floor = max(self.floor, min(int(self.rows[at, 0]), int(row[0])))
            if row[0] > self.rows[at, 0]:
                self._rows[at] = row
            return
        if self.count == len(self._rows):
            room = min(2 * self.count, PRODUCER_WINDOW)
            self._rows = np.resize(self._rows, (room, FIELDS))
        self._rows[self.count] = row
        self.count += 1

    def merge(self, floor: int, rows: U64) -> bool:
        """Adds the publications that are new here; returns whether there were any."""
        known = self.rows[:, 0]
        fresh = rows[~np.isin(rows[:, 0], known) & (rows[:, 0] > np.uint64(self.floor))]
        is_new = len(fresh) > 0 or floor > self.floor
        self.floor = max(self.floor, floor)
        for row in fresh[np.argsort(fresh[:, 0])]:
            self.add(row)
        return is_new


class ProducerWindows:
    """The windows of all producers that one dispatcher remembers, those first that have published
    nothing for the longest time."""

    def __init__(self) -> None:
        self._windows: dict[str, ProducerWindow] = {}
        self._of_tenant: Counter[bytes] = Counter()
        self._has_clock = False

    def __len__(self) -> int:
        return len(self._windows)

    def find(self, identity: PublicationIdentity) -> AcceptedBatch | None:
        """Returns the first answer to a publication; None if it is a new one. Raises AlreadyExists
        if the first had another content, and FailedPrecondition if its seq is older than the
        window, so that it is unknown whether there was one."""
        window = self._windows.get(identity.producer)
        if window is None:
            return None
        if (known := window.find(identity.seq)) is not None:
            check_digest(identity, known.digest)
            return known.answer
        if identity.seq < (lowest := window.lowest):
            raise FailedPrecondition(
                f"seq {identity.seq} of producer {own([identity.producer])[0]!r} is older than its "
                f"last {PRODUCER_WINDOW} publications (limit producer_window), which begin with "
                f"seq {lowest}"
            )
        return None

    def make_room(self, producer: str, now: float) -> None:
        """Makes room for a new producer. It forgets those that have published nothing for KEPT_S
        seconds, and raises ResourceExhausted if there are none."""
        self._start_clock(now)
        if producer in self._windows:
            return
        tenant = key_of(producer.encode())
        while self._of_tenant[tenant] >= TENANT_PRODUCERS:
            of_tenant = (p for p in self._windows if key_of(p.encode()) == tenant)
            self._forget_one(of_tenant, now, f"{TENANT_PRODUCERS} producers of this tenant",
                             "tenant_producers")  # fmt: skip
        while len(self._windows) >= PRODUCERS:
            self._forget_one(iter(self._windows), now, f"{PRODUCERS} producers", "producers")

    def add(
        self, identity: PublicationIdentity, answer: AcceptedBatch, now: float = _NEVER
    ) -> None:
        """Remembers the answer to a publication."""
        row = np.empty(FIELDS, np.uint64)
        row[0] = identity.seq
        row[1:4] = answer
        row[4:] = np.frombuffer(identity.digest, np.uint64)
        window = self._window_of(identity.producer)
        window.add(row)
        window.touched = now

    def add_batch(self, record: IdentifiedRecord, partition: int, now: float = _NEVER) -> None:
        """Remembers the publications of a batch in the log of the dispatcher `partition`."""
        offset, digests = record.batch, record.digest.reshape(-1, 2)
        names = column_to_strings(record.producer_off, record.producer)
        for i, (name, seq) in enumerate(zip(names, record.seq.tolist(), strict=True)):
            identity = PublicationIdentity(name, seq, digests[i].tobytes())
            self.add(identity, AcceptedBatch(partition, offset, record.lsn), now)
            offset += int(record.count[i])

    def merge(self, record: ProducerRecord, now: float = _NEVER) -> bool:
        """Adds what a record tells of a producer, which counts as having published `now`; returns
        whether any of it is new."""
        producer = record.producer.tobytes().decode()
        is_new = producer not in self._windows
        rows = record.entries.reshape(-1, FIELDS)
        window = self._window_of(producer)
        window.touched = max(window.touched, now)
        return window.merge(int(record.floor[0]), rows) or is_new

    @property
    def names(self) -> Collection[str]:
        """The producers that are remembered."""
        return self._windows.keys()

    def make_records(self) -> Iterator[ProducerRecord]:
        """Yields all windows as records of a log."""
        return map(self.make_record, self._windows)

    def make_record(self, producer: str) -> ProducerRecord:
        """Returns the window of a producer that is remembered as a record of a log."""
        window = self._windows[producer]
        name = np.frombuffer(producer.encode(), np.uint8)
        return ProducerRecord(name, np.array([window.floor], np.uint64), window.rows.ravel())

    def keep_owned(self, index: int, dispatchers: int) -> None:
        """Forgets the producers that another dispatcher remembers."""
        for producer in [p for p in self._windows if find_owner(p, dispatchers) != index]:
            self._forget(producer)

    def clear(self) -> None:
        """Forgets all producers."""
        self._windows.clear()
        self._of_tenant.clear()

    def _window_of(self, producer: str) -> ProducerWindow:
        """Returns the window of a producer, which becomes the last of all."""
        window = self._windows.pop(producer, None)
        if window is None:
            window = ProducerWindow()
            self._of_tenant[key_of(producer.encode())] += 1
        self._windows[producer] = window
        return window

    def _start_clock(self, now: float) -> None:
        """Lets the time of those that were read from a log begin, once."""
        if not self._has_clock:
            self._has_clock = True
            for window in self._windows.values():
                window.touched = max(window.touched, now)

    def _forget_one(self, candidates: Iterator[str], now: float, many: str, limit: str) -> None:
        producer = next(candidates)
        if now - self._windows[producer].touched < KEPT_S:
            raise ResourceExhausted(
                f"publish: {many} have published within {KEPT_S:g} s, the limit ({limit})", 1000
            )
        self._forget(producer)

    def _forget(self, producer: str) -> None:
        del self._windows[producer]
        self._of_tenant[key_of(producer.encode())] -= 1


def check_digest(identity: PublicationIdentity, digest: bytes) -> None:
    """Raises AlreadyExists unless the first publication had this content."""
    if identity.digest != digest:
        raise AlreadyExists(
            f"seq {identity.seq} of producer {own([identity.producer])[0]!r} was published with "
            "another batch"
        )


def read_windows(log: Log, partition: int) -> ProducerWindows:
    """Returns the windows that the object log of the dispatcher `partition` holds."""
    windows, joined_at = ProducerWindows(), 0
    for _, data in log.scan():
        match decode(data):
            case IdentifiedRecord() as record:
                windows.add_batch(record, partition)
            case ProducerRecord() as window:
                windows.merge(window)
            case ForgottenRecord(lsn=joined):
                if joined > joined_at:  # else it was written again, with the windows
                    joined_at = joined
                    windows.clear()
    return windows
