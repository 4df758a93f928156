"""Received matches: batches of matches as columns, or one match at a time.

`MatchReceiver` is the client's side of a Deliver stream as a pure state machine: it names queries,
drops pairs that were delivered before, and says when to grant credits. Both clients run it.
"""

from __future__ import annotations

import dataclasses
import importlib
from array import array
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from google.protobuf.message import DecodeError

from ps2stream.client.attributes import AttributeScalar, read_attributes, read_payload
from ps2stream.client.shed_load import ShedLoad, read_shed
from ps2stream.errors import FailedPrecondition, Ps2StreamError, invalid
from ps2stream.extras import name_missing_extra
from ps2stream.protocol.session_numbers import count_pairs
from ps2stream.v1 import delivery_pb2

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from ps2stream.protocol.frame import F64, I64, U32, U64

_BATCH_TAG = 0x0A  # DeliverResponse.batch


class Match(NamedTuple):
    """An object that satisfies a query. Fields that were not requested are None.

    `attributes` are values by name: int, float, str, bool, or a datetime in UTC. `payload` is
    bytes, or what the publisher's JSON says as dicts, lists and so on; None where there is none.
    """

    query_id: str
    object_id: str
    partition: int
    offset: int
    lon: float | None
    lat: float | None
    time: int | None
    text: str | None
    attributes: dict[str, AttributeScalar] | None = None
    payload: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class Gap:
    """Pairs `first` to `last` are missing. The service dropped `count` matches because nobody took
    them in time. Where `count` is 0, nobody knows how many there were, if any: they were lost with
    one of the service's logs, or a new query with `retro` came when some of the objects that were
    still valid had been dropped. Or `shed` is set: then load was shed, and the gap is the number of
    that notice alone."""

    first: int
    last: int
    count: int
    shed: ShedLoad | None = None

    def __str__(self) -> str:
        if self.shed is not None:
            return str(self.shed)
        if self.count:
            return f"{self.count} matches were dropped: nobody took them"
        return (
            "matches may be missing, and how many is not known: a log of the service was lost, or "
            "valid objects had been dropped before a query with retro came"
        )


class Matches:
    """A batch of pairs: pair i says that query `query_ids[i]` matches object number `objects[i]` of
    the object columns. `first` is the number of the first pair; the others follow on it.

    The columns of the m pairs are handles uint64[m] and objects uint32[m]. Those of the n objects
    are offsets uint64[n] in `partition` and, where requested, else None: lon and lat float64[n] in
    degrees, time int64[n] in Unix ms. Without NumPy they are of `array.array`. A `gap` comes alone,
    without pairs.
    """

    def __init__(
        self,
        batch: delivery_pb2.DeliverBatch,
        names: dict[int, str],
        gap: Gap | None,
        skipped: int = 0,
        fields: delivery_pb2.DeliverFields | None = None,
    ) -> None:
        self._batch = batch
        self._fields = fields or delivery_pb2.DeliverFields()
        self._names = names
        self._skipped = skipped
        self.gap = gap
        self.first = batch.session_seq + skipped
        self.partition = batch.partition

    def __len__(self) -> int:
        return len(self._batch.pair_handles) - self._skipped

    @property
    def last(self) -> int:
        """The number of the last pair, or of the last one of the gap."""
        return self.gap.last if self.gap is not None else self.first + len(self) - 1

    @cached_property
    def handles(self) -> U64:
        """The handle of each pair's query."""
        return make_column("Q", self._batch.pair_handles[self._skipped :])

    @cached_property
    def objects(self) -> U32:
        """The number of each pair's object."""
        return make_column("I", self._batch.pair_objects[self._skipped :])

    @cached_property
    def offsets(self) -> U64:
        """The offset of each object."""
        return make_column("Q", self._batch.object_offsets)

    @cached_property
    def lon(self) -> F64 | None:
        """The longitude of each object, None where positions were not requested."""
        return make_column("d", self._batch.lon) if self._batch.lon else None

    @cached_property
    def lat(self) -> F64 | None:
        """The latitude of each object, None where positions were not requested."""
        return make_column("d", self._batch.lat) if self._batch.lat else None

    @cached_property
    def time(self) -> I64 | None:
        """The time of each object, None where times were not requested."""
        return make_column("q", self._batch.time_ms) if self._batch.time_ms else None

    @cached_property
    def query_ids(self) -> list[str]:
        """The id of each pair's query."""
        return [self._names[handle] for handle in self._batch.pair_handles[self._skipped :]]

    @cached_property
    def object_ids(self) -> list[str]:
        """The id that its publisher gave each object."""
        return self._batch.object_ids[:]

    @cached_property
    def texts(self) -> list[str] | None:
        """The text of each object, None where texts were not requested."""
        return self._batch.text[:] or None

    @cached_property
    def attributes(self) -> list[dict[str, AttributeScalar]] | None:
        """The attributes of each object, None where they were not requested."""
        if not self._fields.attributes:
            return None
        found = self._batch.attributes
        return list(map(read_attributes, found)) if found else [{} for _ in self.object_ids]

    @cached_property
    def payloads(self) -> list[Any] | None:
        """The payload of each object, as `Match.payload`; None where they were not requested."""
        if not self._fields.payload:
            return None
        found = self._batch.payloads
        return list(map(read_payload, found)) if found else [None] * len(self.object_ids)

    def to_arrow(self) -> pa.Table:
        """Returns the pairs as a table, which needs pyarrow; see `frames.build_table`."""
        with name_missing_extra("a table of matches"):
            frames = importlib.import_module("ps2stream.client.frames")
        return cast("pa.Table", frames.build_table(self))

    def __iter__(self) -> Iterator[Match]:
        batch = self._batch
        offsets = batch.object_offsets[:]
        none = [None] * len(offsets)
        columns = zip(
            self.object_ids,
            offsets,
            batch.lon[:] or none,
            batch.lat[:] or none,
            batch.time_ms[:] or none,
            self.texts or none,
            self.attributes or none,
            self.payloads or none,
            strict=True,
        )
        rows = list(columns)
        for query_id, i in zip(self.query_ids, batch.pair_objects[self._skipped :], strict=True):
            object_id, offset, lon, lat, time, text, attributes, payload = rows[i]
            yield Match(
                query_id,
                object_id,
                self.partition,
                offset,
                lon,
                lat,
                time,
                text,
                attributes,
                payload,
            )

    def after(self, number: int) -> Matches:
        """Returns the batch without the pairs up to `number`, which must be before the last one."""
        if self.gap is not None:
            last = self.gap.last
            rest = Gap(number + 1, last, min(self.gap.count, count_pairs(number + 1, last)))
            return Matches(self._batch, self._names, rest)
        skipped = self._skipped + max(0, number + 1 - self.first)
        return Matches(self._batch, self._names, None, skipped, self._fields)


@cache
def find_numpy() -> ModuleType | None:
    """Returns NumPy, None where it is not installed."""
    try:
        return importlib.import_module("numpy")
    except ModuleNotFoundError:
        return None


def make_column(typecode: str, values: Sequence[float]) -> NDArray[Any]:
    """Returns numbers as an array of NumPy, or of the standard library where there is no NumPy. The
    type code is the one that both give the type."""
    numpy = find_numpy()
    made = (
        array(typecode, values) if numpy is None else numpy.fromiter(values, typecode, len(values))
    )
    return cast("NDArray[Any]", made)


class MatchReceiver:
    """The state of one subscription over all its streams.

    `text`, `position`, `time`, `attributes` and `payload` say which fields of an object are
    requested; `credit_batches` and `credit_bytes` how much may be under way; `cursor` how far an
    earlier subscription had come.
    Raises InvalidArgument for a cursor that is none.
    """

    def __init__(
        self,
        session: str,
        *,
        text: bool = True,
        position: bool = True,
        time: bool = True,
        attributes: bool = True,
        payload: bool = False,
        credit_batches: int = 256,
        credit_bytes: int = 1 << 20,
        cursor: bytes = b"",
    ) -> None:
        fields = delivery_pb2.DeliverFields(
            text=text, position=position, time=time, attributes=attributes, payload=payload
        )
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
            raise invalid("cursor", "is not a cursor") from None
        self._of = kept.incarnation, kept.session
        self._last = kept.session_seq
        self._handed = 0
        self._batches = 0
        self._bytes = 0
        self.missed = 0
        """The number of pairs that gaps stand for."""
        self.acked = 0
        """The last pair that was acknowledged when the stream was opened."""

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
        found = read_batch(data, self._names, self._start.fields)
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
        self.acked = started.acked


def read_batch(
    data: bytes, names: dict[int, str], fields: delivery_pb2.DeliverFields | None = None
) -> Matches:
    """Decodes a DeliverResponse into Matches and adds the new names of queries to `names`. `fields`
    are those that were requested. Raises Ps2StreamError when the message is malformed."""
    try:
        batch = delivery_pb2.DeliverResponse.FromString(data).batch
        names.update(zip(batch.new_handles, batch.new_query_ids, strict=True))
    except (ValueError, DecodeError) as error:
        raise _malformed_delivery() from error
    objects = len(batch.object_offsets)
    columns = (
        *(batch.lon, batch.lat, batch.time_ms),
        *(batch.text, batch.attributes, batch.payloads),
    )
    if (
        len(batch.pair_objects) != len(batch.pair_handles)
        or len(batch.object_ids) != objects
        or any(len(column) not in (0, objects) for column in columns)
        or max(batch.pair_objects, default=-1) >= objects
    ):
        raise _malformed_delivery()
    gap = None
    if batch.HasField("gap"):
        shed = read_shed(batch.gap.shed) if batch.gap.HasField("shed") else None
        gap = Gap(getattr(batch.gap, "from"), batch.gap.to, batch.gap.count, shed)
    return Matches(batch, names, gap, fields=fields)


def _malformed_delivery() -> Ps2StreamError:
    return Ps2StreamError("the service sent a malformed delivery")
