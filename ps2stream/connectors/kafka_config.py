"""How a Kafka cluster is reached: librdkafka's properties, and what it says when it fails."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from ps2stream.errors import (
    FailedPrecondition,
    InvalidArgument,
    PermissionDenied,
    Ps2StreamError,
    Unauthenticated,
    Unavailable,
    Violation,
)

log = logging.getLogger(__name__)
WAIT_S = 15.0


def read_config(path: Path | None, ours: Collection[str]) -> dict[str, str]:
    """Properties `name=value` a line, as librdkafka names them; # begins a comment. `ours`: those
    that may not be set. Raises InvalidArgument naming the line, never showing a value."""
    if path is None:
        return {}
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _invalid(f"cannot read {path}: {getattr(error, 'strerror', error)}") from None
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not (line := line.strip()) or line.startswith("#"):
            continue
        name, equals, value = (part.strip() for part in line.partition("="))
        if not (name and equals):
            raise _invalid(f"{path}:{number}: expected NAME=VALUE")
        if name in ours:
            raise _invalid(f"{path}:{number}: {name} is the connector's own to set")
        found[name] = value
    return found


def made(kind: Any, config: dict[str, Any]) -> Any:
    """A consumer or producer of confluent_kafka. Raises InvalidArgument for a bad property."""
    try:
        # What brokers that are away make it say, again and again, comes by error_cb, too.
        return kind({"logger": log, "log_level": 2, **config})
    except Exception as error:
        if type(error).__name__ != "KafkaException":
            raise
        problem = error.args[0].str() if hasattr(error.args[0], "str") else str(error)
        raise _invalid(problem) from None


class Complaints:
    """An error_cb: `failed` is what the connector must end with; all else is logged, the same at
    most every five seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.failed: Exception | None = None
        self._clock = clock
        self._last: dict[int, float] = {}

    def __call__(self, error: Any) -> None:
        now = self._clock()
        if (found := failure(error)) is not None:
            self.failed = self.failed or found
        elif now - self._last.get(error.code(), -5.0) >= 5:
            self._last[error.code()] = now
            log.warning("Kafka: %s", error.str())


def check_topic(handle: Any, topic: str, bootstrap: str) -> int:
    """The partitions of a topic. Raises Unavailable where no broker answers, FailedPrecondition
    without the topic."""
    from confluent_kafka import KafkaException

    try:
        found = handle.list_topics(topic, WAIT_S).topics[topic]
    except KafkaException as error:
        problem = f"no answer from Kafka at {bootstrap}: {error.args[0].str()}"
        raise Unavailable(problem) from None
    if found.error is not None:
        raise FailedPrecondition(f"topic {topic}: {found.error.str()}")
    return len(found.partitions)


def failure(error: Any) -> Ps2StreamError | None:
    """What a KafkaError means for the connector; None where librdkafka goes on by itself."""
    from confluent_kafka import KafkaError

    said = f"Kafka: {error.str()}"
    if error.code() in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ):
        return PermissionDenied(said)
    if error.code() in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
        return Unauthenticated(said)
    return FailedPrecondition(said) if error.fatal() else None


def _invalid(problem: str) -> InvalidArgument:
    return InvalidArgument([Violation("kafka_config", problem)])
