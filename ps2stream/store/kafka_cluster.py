"""The topics of a service in a Kafka cluster, and the settings that its promises depend on."""

from __future__ import annotations

import dataclasses
import functools
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from ps2stream.errors import (
    DataDirectoryError,
    FailedPrecondition,
    PermissionDenied,
    Ps2StreamError,
    Unavailable,
    invalid,
)
from ps2stream.kafka import KafkaAddress, KafkaErrors, make_handle, read_config, translate_error
from ps2stream.store.kafka_chunks import MESSAGE

log = logging.getLogger("ps2stream.store")

REPLICAS = 3
IN_SYNC = 2
TRANSACTIONS = "__transaction_state"
OURS = (
    "bootstrap.servers", "transactional.id", "enable.idempotence", "acks", "isolation.level",
    "group.id", "auto.offset.reset", "enable.auto.commit", "check.crcs", "linger.ms",
    "message.timeout.ms", "transaction.timeout.ms", "enable.partition.eof", "message.max.bytes",
    "metadata.broker.list", "request.required.acks", "delivery.timeout.ms",
    "queue.buffering.max.ms",
)  # fmt: skip
"""Properties that the service sets itself."""
_CREATED = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "unclean.leader.election.enable": "false",
}
_LOG = re.compile(r"(objects|matches)-[0-9]+")
_CAVEAT = (
    "log_url has development=true: what is acknowledged as DURABLE may be lost with a single broker"
)
_WAIT_S = 15.0  # for an answer
_NEWS_S = 10.0  # for a new topic to be known everywhere
_LOOK_S = 0.1
_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_NOT_YET = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class KafkaCluster:
    """Brokers, the prefix of a service's topics, and properties of librdkafka, which may hold
    passwords."""

    address: KafkaAddress
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    are_transactions_replicated: bool = False
    """Whether the operator says so, as the service cannot see it."""

    @classmethod
    def parse(
        cls, url: str, config: Path | None = None, are_transactions_replicated: bool = False
    ) -> KafkaCluster:
        """Returns the cluster of `log_url`, reached by the properties in the file `config`. Raises
        InvalidArgument."""
        try:
            address = KafkaAddress.parse(url)
        except ValueError as error:
            raise invalid("log_url", str(error)) from None
        properties = read_config(config, OURS, "log_config")
        return cls(address, properties, are_transactions_replicated)

    def __str__(self) -> str:
        return f"kafka://{self.address.brokers}/{self.address.prefix}"

    @property
    def caveat(self) -> str:
        """What the cluster does not promise; empty for one that is checked."""
        return _CAVEAT if self.address.development else ""

    def topic(self, name: str) -> str:
        """Returns the topic of the log of this name."""
        return f"{self.address.prefix}.{name}"

    def make(
        self, kind: Callable[..., T], config: Mapping[str, Any], errors: KafkaErrors | None = None
    ) -> T:
        """Makes a producer, a consumer or an administrator, which reports to `errors`. Raises
        InvalidArgument."""
        # Without an error_cb, fatal errors are raised from whatever call comes next.
        ours = {"bootstrap.servers": self.address.brokers, "error_cb": errors or KafkaErrors()}
        found: T = make_handle(kind, {**config, **self.properties, **ours}, "log_config")
        return found

    @contextmanager
    def translate_errors(self, what: str) -> Iterator[None]:
        """Turns an error of Kafka into one of ours: Unavailable unless a retry cannot help."""
        try:
            yield
        except KafkaException as error:
            raise self.explain(error.args[0], what) from error

    def explain(self, error: KafkaError, what: str) -> Ps2StreamError:
        """Returns our error for one of Kafka."""
        found = translate_error(error)
        problem = f"{self}: {what}: {error.str()}"
        return Unavailable(problem) if found is None else type(found)(problem)


class KafkaAdmin:
    """Looks at the topics of a service, and makes and trims them."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._errors = KafkaErrors()
        self._client = cluster.make(AdminClient, {}, self._errors)

    def list_logs(self) -> list[str]:
        """Returns the names of the logs that have been made. Raises Unavailable, and
        Unauthenticated where the brokers refuse the password or certificate."""
        try:
            with self._cluster.translate_errors("its topics cannot be listed"):
                topics = self._client.list_topics(timeout=_WAIT_S).topics
        except Unavailable as error:  # which only says that no broker could be used
            self._client.poll(0)  # what is reported meanwhile
            if (found := self._errors.failed) is None:
                raise
            raise type(found)(f"log_config: {self._cluster}: {found}") from error
        start = self._cluster.topic("")
        names = [topic.removeprefix(start) for topic in topics if topic.startswith(start)]
        return sorted(filter(_LOG.fullmatch, names))

    def has_log(self, name: str, wait: bool) -> bool:
        """Returns whether the log has been made. `wait`: it should have been, so looks again for
        some seconds, as a broker may not have heard of it yet. Raises Unavailable."""
        give_up = time.monotonic() + (_NEWS_S if wait else 0)
        while name not in self.list_logs():
            if time.monotonic() >= give_up:
                return False
            time.sleep(_LOOK_S)
        return True

    def make_topic(self, name: str) -> None:
        """Makes the topic of a log. Raises FailedPrecondition where the cluster has too few
        brokers for it, Unavailable."""
        alone = self._cluster.address.development
        config = _CREATED | {"min.insync.replicas": "1" if alone else f"{IN_SYNC}"}
        topic = NewTopic(
            self._cluster.topic(name), 1, 1 if alone else REPLICAS, config=dict(config)
        )
        with self._cluster.translate_errors(f"the topic {topic.topic} cannot be created"):
            brokers = len(self._client.list_topics(timeout=_WAIT_S).brokers)
            if brokers < REPLICAS and not alone:
                raise self._refuse(f"the cluster has {brokers} of the {REPLICAS} brokers needed")
            try:
                self._client.create_topics([topic], request_timeout=_WAIT_S)[topic.topic].result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def check_log(self, name: str) -> None:
        """Checks that the topic of a log keeps what it acknowledges. Raises FailedPrecondition
        naming what does not."""
        topic = self._cluster.topic(name)
        found = self._read_settings(topic)
        if found["cleanup.policy"] != "delete":
            raise self._refuse(f"the topic {topic} has cleanup.policy={found['cleanup.policy']}, "
                               "but must have delete", excused=False)  # fmt: skip
        if int(found["max.message.bytes"]) < MESSAGE:
            raise self._refuse(f"the topic {topic} has max.message.bytes="
                               f"{found['max.message.bytes']}, but needs {MESSAGE} or more",
                               excused=False)  # fmt: skip
        self._check_copies(topic, found)

    def check_transactions(self) -> None:
        """Checks that the outcome of transactions is kept as well as the logs. Raises
        FailedPrecondition, also where the cluster hides it."""
        if self._cluster.address.development or self._cluster.are_transactions_replicated:
            return
        try:
            found = self._read_settings(TRANSACTIONS)
        except PermissionDenied as error:
            raise FailedPrecondition(
                f"{error}. If its provider says that it has {REPLICAS} replicas, {IN_SYNC} of them "
                "in sync, set log_transactions_replicated"
            ) from error
        self._check_copies(TRANSACTIONS, found)

    def find_bounds(self, name: str, settled: bool = False) -> tuple[int, int]:
        """Returns the offsets of the oldest message, and behind the last one of which it is decided
        whether it counts; `settled`: it must be decided of all. Raises Unavailable."""
        start, stop = self._find_offset(name, _EARLIEST), self._find_offset(name, _LATEST)
        give_up = time.monotonic() + _NEWS_S
        while settled and stop < self._find_offset(name, _LATEST, IsolationLevel.READ_UNCOMMITTED):
            if time.monotonic() > give_up:
                raise Unavailable(
                    f"{self._cluster}: another program has a transaction open in the topic "
                    f"{self._cluster.topic(name)}"
                )
            time.sleep(_LOOK_S)
            stop = self._find_offset(name, _LATEST)
        return start, stop

    def _find_offset(
        self,
        name: str,
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> int:
        part = TopicPartition(self._cluster.topic(name), 0)

        def look() -> int:
            asked = self._client.list_offsets(
                {part: spec}, isolation_level=isolation, request_timeout=_WAIT_S
            )
            return int(asked[part].result().offset)

        with self._cluster.translate_errors(f"the topic {part.topic} cannot be read"):
            return _retry_new_topic(look)

    def delete_before(self, name: str, offset: int) -> Any:
        """Begins to delete the messages before an offset; returns a future."""
        part = TopicPartition(self._cluster.topic(name), 0, offset)
        return self._client.delete_records([part])[part]

    def delete_topics(self, names: list[str]) -> None:
        """Deletes the topics of these logs. Raises Unavailable."""
        with self._cluster.translate_errors("its topics cannot be deleted"):
            for future in self._client.delete_topics([*map(self._cluster.topic, names)]).values():
                future.result()

    def _check_copies(self, topic: str, found: Mapping[str, str]) -> None:
        def look() -> Any:
            listed = self._client.list_topics(topic, timeout=_WAIT_S).topics[topic]
            if listed.error is not None:
                raise KafkaException(listed.error)
            return listed

        with self._cluster.translate_errors(f"the topic {topic} cannot be described"):
            listed = _retry_new_topic(look)
        if len(listed.partitions) != 1 and topic != TRANSACTIONS:
            raise self._refuse(f"the topic {topic} has {len(listed.partitions)} partitions, but "
                               "must have 1", excused=False)  # fmt: skip
        replicas = min((len(part.replicas) for part in listed.partitions.values()), default=0)
        problems = []
        if replicas < REPLICAS:
            problems.append(f"replication factor {replicas}, but needs {REPLICAS} or more")
        if int(found["min.insync.replicas"]) < IN_SYNC:
            least = found["min.insync.replicas"]
            problems.append(f"min.insync.replicas={least}, but needs {IN_SYNC} or more")
        if found["unclean.leader.election.enable"] != "false":
            problems.append("unclean.leader.election.enable=true, but needs false")
        if problems and not self._cluster.address.development:
            raise self._refuse(f"the topic {topic} has {'; '.join(problems)}")

    def _refuse(self, problem: str, excused: bool = True) -> FailedPrecondition:
        advice = (
            ". The level DURABLE needs that; for development, add ?development=true to log_url"
            if excused
            else ""
        )
        return FailedPrecondition(f"log_url: {self._cluster}: {problem}{advice}")

    def _read_settings(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, topic)

        def look() -> dict[str, Any]:
            asked = self._client.describe_configs([resource], request_timeout=_WAIT_S)
            found: dict[str, Any] = asked[resource].result()
            return found

        with self._cluster.translate_errors(f"the settings of {topic} cannot be read"):
            return {name: str(entry.value) for name, entry in _retry_new_topic(look).items()}


def _retry_new_topic(look: Callable[[], T]) -> T:
    """Looks again while a topic is not known everywhere yet."""
    give_up = time.monotonic() + _NEWS_S
    while True:
        try:
            return look()
        except KafkaException as error:
            if error.args[0].code() not in _NOT_YET or time.monotonic() > give_up:
                raise
            time.sleep(_LOOK_S)


@functools.cache
def warn_once(caveat: str) -> None:
    """Logs what a cluster does not promise, once a process."""
    log.warning("%s", caveat)


def damage_error(cluster: KafkaCluster, name: str, problem: str) -> DataDirectoryError:
    """Returns the error for records that are missing or damaged."""
    topic = cluster.topic(name)
    return DataDirectoryError(
        f"{cluster}, topic {topic}: {problem}. To continue without this log, delete the topic and "
        "start once with --accept-loss"
    )
