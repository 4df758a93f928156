"""Kafka to service: what a consumer group reads is published, then its offsets are committed."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ps2stream.client.client import Client
from ps2stream.connectors.counts import ConnectorCounts, CountsReporter
from ps2stream.connectors.kafka_rejected import RejectedRecords
from ps2stream.connectors.mapping import RecordFields
from ps2stream.connectors.offsets import OffsetFlight, Partition
from ps2stream.connectors.publisher import SourcePublisher
from ps2stream.errors import InvalidArgument, Unavailable, invalid
from ps2stream.extras import import_optional
from ps2stream.kafka import (
    KafkaErrors,
    check_topic,
    make_handle,
    read_config,
    translate_error,
)
from ps2stream.limits import ID_BYTES

log = logging.getLogger(__name__)

OURS = ("bootstrap.servers", "group.id", "enable.auto.commit", "enable.auto.offset.store")
IN_FLIGHT = 4
COMMIT_S = 0.1
PAUSE_S = 1.0
"""Time that the service may take before partitions are paused, which drops what was read ahead."""
DRAIN_S = 15.0
"""Time that what is under way may take when partitions or the process must go."""


@dataclass(frozen=True, slots=True)
class KafkaSourceOptions:
    """Options of a source. bad: what becomes of records that are no posts: `stop` ends with an
    error, `skip` counts them, `topic` sends them to `dead_letters`. batch: records published at
    once."""

    bootstrap: str
    topic: str
    group: str
    config: Path | None = None
    bad: Literal["stop", "skip", "topic"] = "stop"
    dead_letters: str = ""
    batch: int = 2000
    start: Literal["earliest", "latest"] = "earliest"


class KafkaSource:
    """Reads until `stop` is set; then what is under way is finished and committed.

    Every record is published at least once. After a crash, or when partitions go to another
    process before the service has answered, those whose offsets were not committed are
    published again, with the same object ids.
    """

    def __init__(
        self,
        client: Client,
        fields: RecordFields,
        options: KafkaSourceOptions,
        counts: ConnectorCounts,
        teller: CountsReporter,
    ) -> None:
        self._kafka = import_optional("confluent_kafka", "A source of Kafka records")
        self._fields = fields
        self._options = options
        self._counts = counts
        self._teller = teller
        self._abandon = threading.Event()
        self._publisher = SourcePublisher(client, counts, self._abandon)
        self._flight = OffsetFlight()
        self._paused: bool | None = None  # None: unknown, as only some may be
        self._complaints = KafkaErrors()
        self._committed_at = 0.0
        config = read_config(options.config, OURS) | {"bootstrap.servers": options.bootstrap}
        self._config = config
        if options.dead_letters == options.topic:
            raise invalid("dead_letter_topic", "must be another topic than the one that is read")
        if options.bad == "topic":
            self._dead_letters = RejectedRecords(self._kafka.Producer, config, options.dead_letters)

    def run(self, stop: threading.Event, ready: Callable[[int], None]) -> None:
        """Runs the source; calls `ready` with the number of partitions once the topic is there.
        Raises what no retry can help."""
        options = self._options
        ours = {"group.id": options.group, "enable.auto.commit": False}
        defaults = {
            "auto.offset.reset": options.start,
            "partition.assignment.strategy": "cooperative-sticky",
        }
        consumer = make_handle(
            self._kafka.Consumer,
            defaults
            | self._config
            | ours
            | {"on_commit": self._on_commit, "error_cb": self._complaints},
        )
        with ExitStack() as stack:
            stack.callback(consumer.close)
            partitions = check_topic(consumer, options.topic, options.bootstrap)
            if options.bad == "topic":
                self._dead_letters.check(options.bootstrap)
            pool = stack.enter_context(ThreadPoolExecutor(IN_FLIGHT, "ps2stream-publish"))
            stack.callback(self._abandon.set)  # before the pool waits for its threads
            consumer.subscribe(
                [options.topic],
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
            ready(partitions)
            while not stop.is_set():
                self._read_once(consumer, pool)
            self._drain_flight(consumer)

    def _read_once(self, consumer: Any, pool: ThreadPoolExecutor) -> None:
        """Reads once, hands the records on, and commits what is done."""
        if len(self._flight) >= IN_FLIGHT and not self._paused:
            wait([self._flight.first()], PAUSE_S)
            self._flight.advance()
        full = len(self._flight) >= IN_FLIGHT
        self._set_paused(consumer, full)
        if full:  # paused: this keeps the membership of the group, and returns nothing
            wait([self._flight.first()], 0.1)
            messages = consumer.consume(1, 0.0)
        else:
            messages = consumer.consume(self._options.batch, 0.02 if len(self._flight) else 0.2)
        if (failed := self._complaints.failed) is not None:
            raise failed
        good = [m for m in messages if self._is_record(m)]
        if good:
            self._counts.add("taken", len(good))
            ends = _find_ends(good)
            self._flight.add(pool.submit(self._publish_records, good, ends), ends)
        self._flight.advance()
        self._commit_due(consumer)
        if self._teller.due():
            self._measure_lag(consumer)
            self._teller.tell()

    def _is_record(self, message: Any) -> bool:
        if (error := message.error()) is None:
            return True
        if (found := translate_error(error)) is not None:
            raise found
        if error.code() != self._kafka.KafkaError._PARTITION_EOF:
            self._complaints(error)
        return False

    def _publish_records(
        self, messages: list[Any], ends: dict[Partition, int]
    ) -> InvalidArgument | None:
        """Publishes records on a thread of its own, and puts bad ones where they belong. Returns
        the error of one that ends the connector; `ends` are then those of the records before
        it."""
        found = self._fields.convert([m.value() for m in messages], list(map(_make_id, messages)))
        if found.bad and self._options.bad == "stop":
            first = min(found.bad)
            ends.clear()
            if first:
                self._publish_records(messages[:first], ends)
                ends.update(_find_ends(messages[:first]))
            return _refusal_error(messages[first], found.bad[first])
        bad = found.bad
        if len(found.posts):
            for row, reason in self._publisher.publish(found.posts):
                bad[found.rows[row]] = reason
        if bad:
            self._put_away_records([(messages[i], reason) for i, reason in sorted(bad.items())])
            self._counts.add("bad", len(bad))
        self._counts.add("done", len(messages) - len(bad))
        return None

    def _put_away_records(self, bad: list[tuple[Any, str]]) -> None:
        if self._options.bad == "stop":  # only the service found it wrong
            raise _refusal_error(*bad[0])
        if self._options.bad == "skip":
            for message, reason in bad[:10]:
                log.warning("skipped record %s: %s", _format_place(message), reason)
            return
        self._dead_letters.send([(m, reason, _format_place(m)) for m, reason in bad], self._abandon)

    # --- offsets ----------------------------------------------------------------

    def _commit_due(self, consumer: Any) -> None:
        now = time.monotonic()
        if now - self._committed_at >= COMMIT_S and (due := self._flight.take()):
            self._committed_at = now
            consumer.commit(offsets=self._build_offsets(due), asynchronous=True)

    def _commit_now(self, consumer: Any) -> None:
        if due := self._flight.take():
            try:
                consumer.commit(offsets=self._build_offsets(due), asynchronous=False)
            except self._kafka.KafkaException as error:
                raise Unavailable(
                    "offsets were not committed, so their records will be read again: "
                    f"{error.args[0].str()}"
                ) from None

    def _build_offsets(self, ends: dict[Partition, int]) -> list[Any]:
        return [self._kafka.TopicPartition(t, p, end) for (t, p), end in ends.items()]

    def _on_commit(self, error: Any, partitions: list[Any]) -> None:
        failed = {(p.topic, p.partition): p.offset for p in partitions if error or p.error}
        if failed:
            log.warning("offsets were not committed: %s", error or partitions[0].error)
            self._flight.put_back(failed)

    def _on_assign(self, _: Any, partitions: list[Any]) -> None:
        log.info("partitions assigned: %s", [p.partition for p in partitions])
        self._paused = None
        self._flight.gain((p.topic, p.partition) for p in partitions)

    def _on_revoke(self, consumer: Any, partitions: list[Any]) -> None:
        log.info("partitions revoked: %s", [p.partition for p in partitions])
        try:
            try:
                self._await_flight()
            finally:
                self._commit_now(consumer)
        except Exception as error:  # noqa: BLE001  # within a callback; raised by the loop
            self._complaints.failed = self._complaints.failed or error
        self._flight.forget((p.topic, p.partition) for p in partitions)

    def _on_lost(self, _: Any, partitions: list[Any]) -> None:
        log.warning("partitions lost: %s", [p.partition for p in partitions])
        self._flight.forget((p.topic, p.partition) for p in partitions)

    # --- flow -------------------------------------------------------------------

    def _set_paused(self, consumer: Any, wanted: bool) -> None:
        if wanted == self._paused:
            return
        (consumer.pause if wanted else consumer.resume)(consumer.assignment())
        self._paused = wanted

    def _await_flight(self) -> None:
        """Waits until what is under way is done, DRAIN_S at most."""
        deadline = time.monotonic() + DRAIN_S
        while len(self._flight) and time.monotonic() < deadline:
            wait([self._flight.first()], deadline - time.monotonic())
            self._flight.advance()

    def _drain_flight(self, consumer: Any) -> None:
        self._await_flight()
        if len(self._flight):
            log.warning(
                "%d batches were not answered; their records will be read again", len(self._flight)
            )
        try:
            self._commit_now(consumer)
        except Unavailable as error:
            log.warning("%s", error)
        self._measure_lag(consumer)

    def _measure_lag(self, consumer: Any) -> None:
        """Measures the lag that brokers reported with what was fetched, without a call."""
        assigned = consumer.assignment()
        lag = 0
        for at in consumer.position(assigned):
            low, high = consumer.get_watermark_offsets(at, cached=True)
            lag += max(0, high - max(at.offset, low)) if high >= 0 else 0
        self._counts.set("lag", lag)
        self._counts.set("assigned", len(assigned))
        bad = self._counts["bad"]
        self._counts.set("waiting", self._counts["taken"] - self._counts["done"] - bad)


def _format_place(message: Any) -> str:
    return f"{message.topic()}/{message.partition()}/{message.offset()}"


def _find_ends(messages: list[Any]) -> dict[Partition, int]:
    """Returns the offset after the last message of each partition; messages are in order."""
    return {(m.topic(), m.partition()): m.offset() + 1 for m in messages}


def _refusal_error(message: Any, reason: str) -> InvalidArgument:
    return invalid(f"record {_format_place(message)}", reason)


def _make_id(message: Any) -> str:
    """Returns the id of a record without one: its place, which never changes."""
    place = _format_place(message)
    if len(place) <= ID_BYTES:
        return place
    topic = hashlib.sha256(message.topic().encode()).hexdigest()[:32]
    return f"{topic}/{message.partition()}/{message.offset()}"
