"""A Kafka topic for records that are no posts: each unchanged, with its place and the reason."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from ps2stream.connectors.retry import ConnectorAbandoned
from ps2stream.errors import FailedPrecondition, Unavailable
from ps2stream.kafka import check_topic, make_handle

MOST_BYTES = 100_000_000
"""Largest record to send, unless configured: brokers decide what is too large."""


class RejectedRecords:
    """A producer to `topic`. Safe for threads."""

    def __init__(self, kind: Any, config: dict[str, Any], topic: str) -> None:
        sure = {"acks": "all", "enable.idempotence": True}
        self._producer = make_handle(kind, {"message.max.bytes": MOST_BYTES} | config | sure)
        self._topic = topic

    def check(self, bootstrap: str) -> None:
        """Checks that the topic is there; see kafka_config.check_topic."""
        check_topic(self._producer, self._topic, bootstrap)

    def send(self, bad: Sequence[tuple[Any, str, str]], abandon: threading.Event) -> None:
        """Sends messages, each with what is wrong and where it was; returns once the brokers have
        them all. Raises Unavailable, FailedPrecondition for one that they refuse for good, and
        Abandoned once that is set."""
        waiting = [self._begin_sending(*record, abandon) for record in bad]
        while not all(future.done() for future in waiting):
            self._producer.poll(0.1)
            if abandon.is_set():
                raise ConnectorAbandoned
        for future in waiting:
            future.result()

    def _begin_sending(
        self, message: Any, reason: str, place: str, abandon: threading.Event
    ) -> Future[None]:
        future: Future[None] = Future()

        def answered(error: Any, _: Any) -> None:
            if error is None:
                future.set_result(None)
            else:
                kind = Unavailable if error.retriable() else FailedPrecondition
                future.set_exception(kind(f"dead letter of {place}: {error.str()}"))

        headers = [
            *(message.headers() or ()),
            ("ps2stream-error", reason.encode()),
            ("ps2stream-origin", place.encode()),
        ]
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    message.value(),
                    message.key(),
                    headers=headers,
                    on_delivery=answered,
                )
                return future
            except BufferError:
                self._producer.poll(0.1)
                if abandon.is_set():
                    raise ConnectorAbandoned from None
