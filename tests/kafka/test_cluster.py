"""Three brokers: what was acknowledged survives the loss of one, and nothing is without two."""

from __future__ import annotations

import random
import re
import signal
import threading
import time

import pytest
from confluent_kafka.admin import AdminClient

from ps2stream.errors import FailedPrecondition, Unavailable
from ps2stream.store.kafka_cluster import KafkaCluster
from ps2stream.store.kafka_log import KafkaLog
from tests.kafka.test_log import NAME, change, fill, records
from tests.support.kafka_broker import Broker, Cluster

pytestmark = pytest.mark.slow


class Appender(threading.Thread):
    """Appends and syncs until `stop`; `acked` is what was acknowledged."""

    def __init__(self, log: KafkaLog) -> None:
        super().__init__()
        self.acked: list[tuple[int, bytes]] = []
        self.refused = 0
        self.stop = threading.Event()
        self.unexpected: list[BaseException] = []
        self._log = log

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                record = b"%d" % len(self.acked) * 40
                try:
                    position = self._log.append(record)
                except Unavailable:
                    self.refused += 1
                    time.sleep(0.05)
                    continue
                self._log.sync()
                self.acked.append((position, record))
        except BaseException as error:  # noqa: BLE001
            self.unexpected.append(error)

    def wait_for_more(self, count: int) -> None:
        wanted, deadline = len(self.acked) + count, time.monotonic() + 60
        while len(self.acked) < wanted:
            assert not self.unexpected, self.unexpected
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_broker_and_then_two_are_killed_amid_syncs(brokers: Cluster) -> None:
    topics = KafkaCluster.parse(f"kafka://{brokers.address}/killed")
    with KafkaLog.open(topics, NAME) as log:
        appender = Appender(log)
        appender.start()
        appender.wait_for_more(20)
        first = brokers.leader(topics.topic(NAME))
        first.stop(signal.SIGKILL)
        appender.wait_for_more(20)
        # With two of three gone nothing is acknowledged, and the topic cannot be written.
        second = random.Random(1).choice([b for b in brokers.brokers if b is not first])
        second.stop(signal.SIGKILL)
        time.sleep(1)
        acked = len(appender.acked)
        time.sleep(2)
        assert len(appender.acked) == acked
        first.start()
        second.start()
        appender.wait_for_more(20)
        appender.stop.set()
        appender.join()
        assert appender.unexpected == []
        assert list(log.scan()) == appender.acked
    brokers.wait()
    with KafkaLog.open(topics, NAME, again=True) as log:
        assert list(log.scan()) == appender.acked


def test_a_partition_that_stays_away_ends_the_log_and_acknowledges_nothing(
    brokers: Cluster,
) -> None:
    topics = KafkaCluster.parse(f"kafka://{brokers.address}/away")
    log = KafkaLog.open(topics, NAME, patience_s=3)
    fill(log, b"a")
    leader = brokers.leader(topics.topic(NAME))
    gone: list[Broker] = [b for b in brokers.brokers if b is not leader]
    for each in gone:
        each.stop(signal.SIGKILL)
    log.append(b"b")
    with pytest.raises(Unavailable):
        log.sync()
    with pytest.raises(Unavailable, match="until a restart"):
        log.append(b"c")
    log.close()
    for each in gone:
        each.start()
    brokers.wait()
    with KafkaLog.open(topics, NAME, again=True) as log:
        assert records(log) in ([b"a"], [b"a", b"b"])


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
