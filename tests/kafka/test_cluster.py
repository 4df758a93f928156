"""Three brokers: what was acknowledged survives the loss of one."""

from __future__ import annotations

import re

import pytest
from confluent_kafka.admin import AdminClient

from ps2stream.errors import FailedPrecondition
from ps2stream.store.kafka_cluster import KafkaCluster
from ps2stream.store.kafka_log import KafkaLog
from tests.support.appender import Appender
from tests.support.kafka_broker import Cluster
from tests.support.kafka_logs import NAME, change, fill, records

pytestmark = pytest.mark.slow


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
