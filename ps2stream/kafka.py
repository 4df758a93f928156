"""Access to Kafka clusters: addresses, librdkafka's properties, and what its errors mean."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from ps2stream.errors import (
    FailedPrecondition,
    PermissionDenied,
    Ps2StreamError,
    Unauthenticated,
    Unavailable,
    invalid,
)

log = logging.getLogger(__name__)
WAIT_S = 15.0
NEWS_S = 2.0
"""How long brokers may take to know a topic that somebody has just created."""
LOOK_S = 0.1
_HOST = r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])"
KAFKA_URL = (
    rf"^kafka://({_HOST}:[0-9]{{1,5}}(?:,{_HOST}:[0-9]{{1,5}})*)/([A-Za-z0-9][A-Za-z0-9._-]{{0,99}})"
    r"(\?development=true)?$"
)
"""Pattern of an address: brokers, prefix, and whether it is for development."""


class KafkaAddress(NamedTuple):
    """Address of a service's topics. brokers: HOST:PORT of some brokers, separated by commas;
    prefix: what the names of its topics begin with; development: whether settings that lose data
    are accepted."""

    brokers: str
    prefix: str
    development: bool

    @classmethod
    def parse(cls, url: str) -> Self:
        """Returns the address that the URL names. Raises ValueError."""
        if (found := re.fullmatch(KAFKA_URL, url)) is None:
            raise ValueError(
                "is not of the form kafka://HOST:PORT[,HOST:PORT...]/PREFIX[?development=true]"
            )
        return cls(found[1], found[2], found[3] is not None)

    @property
    def hosts(self) -> list[str]:
        """The hosts of the brokers."""
        return [broker.rpartition(":")[0].strip("[]") for broker in self.brokers.split(",")]


def read_config(
    path: Path | None, ours: Collection[str], field: str = "kafka_config"
) -> dict[str, str]:
    """Reads properties, one `name=value` a line, as librdkafka names them; # begins a comment.
    `ours`: those that may not be set. Raises InvalidArgument naming the line, never showing a
    value, with the name of the setting as `field`."""
    if path is None:
        return {}
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = f"cannot read {path}: {getattr(error, 'strerror', error)}"
        raise invalid(field, problem) from None
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not (line := line.strip()) or line.startswith("#"):
            continue
        name, equals, value = (part.strip() for part in line.partition("="))
        if not (name and equals):
            raise invalid(field, f"{path}:{number}: expected NAME=VALUE")
        if name in ours:
            raise invalid(field, f"{path}:{number}: {name} is set by PS2Stream; remove this line")
        found[name] = value
    return found


def make_handle(kind: Any, config: Mapping[str, Any], field: str = "kafka_config") -> Any:
    """Makes a consumer, a producer or an administrator of Kafka. Raises InvalidArgument for a bad
    property, with the name of the setting as `field`."""
    try:
        # Its log repeats again and again that brokers are away, which error_cb reports, too.
        return kind({"logger": log, "log_level": 2, **config})
    except Exception as error:
        if type(error).__name__ != "KafkaException":
            raise
        problem = error.args[0].str() if hasattr(error.args[0], "str") else str(error)
        raise invalid(field, problem) from None


class KafkaErrors:
    """An error_cb: `failed` is the error that the connector must end with; all others are
    logged, the same one at most every five seconds."""

    def __init__(self) -> None:
        self.failed: Exception | None = None
        self._last: dict[int, float] = {}

    def __call__(self, error: Any) -> None:
        now = time.monotonic()
        if (found := translate_error(error)) is not None:
            self.failed = self.failed or found
        elif now - self._last.get(error.code(), -5.0) >= 5:
            self._last[error.code()] = now
            log.warning("Kafka: %s", error.str())


def check_topic(handle: Any, topic: str, bootstrap: str, patience_s: float = NEWS_S) -> int:
    """Returns the number of a topic's partitions, once a broker knows it and each partition has a
    leader; looks again for `patience_s`, as news of a topic take time to reach all brokers. Raises
    Unavailable where no broker answers, FailedPrecondition without the topic."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + patience_s
    while True:
        try:
            found = handle.list_topics(topic, WAIT_S).topics[topic]
        except KafkaException as error:
            problem = f"no answer from Kafka at {bootstrap}: {error.args[0].str()}"
            raise Unavailable(problem) from None
        told = [found.error, *(part.error for part in found.partitions.values())]
        errors = [one for one in told if one is not None]
        if not errors or not all(map(is_news_to_come, errors)) or time.monotonic() >= deadline:
            break
        time.sleep(LOOK_S)
    # A partition may lose its leader at any time, and librdkafka waits for the next one.
    if found.error is not None:
        raise FailedPrecondition(f"topic {topic}: {found.error.str()}")
    return len(found.partitions)


def is_news_to_come(error: Any) -> bool:
    """Returns whether a KafkaError may only mean that the broker which was asked has not heard yet
    of a new topic, or of who leads its partitions."""
    from confluent_kafka import KafkaError

    return error.code() in (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    )


def translate_error(error: Any) -> Ps2StreamError | None:
    """Returns the error that a KafkaError means for the connector; None where librdkafka goes on
    by itself."""
    from confluent_kafka import KafkaError

    problem = f"Kafka: {error.str()}"
    if error.code() in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ):
        return PermissionDenied(problem)
    if error.code() in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
        return Unauthenticated(problem)
    return FailedPrecondition(problem) if error.fatal() else None
