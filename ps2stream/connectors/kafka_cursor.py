"""The cursor of a sink, in a compacted topic of its own, written in its transactions.

Not offsets of a consumer group: librdkafka 2.16's send_offsets_to_transaction may never return
once the group's coordinator was restarted, whatever time it is given.
"""

from __future__ import annotations

import time
from typing import Any

from ps2stream.errors import FailedPrecondition, Unavailable
from ps2stream.kafka import (
    LOOK_S,
    WAIT_S,
    check_topic,
    is_news_to_come,
    make_handle,
    translate_error,
)

TAIL = 100
"""Offsets that are searched first for the last record that was committed; then all are."""
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.1",
}


class CursorTopic:
    """The topic `name`, made where it is missing."""

    def __init__(self, kafka: Any, config: dict[str, Any], name: str) -> None:
        self._kafka = kafka
        self._config = config
        self.name = name

    def make(self, bootstrap: str) -> None:
        """Makes the topic if need be, and waits until brokers know it: they answer for its making
        before all of them do. Raises FailedPrecondition where that is not possible."""
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = make_handle(AdminClient, self._config)
        [answer] = admin.create_topics([NewTopic(self.name, 1, -1, config=SETTINGS)]).values()
        try:
            answer.result(2 * WAIT_S)
        except self._kafka.KafkaException as error:
            found = error.args[0]
            if found.code() != self._kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                problem = (
                    f"topic {self.name}, which stores the position of the sink, cannot be "
                    f"created: {found.str()}"
                )
                raise translate_error(found) or FailedPrecondition(problem) from None
        check_topic(admin, self.name, bootstrap, WAIT_S)

    def read(self) -> bytes:
        """Returns the last value that was committed; empty without one. To be called after the
        producer's init_transactions, which ends what an earlier run left open. Raises
        Unavailable."""
        ours = {
            "group.id": self.name,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
        consumer = make_handle(self._kafka.Consumer, self._config | ours)
        try:
            part = self._kafka.TopicPartition(self.name, 0)
            low, high = self._find_range(consumer, part)
            begin = max(low, high - TAIL)
            found = self._read_last(consumer, begin)
            return found if found or begin == low else self._read_last(consumer, low)
        except self._kafka.KafkaException as error:
            raise self._read_error(error.args[0]) from None
        finally:
            consumer.close()

    def _find_range(self, consumer: Any, part: Any) -> tuple[int, int]:
        """Returns the first offset and that after the last one; it may be another broker that is
        asked than the one which knew the topic."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                low, high = consumer.get_watermark_offsets(part, WAIT_S)
                return low, high
            except self._kafka.KafkaException as error:
                if time.monotonic() >= deadline or not is_news_to_come(error.args[0]):
                    raise
            time.sleep(LOOK_S)

    def _read_last(self, consumer: Any, begin: int) -> bytes:
        consumer.assign([self._kafka.TopicPartition(self.name, 0, begin)])
        deadline = time.monotonic() + 2 * WAIT_S
        found = b""
        while time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.5):
                if (error := message.error()) is None:
                    found = message.value()
                elif error.code() == self._kafka.KafkaError._PARTITION_EOF:
                    return found
                elif not is_news_to_come(error):
                    raise self._read_error(error)
        raise Unavailable(f"Kafka: topic {self.name} was not read to its end")

    def _read_error(self, error: Any) -> Exception:
        return translate_error(error) or Unavailable(f"Kafka: topic {self.name}: {error.str()}")
