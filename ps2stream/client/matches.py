"""Received matches: batches of matches as columns, or one match at a time.

`MatchReceiver` is the client's side of a Deliver stream as a pure state machine: it names queries,
drops pairs that were delivered before, and says when to grant credits. Both clients run it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from google.protobuf.message import DecodeError

from ps2stream.errors import FailedPrecondition, InvalidArgument, Ps2StreamError, Violation
from ps2stream.protocol.frame import F64, I64, U8, U32, U64
from ps2stream.protocol.wire_kernels import BAD, get_varints, scan
from ps2stream.v1 import delivery_pb2

_BATCH_TAG = 0x0A  # DeliverResponse.batch


class Match(NamedTuple):
    """An object that satisfies a query. Fields that were not requested are None."""

    query_id: str
    object_id: str
    partition: int
    offset: int
    lon: float | None
    lat: float | None
    time: int | None
    text: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Gap:
    """Pairs `first` to `last` are missing. The service dropped `count` matches because nobody took
    them in time; where `count` is 0, they were lost with one of the service's logs, and nobody
    knows how many there were."""

    first: int
    last: int
    count: int

    def __str__(self) -> str:
        if self.count:
            return f"{self.count} matches were dropped: nobody took them"
        return "matches were lost with a log of the service; how many is not known"


@dataclasses.dataclass(frozen=True, eq=False)
class Matches:
    """A batch of pairs: pair i says that query `query_ids[i]` matches object number `objects[i]` of
    the object columns. `first` is the number of the first pair; the others follow on it.

    The columns of the m pairs are handles uint64[m] and objects uint32[m]. Those of the n objects
    are offsets uint64[n] in `partition` and, where requested, else None: lon and lat float64[n] in
    degrees, time int64[n] in Unix ms. A `gap` comes alone, without pairs.
    """

    first: int
    partition: int
    handles: U64
    objects: U32
    offsets: U64
    lon: F64 | None
    lat: F64 | None
    time: I64 | None
    gap: Gap | None
    _data: bytes
    _object_ids: tuple[I64, I64]
    _texts: tuple[I64, I64] | None
    _names: dict[int, str]

    def __len__(self) -> int:
        return len(self.handles)

    @property
    def last(self) -> int:
        """The number of the last pair, or of the last one of the gap."""
        return self.gap.last if self.gap is not None else self.first + len(self) - 1

    @cached_property
    def query_ids(self) -> list[str]:
        """The id of each pair's query."""
        return list(map(self._names.__getitem__, self.handles.tolist()))

    @cached_property
    def object_ids(self) -> list[str]:
        """The id that its publisher gave each object."""
        return _decode_texts(self._data, *self._object_ids)

    @cached_property
    def texts(self) -> list[str] | None:
        """The text of each object, None where texts were not requested."""
        return None if self._texts is None else _decode_texts(self._data, *self._texts)

    def __iter__(self) -> Iterator[Match]:
        none = [None] * len(self.offsets)
        columns = zip(
            self.object_ids,
            self.offsets.tolist(),
            none if self.lon is None else self.lon.tolist(),
            none if self.lat is None else self.lat.tolist(),
            none if self.time is None else self.time.tolist(),
            none if self.texts is None else self.texts,
            strict=True,
        )
        rows = list(columns)
        for query_id, i in zip(self.query_ids, self.objects.tolist(), strict=True):
            object_id, offset, lon, lat, time, text = rows[i]
            yield Match(query_id, object_id, self.partition, offset, lon, lat, time, text)

    def after(self, number: int) -> Self:
        """Returns the batch without the pairs up to `number`, which must be before the last one."""
        if self.gap is not None:
            last = self.gap.last
            rest = Gap(number + 1, last, min(self.gap.count, last - number))
            return dataclasses.replace(self, gap=rest)
        skip = max(0, number + 1 - self.first)
        return dataclasses.replace(
            self,
            first=self.first + skip,
            handles=self.handles[skip:],
            objects=self.objects[skip:],
        )


class MatchReceiver:
    """The state of one subscription over all its streams.

    `text`, `position` and `time` say which fields of an object are requested; `credit_batches` and
    `credit_bytes` how much may be under way; `cursor` how far an earlier subscription had come.
    Raises InvalidArgument for a cursor that is none.
    """

    def __init__(
        self,
        session: str,
        *,
        text: bool = True,
        position: bool = True,
        time: bool = True,
        credit_batches: int = 256,
        credit_bytes: int = 1 << 20,
        cursor: bytes = b"",
    ) -> None:
        fields = delivery_pb2.DeliverFields(text=text, position=position, time=time)
        self._start = delivery_pb2.Start(
            session=session,
            fields=fields,
            credit_batches=credit_batches,
            credit_bytes=credit_bytes,
        )
        self._names: dict[int, str] = {}
        try:
            kept = delivery_pb2.Cursor.FromString(cursor)
        except DecodeError:
            raise InvalidArgument([Violation("cursor", "is not a cursor")]) from None
        self._of = kept.incarnation, kept.session
        self._last = kept.session_seq
        self._handed = 0
        self._batches = 0
        self._bytes = 0
        self.missed = 0
        """The number of pairs that gaps stand for."""

    def start(self) -> bytes:
        """Returns the first message of a new stream."""
        self._batches = self._bytes = 0
        request = delivery_pb2.DeliverRequest(start=self._start)
        if self._last:
            request.start.cursor.CopyFrom(self._make_cursor(self._last))
        return request.SerializeToString()

    def cursor(self, shown: int = 0) -> bytes:
        """Returns how far the subscriber has dealt with the session's pairs, including those up to
        `shown`; to be stored with the subscriber's results."""
        return self._make_cursor(max(self._last, shown)).SerializeToString()

    def _make_cursor(self, last: int) -> delivery_pb2.Cursor:
        of, session = self._of
        return delivery_pb2.Cursor(incarnation=of, session_seq=last, session=session)

    def on(self, data: bytes) -> Matches | None:
        """Takes a message from the service and returns its new matches, or None if it has none."""
        if not data or data[0] != _BATCH_TAG:
            self._handle_started(data)
            return None
        self._batches += 1
        self._bytes += len(data)
        found = read_batch(data, self._names)
        known = max(self._last, self._handed)
        if found.last <= known:
            return None
        if (found.first if found.gap is None else found.gap.first) <= known:
            found = found.after(known)
        if found.gap is not None:
            self.missed += found.gap.count
        return found

    def handed(self, number: int) -> None:
        """Notes that the subscriber has everything up to this pair, and will report when it has
        taken it."""
        self._handed = number

    def took(self, number: int) -> None:
        """Notes that the subscriber has dealt with everything up to this pair."""
        self._last = max(self._last, number)

    def acknowledgement(self) -> bytes:
        """Returns a message that acknowledges what was taken, and grants nothing."""
        credit = delivery_pb2.Credit(ack=self._last)
        return delivery_pb2.DeliverRequest(credit=credit).SerializeToString()

    def credit(self, *, flush: bool = False) -> bytes | None:
        """Returns a message that grants again what was taken, once that is a quarter of the window;
        None before. With `flush` anything that was taken is granted."""
        due = (
            4 * self._batches >= self._start.credit_batches
            or 4 * self._bytes >= self._start.credit_bytes
        )
        if not due and not (flush and self._batches):
            return None
        credit = delivery_pb2.Credit(batches=self._batches, bytes=self._bytes, ack=self._last)
        self._batches = self._bytes = 0
        return delivery_pb2.DeliverRequest(credit=credit).SerializeToString()

    def _handle_started(self, data: bytes) -> None:
        started = delivery_pb2.DeliverResponse.FromString(data).started
        if started.incarnation != self._of[0]:
            if self._handed:  # the numbers handed out mean nothing to this service
                raise FailedPrecondition("the session is of another service than it was")
            self._last = 0
        self._of = started.incarnation, started.session


def read_batch(data: bytes, names: dict[int, str]) -> Matches:
    """Decodes a DeliverResponse into Matches and adds the new names of queries to `names`. Raises
    Ps2StreamError when the message is malformed."""
    try:
        return _parse_delivery(data, names)
    except (ValueError, DecodeError) as error:
        raise _malformed_delivery() from error


def _parse_delivery(data: bytes, names: dict[int, str]) -> Matches:
    raw = np.frombuffer(data, np.uint8)
    field, start, stop = _scan_fields(raw)
    of = {int(f): np.flatnonzero(field == f) for f in np.unique(field)}
    none = np.zeros(0, np.int64)

    def number(f: int) -> int:
        return int(start[of[f][-1]]) if f in of else 0

    def fixed(f: int, dtype: str) -> Any:
        parts = [
            np.frombuffer(data, dtype, int(stop[i] - start[i]) // 8, int(start[i]))
            for i in of.get(f, none)
        ]
        return np.concatenate(parts) if parts else np.zeros(0, dtype)

    def strings(f: int) -> tuple[I64, I64]:
        rows = of.get(f, none)
        return start[rows], stop[rows]

    handles = fixed(4, "<u8")
    objects = np.empty(len(handles), np.uint32)
    at = of.get(5, none)
    if len(at) > 1 or sum(get_varints(raw, start[i], stop[i], objects) for i in at) != len(handles):
        raise _malformed_delivery()
    offsets = fixed(7, "<u8")
    columns = {
        f: fixed(f, d) if f in of else None for f, d in ((9, "<f8"), (10, "<f8"), (11, "<i8"))
    }
    texts = strings(12) if 12 in of else None
    sizes = [len(c) for c in columns.values() if c is not None]
    sizes += [len(s[0]) for s in (strings(6), texts) if s is not None]
    if any(s != len(offsets) for s in sizes) or (len(objects) and objects.max() >= len(offsets)):
        raise _malformed_delivery()
    names.update(zip(fixed(2, "<u8").tolist(), _decode_texts(data, *strings(3)), strict=True))
    gap = None
    if 13 in of:
        i = of[13][-1]
        message = delivery_pb2.Gap.FromString(data[start[i] : stop[i]])
        gap = Gap(getattr(message, "from"), message.to, message.count)
    return Matches(
        number(1), number(8), handles, objects, offsets, columns[9], columns[10], columns[11],
        gap, data, strings(6), texts, names,
    )  # fmt: skip


def _scan_fields(raw: U8) -> tuple[U8, I64, I64]:
    """Returns the field numbers and extents of the batch in a DeliverResponse."""
    one, begin, end = np.zeros(1, np.uint8), np.zeros(1, np.int64), np.zeros(1, np.int64)
    if scan(raw, 0, len(raw), one, begin, end) != 1:
        raise _malformed_delivery()
    span = int(begin[0]), int(end[0])
    n = 64 + len(raw) // 16
    while True:
        field, start, stop = np.empty(n, np.uint8), np.empty(n, np.int64), np.empty(n, np.int64)
        found = scan(raw, *span, field, start, stop)
        if found == BAD:
            raise _malformed_delivery()
        if found <= n:
            return field[:found], start[:found], stop[:found]
        n = found


def _decode_texts(data: bytes, start: I64, stop: I64) -> list[str]:
    return [
        data[a:b].decode("utf-8", "replace")
        for a, b in zip(start.tolist(), stop.tolist(), strict=True)
    ]


def _malformed_delivery() -> Ps2StreamError:
    return Ps2StreamError("the service sent a malformed delivery")
