"""Spark Structured Streaming: a stream's posts to a service, a session's matches from one.

Both are clients, for those who have a stream in Spark already; nothing of the planner needs them.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

from ps2stream.client.attributes import dump_json, plain_attributes
from ps2stream.client.client import Client
from ps2stream.client.matches import Matches
from ps2stream.connectors.counts import ConnectorCounts
from ps2stream.connectors.deliveries import DeliveryReader
from ps2stream.connectors.pipeline_config import PostMapping
from ps2stream.connectors.pipeline_sender import PATIENCE_S, SenderOptions
from ps2stream.connectors.spark_mapping import map_posts
from ps2stream.connectors.spark_publisher import PostQuery, RowSender, start_publishing
from ps2stream.errors import FailedPrecondition, InvalidArgument, Unavailable
from ps2stream.posts.post import bad
from ps2stream.v1 import delivery_pb2

log = logging.getLogger(__name__)

MOST = 10_000
"""Most matches of a micro-batch, unless one batch of the service has more."""
COLUMNS = (
    "seq bigint, query_id string, object_id string, partition int, offset bigint, "
    "time timestamp, lon double, lat double, text string, attributes string"
)
_FIRST_MS = -62_135_596_800_000
_LAST_MS = 253_402_300_799_999
"""The first and the last time of the years 1 to 9999."""
ACCESS = ("token", "tls_ca", "tls_cert", "tls_key")

# --- posts ----------------------------------------------------------------------


def publish_stream(
    df: DataFrame,
    server: str,
    *,
    name: str,
    checkpoint: str,
    trigger: Mapping[str, Any] | None = None,
    attributes: str | None = None,
    mapping: PostMapping | None = None,
    bad_rows: str = "stop",
    mark: str = "",
    noted: Callable[[int, int, str], None] | None = None,
    **access: str,
) -> PostQuery:
    """Publishes the rows of a streaming DataFrame durably; returns the running query.

    df: lon, lat and text, perhaps id, time, until and payload, by their usual names (posts.NAMES)
    or as `mapping` has them; payload: bytes, or strings of JSON. name: of the query; a row of a df
    without ids has `NAME/EPOCH/PARTITION/ROW`. trigger: as DataStreamWriter's. attributes: the
    other columns that become attributes, as of `ps2stream publish`, if the mapping does not say;
    all that can. bad_rows: stop ends the query at a row that is no post, skip counts it, file also
    passes it to `noted`, which is called after each micro-batch with the rows published, those
    that are no posts, and these as lines of JSON. mark: of all that decides which rows are in which
    partition; what was published under another mark is not recognised. access: token, tls_ca,
    tls_cert, tls_key, as Client's; files are read by the executors.

    A micro-batch that is run again is recognised by the service, if the source repeats its rows in
    the same partitions and order, as files and Kafka do; a df with a shuffle does not. Raises
    InvalidArgument for columns that are no posts'.
    """
    mapping = mapping or PostMapping(attributes=attributes)
    mapped = map_posts(df, mapping)
    mapped.warn_left_out()
    options = SenderOptions(server, access, mapped.attributes, mapped.spec, bad_rows)
    if not mark:
        columns = repr((df.schema.simpleString(), mapping))
        mark = hashlib.sha256(columns.encode()).hexdigest()
    return start_publishing(
        mapped.posts,
        RowSender(options, mapping.dedupe_s is not None),
        name=name,
        mark=mark,
        checkpoint=checkpoint,
        trigger=trigger,
        bad_rows=bad_rows,
        noted=noted,
    )


# --- matches --------------------------------------------------------------------


class MatchSource(DataSource):
    """`spark.readStream.format("ps2stream")`: the matches of a session, as COLUMNS; attributes are
    an object in JSON.

    Options: server, session; token, tls_ca, tls_cert, tls_key, as Client's; failOnDataLoss
    (true): whether matches that the service dropped, because nobody took them in time, fail the
    query, or are logged. The driver reads, with one connection: for streams of matches that
    one process can read.
    """

    @classmethod
    def name(cls) -> str:
        return "ps2stream"

    def schema(self) -> str:
        return COLUMNS

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return MatchReader(dict(self.options))


class MatchReader(SimpleDataSourceStreamReader):
    """Reader of a session's matches, whose numbers are its offsets. The service keeps the matches
    until Spark commits them: then they are acknowledged."""

    def __init__(self, options: Mapping[str, str]) -> None:
        lowered = {name.lower(): value for name, value in options.items()}
        if "server" not in lowered:
            raise bad("server", "expected HOST:PORT of a dispatcher as an option")
        self._server = lowered["server"]
        self._session = lowered.get("session", "default")
        self._access: dict[str, Any] = {name: lowered[name] for name in ACCESS if name in lowered}
        self._strict = lowered.get("failondataloss", "true").lower() == "true"
        self._stream: _MatchStream | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_stream": None}  # an executor that repeats a batch opens its own

    def initialOffset(self) -> dict[str, Any]:
        """Returns the offset before the first match that is not acknowledged."""
        return {"incarnation": "", "seq": 0}

    def read(self, start: dict[str, Any]) -> tuple[Iterator[tuple[Any, ...]], dict[str, Any]]:
        """Returns the matches that are there now, and the offset after them."""
        try:
            batches = self._stream_at(start).take(start["seq"], MOST, 0.2)
        except FailedPrecondition:  # an executor repeated a batch meanwhile, or another reads
            batches = self._stream_at(start).take(start["seq"], MOST, 0.2)
        if not batches:
            return iter([]), start
        stream, last = self._stream_at(start), batches[-1].last
        stream.position = last
        return iter(self._build_rows(batches, last)), {
            "incarnation": stream.incarnation,
            "seq": last,
        }

    def readBetweenOffsets(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Iterator[tuple[Any, ...]]:
        """Returns matches once more, after a restart, as they were not acknowledged."""
        stream = _MatchStream(self._open_client(), self._session, end["incarnation"])
        try:
            batches: list[Matches] = []
            deadline = time.monotonic() + 60
            while not batches or batches[-1].last < end["seq"]:
                known = batches[-1].last if batches else start["seq"]
                batches += stream.take(known, MOST, 0.2)
                if time.monotonic() > deadline:
                    problem = (
                        f"matches {known + 1} to {end['seq']} of {self._session} did not arrive"
                    )
                    raise Unavailable(problem)
            return iter(self._build_rows(batches, end["seq"]))
        finally:
            stream.close()

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledges the matches up to this offset."""
        if end["seq"]:
            self._stream_at(end, anywhere=True).deliveries.done(end["seq"], 0)

    def _open_client(self) -> Client:
        return Client(self._server, timeout=PATIENCE_S, **self._access)

    def _stream_at(self, start: dict[str, Any], *, anywhere: bool = False) -> _MatchStream:
        """Returns the stream at this offset, opened anew if need be."""
        stream = self._stream
        if stream is not None and stream.is_open and (anywhere or stream.position == start["seq"]):
            return stream
        if stream is not None:
            stream.close()
        self._stream = _MatchStream(self._open_client(), self._session, start["incarnation"])
        self._stream.position = start["seq"]
        return self._stream

    def _build_rows(self, batches: list[Matches], end: int) -> list[tuple[Any, ...]]:
        out: list[tuple[Any, ...]] = []
        for batch in batches:
            if batch.gap is not None:
                gap = f"matches {batch.gap.first} to {batch.gap.last} of {self._session}"
                if self._strict:
                    raise FailedPrecondition(
                        f"the service dropped {gap}; set failOnDataLoss=false to continue without "
                        "them"
                    )
                log.warning("the service dropped %s", gap)
                continue
            names = (batch.query_ids, batch.objects.tolist(), count(batch.first))
            times = _list_times(batch.time)
            lon, lat, text = batch.lon, batch.lat, batch.texts
            assert lon is not None
            assert lat is not None
            assert text is not None
            ids, offsets = batch.object_ids, batch.offsets.tolist()
            more = [dump_json(plain_attributes(values)) for values in batch.attributes or ()]
            objects = [
                (ids[i], batch.partition, offsets[i], times[i], x, y, text[i], more[i])
                for i, (x, y) in enumerate(zip(lon.tolist(), lat.tolist(), strict=True))
            ]
            rows = zip(*names, strict=False)
            out += [(n, query, *objects[i]) for query, i, n in rows if n <= end]
        return out


def _list_times(time_ms: Any) -> list[Any]:
    """Returns times in Unix milliseconds, int64[n], as datetimes, and None for those beyond their
    years: a publisher may send any 64-bit time."""
    is_far = (time_ms < _FIRST_MS) | (time_ms > _LAST_MS)
    times: list[Any] = pa.array(time_ms, pa.timestamp("ms", "UTC"), mask=is_far).to_pylist()
    return times


class _MatchStream:
    """A subscription that is acknowledged by hand. `position`: the last match that was read.
    Raises FailedPrecondition when the session is not the one of `incarnation`."""

    def __init__(self, client: Client, session: str, incarnation: str) -> None:
        self._client = client
        try:
            subscription = client.subscribe(session)
            place = delivery_pb2.Cursor.FromString(subscription.cursor)
            self.incarnation = f"{place.incarnation:016x}.{place.session}"
            if incarnation not in ("", self.incarnation):
                raise FailedPrecondition(
                    "the checkpoint belongs to another service, or the data of the service was "
                    "created anew"
                )
        except BaseException:
            client.close()
            raise
        self.position = 0
        self.is_open = True
        counts = ConnectorCounts("taken", "done", "waiting", "missed")
        self.deliveries = DeliveryReader(subscription, counts).__enter__()

    def take(self, known: int, most: int, wait: float) -> list[Matches]:
        """Returns matches after match `known`. Acknowledged ones are not there any more."""
        try:
            found = self.deliveries.take(most, wait)
        except (FailedPrecondition, Unavailable, InvalidArgument):
            self.close()  # opened anew by the next read
            raise
        return [b if b.first > known else b.after(known) for b in found if b.last > known]

    def close(self) -> None:
        """Closes the stream; what was not acknowledged comes again on the next one."""
        self.is_open = False
        self.deliveries.__exit__(None, None, None)
        self._client.close()
