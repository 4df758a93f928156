"""The one owner that may write a log in a topic, by transactions.

Kafka keeps one producer a transactional id: the next one that begins has the transaction of the one
before aborted, and whatever that still sends is refused. A transaction is committed or aborted as a
whole, and those who read see what was committed.

A log has two ids, whose producers take turns, since Kafka lets a producer begin again only when all
replicas have the end of its transaction. A new owner takes both before it reads where the log ends,
and the first of them always writes first: of several who open a log at a time, one writes at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ps2stream.errors import StoreFailed, Unavailable
from ps2stream.store.kafka_chunks import MESSAGE
from ps2stream.store.kafka_cluster import KafkaCluster

_TURNS = 2
_SLOW_S = 2.0
"""Seconds without an answer after which the log takes nothing more for now."""
_RETRY_S = 0.2
_LOOK_S = 0.5
_FENCED = (
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
)
_CONFIG = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 0,
    "message.max.bytes": MESSAGE,
    "queue.buffering.max.kbytes": 1 << 20,
}


class KafkaLogWriter:
    """The owner of the log of this name; one thread at a time."""

    def __init__(self, cluster: KafkaCluster, name: str, patience_s: float) -> None:
        """Fences the owner before. A transaction may take `patience_s`. Raises Unavailable."""
        self._cluster = cluster
        self._topic = cluster.topic(name)
        self._patience_s = patience_s
        self._failed = ""
        self._offsets: list[int] = []  # of the messages of a transaction
        self._is_committing = False  # and whether its end may have been decided
        patience_ms = int(patience_s * 1000)
        # A transaction of a process that has died holds up nobody for longer than this.
        limits = {"transaction.timeout.ms": 2 * patience_ms, "message.timeout.ms": patience_ms}
        self._producers = [
            cluster.make(Producer, _CONFIG | limits | {"transactional.id": f"{self._topic}.{turn}"})
            for turn in range(_TURNS)
        ]
        give_up = time.monotonic() + patience_s
        with ThreadPoolExecutor(_TURNS) as pool:
            calls = [
                pool.submit(self._retry, p.init_transactions, give_up) for p in self._producers
            ]
        with cluster.translate_errors(f"{self} cannot be opened"):
            for call in calls:
                call.result()
        self._turn = 0

    def __str__(self) -> str:
        return f"topic {self._topic}"

    def close(self) -> None:
        """Lets nothing more be written; idempotent."""
        self._failed = self._failed or "it is closed"
        for producer in self._producers:
            producer.purge()

    def write(
        self, messages: Sequence[tuple[bytes, bytes]], report_delay: Callable[[str], None]
    ) -> list[int]:
        """Writes messages (key, value) durably, or none of them; returns their offsets. Calls
        `report_delay` with the reason when that takes long.

        Raises Unavailable when none was written, and StoreFailed, for good, when that is unknown
        or another process has taken the log over.
        """
        give_up = time.monotonic() + self._patience_s
        while True:
            if self._failed:
                raise StoreFailed(f"{self._cluster}, {self}: {self._failed}")
            try:
                return self._write_once(messages, give_up, report_delay)
            except (KafkaException, SystemError) as error:
                found = _find_error(error)
                problem = f"{self._cluster}, {self} cannot be written: {found.str()}"
                if self._is_committing or not found.txn_requires_abort():
                    raise self._record_failure(found) from error
                try:
                    self._abort(give_up)
                except KafkaException as other:
                    raise self._record_failure(other.args[0]) from other
                if time.monotonic() > give_up:
                    raise Unavailable(problem) from error
                report_delay(problem)
                time.sleep(_RETRY_S)
            except BaseException as error:
                self._failed = str(error) or type(error).__name__
                raise

    def _write_once(
        self,
        messages: Sequence[tuple[bytes, bytes]],
        give_up: float,
        report_delay: Callable[[str], None],
    ) -> list[int]:
        producer, begun = self._producers[self._turn], time.monotonic()
        self._offsets, self._is_committing = [], False
        producer.begin_transaction()
        for key, value in messages:
            while True:
                try:
                    producer.produce(
                        self._topic, value, key, partition=0, on_delivery=self._note_delivery
                    )
                    break
                except BufferError:
                    producer.poll(_LOOK_S)
        while producer.flush(_LOOK_S):
            if time.monotonic() > begun + _SLOW_S:
                report_delay(f"{self._cluster}, {self}: no answer for {_SLOW_S:g} s or more")
        # Where a message was not delivered, Kafka is not asked to commit; else it may have done so.
        self._is_committing = len(self._offsets) == len(messages)
        self._retry(producer.commit_transaction, give_up)
        self._turn = (self._turn + 1) % _TURNS
        return self._offsets

    def _note_delivery(self, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is None and offset is not None:
            self._offsets.append(offset)

    def _abort(self, give_up: float) -> None:
        give_up = max(give_up, time.monotonic() + _SLOW_S)
        self._retry(self._producers[self._turn].abort_transaction, give_up)

    @staticmethod
    def _retry(call: Callable[[float], None], give_up: float) -> None:
        """Calls again while the error says that the same call may succeed."""
        while True:
            try:
                call(_SLOW_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > give_up:
                    raise
                time.sleep(_RETRY_S)

    def _record_failure(self, error: KafkaError) -> StoreFailed:
        fenced = error.code() in _FENCED
        self._failed = "another process has taken it over" if fenced else error.str()
        return StoreFailed(f"{self._cluster}, {self} cannot be written: {self._failed}")


def _find_error(error: BaseException) -> KafkaError:
    """Returns the error of Kafka that a call was ended by. Raises what is none.

    confluent-kafka raises a fatal one amid its call-backs, so that the next of them turns it into a
    SystemError.
    """
    cause = error if isinstance(error, KafkaException) else error.__cause__
    if not isinstance(cause, KafkaException):
        raise error
    found: KafkaError = cause.args[0]
    return found
