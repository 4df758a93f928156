"""Service to Kafka: a session's matches and how far they are, written in one transaction."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ps2stream.client.client import Client
from ps2stream.client.matches import Matches
from ps2stream.connectors.counts import ConnectorCounts, CountsReporter
from ps2stream.connectors.deliveries import DeliveryReader, encode_items
from ps2stream.connectors.kafka_cursor import CursorTopic
from ps2stream.connectors.retry import ConnectorAbandoned, RetryBackoff
from ps2stream.errors import FailedPrecondition, Ps2StreamError, invalid
from ps2stream.extras import import_optional
from ps2stream.kafka import (
    WAIT_S,
    KafkaErrors,
    check_topic,
    make_handle,
    read_config,
    translate_error,
)
from ps2stream.v1 import delivery_pb2

log = logging.getLogger(__name__)

OURS = ("bootstrap.servers", "group.id", "transactional.id", "enable.idempotence", "acks")
NAME = re.compile("[A-Za-z0-9._-]{1,200}")
MOST = 5000
"""Most matches of a transaction, unless one batch has more."""
DRAIN_S = 15.0


@dataclass(frozen=True, slots=True)
class KafkaSinkOptions:
    """Options of a sink. name: of this sink, which keeps its cursor under it; of two that run
    with one name, the newer ends the older."""

    bootstrap: str
    topic: str
    session: str
    name: str
    config: Path | None = None


class KafkaSink:
    """Writes until `stop` is set. Every match is in the topic once, for readers of what was
    committed (isolation.level=read_committed), whatever is killed: its place in the session is
    written in the same transaction, to the topic `NAME-cursor`. Raises InvalidArgument."""

    def __init__(
        self,
        client: Client,
        options: KafkaSinkOptions,
        counts: ConnectorCounts,
        teller: CountsReporter,
    ) -> None:
        self._kafka = import_optional("confluent_kafka", "A sink to Kafka")
        if not NAME.fullmatch(options.name):
            problem = f"expected letters, digits, dots, _ and -, got {options.name!r}"
            raise invalid("id", problem)
        self._client = client
        self._options = options
        self._counts = counts
        self._teller = teller
        self._backoff = RetryBackoff(0.1, 5.0)
        self._complaints = KafkaErrors()
        self._deadline = float("inf")
        common: dict[str, Any] = {
            **read_config(options.config, OURS),
            "bootstrap.servers": options.bootstrap,
            "error_cb": self._complaints,
        }
        sure = {"transactional.id": options.name, "enable.idempotence": True, "acks": "all"}
        self._producer = make_handle(self._kafka.Producer, {"linger.ms": 5} | common | sure)
        self._place = CursorTopic(self._kafka, common, f"{options.name}-cursor")

    def run(self, stop: threading.Event, ready: Callable[[int], None]) -> None:
        """Runs the sink; calls `ready` with the number of the last match that is there already.
        Raises what no retry can help."""
        options = self._options
        check_topic(self._producer, options.topic, options.bootstrap)
        self._place.make(options.bootstrap)
        self._repeat_call(lambda: self._producer.init_transactions(WAIT_S), stop)
        cursor = self._place.read()
        subscription = self._client.subscribe(options.session, payload=True, cursor=cursor)
        with DeliveryReader(subscription, self._counts) as deliveries:
            ready(delivery_pb2.Cursor.FromString(cursor).session_seq)
            try:
                self._write_deliveries(deliveries, stop)
            except ConnectorAbandoned:
                log.warning(
                    "Kafka did not accept the matches in flight; they are written again at the "
                    "next start"
                )

    def _write_deliveries(self, deliveries: DeliveryReader, stop: threading.Event) -> None:
        while not stop.is_set():
            batches = deliveries.take(MOST, 0.2)
            if batches:
                self._write_batches(batches, deliveries.cursor_at(batches[-1].last), stop)
                deliveries.done(batches[-1].last, sum(map(len, batches)))
            else:
                self._producer.poll(0)
            if self._complaints.failed is not None:
                raise self._complaints.failed
            if self._teller.due():
                self._teller.tell()

    def _write_batches(self, batches: list[Matches], cursor: bytes, stop: threading.Event) -> None:
        """Writes one transaction, again and again until it is committed."""
        attempt = 0
        while True:
            try:
                self._run_transaction(batches, cursor, stop)
                return
            except self._kafka.KafkaException as error:
                found = error.args[0]
                if not found.txn_requires_abort():
                    raise self._build_fatal(found) from None
                log.warning("Kafka: repeating the transaction: %s", found.str())
            self._repeat_call(lambda: self._producer.abort_transaction(WAIT_S), stop)
            self._wait_to_retry(attempt, stop)
            attempt += 1

    def _run_transaction(
        self, batches: list[Matches], cursor: bytes, stop: threading.Event
    ) -> None:
        self._producer.begin_transaction()
        session = self._options.session.encode()
        for batch in batches:
            for number, query_id, body in encode_items(batch):
                headers = [("ps2stream-seq", b"%d" % number), ("ps2stream-session", session)]
                key = None if query_id is None else query_id.encode()
                self._produce_message(self._options.topic, body.encode(), key, headers, stop)
        self._produce_message(self._place.name, cursor, b"cursor", None, stop)
        self._repeat_call(lambda: self._producer.commit_transaction(WAIT_S), stop, abort=True)

    def _produce_message(
        self, topic: str, value: bytes, key: bytes | None, headers: Any, stop: threading.Event
    ) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, headers=headers)
                return
            except BufferError:  # the library's queue is full
                self._producer.poll(0.1)
                self._check_deadline(stop)

    def _repeat_call(
        self, call: Callable[[], object], stop: threading.Event, *, abort: bool = False
    ) -> None:
        """Calls until it works, as long as trying again is sensible. With `abort`, the error that
        asks for the transaction's end is raised as it is."""
        attempt = 0
        while True:
            try:
                call()
                return
            except self._kafka.KafkaException as error:
                found = error.args[0]
                if abort and found.txn_requires_abort():
                    raise
                if found.fatal() or not found.retriable():
                    raise self._build_fatal(found) from None
                log.warning("Kafka: retrying: %s", found.str())
            self._wait_to_retry(attempt, stop)
            attempt += 1

    def _wait_to_retry(self, attempt: int, stop: threading.Event) -> None:
        self._check_deadline(stop)
        self._counts.add("retries")
        if self._teller.due():
            self._teller.tell()
        pause = self._backoff.pause(attempt)
        (time.sleep if stop.is_set() else stop.wait)(min(pause, 1.0) if stop.is_set() else pause)

    def _check_deadline(self, stop: threading.Event) -> None:
        """Raises Abandoned DRAIN_S after the stop was requested: what is under way then comes again
        next time."""
        if not stop.is_set():
            return
        self._deadline = min(self._deadline, time.monotonic() + DRAIN_S)
        if time.monotonic() > self._deadline:
            raise ConnectorAbandoned

    def _build_fatal(self, error: Any) -> Ps2StreamError:
        if error.code() in (
            self._kafka.KafkaError._FENCED,
            self._kafka.KafkaError.INVALID_PRODUCER_EPOCH,
        ):
            return FailedPrecondition(f"another sink runs with the name {self._options.name}")
        return translate_error(error) or FailedPrecondition(f"Kafka: {error.str()}")
