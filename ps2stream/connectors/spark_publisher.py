"""Publishing the micro-batches of a query of Spark's: by its rows, partition by partition."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from ps2stream import errors
from ps2stream.connectors.pipeline_sender import (
    PATIENCE_S,
    PartitionResult,
    SenderOptions,
    publish_partition,
)
from ps2stream.connectors.spark_mapping import KEY, describe_error
from ps2stream.errors import InvalidArgument, Ps2StreamError, Unavailable
from ps2stream.posts.post import bad

RESULTS = "published bigint, bad bigint, letters string, error_kind string, error string"


class EpochIdentity(NamedTuple):
    """By what a micro-batch is known: its number, the producer, of which each partition is one of
    its own, and what the ids of rows without one begin with."""

    epoch: int
    producer: str
    prefix: str


SendBatch = Callable[[DataFrame, EpochIdentity], Sequence[PartitionResult]]
"""Publishes a micro-batch on the executors, and says what became of its partitions."""


def start_publishing(
    stream: DataFrame,
    send: SendBatch,
    *,
    name: str,
    mark: str,
    checkpoint: str,
    trigger: Mapping[str, Any] | None,
    bad_rows: str,
    noted: Callable[[int, int, str], None] | None,
) -> PostQuery:
    """Starts the query that passes the micro-batches of `stream` to `send`; the others are as of
    publish_stream. Raises InvalidArgument for what Spark refuses."""
    publisher = EpochPublisher(name, mark, bad_rows, send, noted)
    writer = stream.writeStream.queryName(name).option("checkpointLocation", checkpoint)
    if trigger is not None:
        writer = writer.trigger(**trigger)
    try:
        query = writer.foreachBatch(publisher.publish).start()
    except PySparkException as error:
        raise bad("pipeline", describe_error(error)) from None
    publisher.begin(query.id)
    return PostQuery(query, publisher)


class PostQuery:
    """A running query that publishes posts: Spark's own, in whose errors the service's are."""

    def __init__(self, query: StreamingQuery, publisher: EpochPublisher) -> None:
        self.query = query
        self._publisher = publisher

    def __getattr__(self, name: str) -> Any:
        return getattr(self.query, name)

    def pop_rows(self, epoch: int) -> int:
        """Returns how many rows a micro-batch had that has ended, once."""
        return self._publisher.rows.pop(epoch, 0)

    def awaitTermination(self, timeout: float | None = None) -> bool:
        """Waits for the end, at most `timeout` seconds; returns whether it has come. Raises what
        ended the query: the service's error, InvalidArgument for a row that is no post,
        Ps2StreamError for an error of Spark's."""
        try:
            return bool(self.query.awaitTermination(timeout)) or timeout is None  # type: ignore[arg-type]
        except PySparkException as error:
            failure = self._publisher.failure
            raise failure or Ps2StreamError(f"Spark: {describe_error(error)}") from None


class EpochPublisher:
    """Publishes micro-batches, from the driver. rows: of each that has ended and is not counted
    yet, posts or not, by its number."""

    def __init__(
        self,
        name: str,
        mark: str,
        bad_rows: str,
        send: SendBatch,
        noted: Callable[[int, int, str], None] | None,
    ) -> None:
        self._name = name
        self._mark = mark
        self._bad_rows = bad_rows
        self._send = send
        self._noted = noted
        self._producer = ""
        self._has_begun = threading.Event()
        self.rows: dict[int, int] = {}
        self.failure: Exception | None = None

    def begin(self, query_id: str) -> None:
        """Lets the first micro-batch begin. The producers have a mark of the query, which is that
        of its checkpoint, so that a new checkpoint counts from 0 under other names."""
        mark = hashlib.sha256(f"{query_id} {self._mark}".encode()).hexdigest()[:16]
        self._producer = f"{self._name}-{mark}"
        self._has_begun.set()

    def publish(self, batch: DataFrame, epoch: int) -> None:
        """Publishes a micro-batch; Spark calls this."""
        if not self._has_begun.wait(PATIENCE_S):
            raise Unavailable("the query did not begin")
        identity = EpochIdentity(epoch, self._producer, f"{self._name}/{epoch}")
        results = self._send(batch, identity)
        try:
            self._note_results(results)
        except Exception as error:
            self.failure = error
            raise
        self.rows[epoch] = sum(r.published + r.bad for r in results)
        for old in sorted(self.rows)[:-100]:  # which nobody has asked for
            self.rows.pop(old, None)

    def _note_results(self, results: Sequence[PartitionResult]) -> None:
        letters = "".join(r.letters for r in results)
        wrong = sum(r.bad for r in results)
        if self._noted is not None:
            kept = letters if self._bad_rows == "file" else ""
            self._noted(sum(r.published for r in results), wrong, kept)
        for result in results:
            if result.error_kind:
                kind = getattr(errors, result.error_kind, Ps2StreamError)
                if kind is InvalidArgument:
                    raise bad("publish", result.error)
                raise kind(result.error)
        if wrong and self._bad_rows == "stop":
            first = json.loads(letters.splitlines()[0])
            place = f"batch {first['batch']} {first['producer']} row {first['row']}"
            raise bad(
                place, f"{first['reason']}; published nothing from there on in this partition"
            )


class RowSender:
    """Publishes micro-batches of rows that Spark has read, by their partitions."""

    def __init__(self, options: SenderOptions, is_shuffled: bool) -> None:
        self._options = options
        self._is_shuffled = is_shuffled

    def __call__(self, batch: DataFrame, identity: EpochIdentity) -> list[PartitionResult]:
        if self._is_shuffled:
            batch = batch.sortWithinPartitions(KEY).drop(KEY)
        send = _PartitionSender(self._options, identity)
        return [PartitionResult(*row) for row in batch.mapInArrow(send, RESULTS).collect()]


class _PartitionSender:
    """Publishes a partition, on an executor."""

    def __init__(self, options: SenderOptions, identity: EpochIdentity) -> None:
        self._options = options
        self._identity = identity

    def __call__(self, parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        number = context.partitionId() if context is not None else 0
        epoch, producer, prefix = self._identity
        found = publish_partition(
            parts, self._options, f"{producer}/{number}", epoch, f"{prefix}/{number}/"
        )
        yield pa.RecordBatch.from_pydict({k: [v] for k, v in found._asdict().items()})
