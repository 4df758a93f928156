"""Three brokers: what was acknowledged survives the loss of one."""

from __future__ import annotations

import dataclasses
import re
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from ps2stream.errors import FailedPrecondition, PermissionDenied, Unauthenticated
from ps2stream.store.kafka_cluster import KafkaAdmin, KafkaCluster
from ps2stream.store.kafka_log import KafkaLog
from tests.support.appender import Appender
from tests.support.kafka_broker import LIMITED, Cluster
from tests.support.kafka_logs import NAME, change, fill, records

pytestmark = [pytest.mark.slow, pytest.mark.takes_turns]


def test_a_topic_with_too_few_copies_in_sync_is_refused_by_name(brokers: Cluster) -> None:
    topics = KafkaCluster.parse(f"kafka://{brokers.address}/weak")
    admin = AdminClient({"bootstrap.servers": brokers.address})
    with KafkaLog.open(topics, NAME) as log:
        fill(log, b"a")
    for config, problem in (
        ({"min_insync_replicas": "1"}, "min.insync.replicas=1, but needs 2 or more"),
        (
            {"min_insync_replicas": "2", "unclean_leader_election_enable": "true"},
            "unclean.leader.election.enable=true, but needs false",
        ),
    ):
        change(admin, topics.topic(NAME), **config)
        with pytest.raises(FailedPrecondition, match=re.escape(f"weak.{NAME} has {problem}")):
            KafkaLog.open(topics, NAME, again=True)
    change(admin, topics.topic(NAME), unclean_leader_election_enable="false")
    with KafkaLog.open(topics, NAME, again=True) as log:
        assert records(log) == [b"a"]


def allow(admin: AdminClient, kind: ResourceType, name: str, *operations: str) -> None:
    """Gives LIMITED these rights to what has this name, or, with a star, begins with it."""
    pattern = ResourcePatternType.PREFIXED if name.endswith("*") else ResourcePatternType.LITERAL
    for operation in operations:
        binding = AclBinding(
            kind, name.removesuffix("*"), pattern, f"User:{LIMITED}", "*",
            AclOperation[operation], AclPermissionType.ALLOW,
        )  # fmt: skip
        for done in admin.create_acls([binding]).values():
            done.result(30)


def test_a_user_with_a_password_and_the_rights_that_are_documented(
    brokers: Cluster, tmp_path: Path
) -> None:
    url = f"kafka://{brokers.secure}/secured"
    config = brokers.write_config(tmp_path / "librdkafka", LIMITED)
    topics = KafkaCluster.parse(url, config)
    with pytest.raises(PermissionDenied, match="secured"):
        KafkaLog.open(topics, NAME)
    admin = AdminClient({"bootstrap.servers": brokers.address})
    rights = ("CREATE", "DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE", "DELETE")
    allow(admin, ResourceType.TOPIC, "secured.*", *rights)
    allow(admin, ResourceType.TRANSACTIONAL_ID, "secured.*", "WRITE")
    allow(admin, ResourceType.GROUP, "secured.*", "READ")
    # A provider may hide __transaction_state: it is not checked if the operator vouches for it.
    with pytest.raises(FailedPrecondition, match=r"__transaction_state.*log_transactions_repl"):
        KafkaLog.open(topics, NAME)
    vouched = dataclasses.replace(topics, are_transactions_replicated=True)
    with KafkaLog.open(vouched, NAME) as log:
        fill(log, b"a", b"b")
    allow(admin, ResourceType.TOPIC, "__transaction_state", "DESCRIBE", "DESCRIBE_CONFIGS")
    with KafkaLog.open(topics, NAME, again=True, segment_bytes=10) as log:
        assert records(log) == [b"a", b"b"]
        fill(log, b"c" * 300_000)
        [fourth] = fill(log, b"d")
        log.trim(fourth)
        fill(log, b"e")
        assert records(log) == [b"d", b"e"]
    admin_of_user, deadline = KafkaAdmin(topics), time.monotonic() + 30
    while not admin_of_user.find_bounds(NAME)[0]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    wrong = KafkaCluster.parse(url, brokers.write_config(tmp_path / "wrong", LIMITED, "guessed"))
    with pytest.raises(Unauthenticated, match=r"log_config: .*uthentication") as caught:
        KafkaLog.open(wrong, NAME, again=True)
    assert "guessed" not in str(caught.value)


def test_a_broker_is_killed_amid_syncs(brokers: Cluster) -> None:
    topics = KafkaCluster.parse(f"kafka://{brokers.address}/killed")
    with KafkaLog.open(topics, NAME) as log:
        appender = Appender(log)
        appender.start()
        appender.wait_for_more(20)
        leader = brokers.leader(topics.topic(NAME))
        leader.crash()
        appender.wait_for_more(20)
        appender.finish()
        assert list(log.scan()) == appender.acked
    with KafkaLog.open(topics, NAME, again=True) as log:
        assert list(log.scan()) == appender.acked
