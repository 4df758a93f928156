"""Brokers that are away for longer. It takes minutes, so CI leaves them out (LONG in Makefile)."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest

from ps2stream.client.client import Client
from ps2stream.config import Settings
from ps2stream.errors import StoreFailed, Unavailable
from ps2stream.store.kafka_cluster import KafkaCluster
from ps2stream.store.kafka_log import KafkaLog
from tests.support.appender import Appender
from tests.support.kafka_broker import Broker, Cluster
from tests.support.kafka_logs import NAME, ROW, fill, records, start

pytestmark = pytest.mark.slow


def test_a_broker_that_restarts_meanwhile_is_not_noticed(
    kafka: Broker, topics: KafkaCluster
) -> None:
    with KafkaLog.open(topics, NAME) as log:
        [at] = fill(log, b"a")
        log.append(b"b")
        kafka.crash()
        kafka.start()
        assert log.read(at) == b"a"
        log.sync()
        assert records(log) == [b"a", b"b"]


def test_nothing_is_taken_while_a_sync_waits_and_patience_ends(
    kafka: Broker, topics: KafkaCluster
) -> None:
    errors: list[BaseException] = []

    def sync() -> None:
        try:
            log.sync()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    with KafkaLog.open(topics, NAME, patience_s=4) as log:
        fill(log, b"a")
        log.append(b"b")
        kafka.stop()
        try:
            thread = threading.Thread(target=sync)
            thread.start()
            told = ""
            while thread.is_alive() and not told:
                end = log.end
                try:
                    log.append(b"more")
                except Unavailable as error:
                    told = str(error)
                    assert log.end == end
                time.sleep(0.02)
            assert "no answer for 2 s or more" in told
            assert "until a restart" not in told
            thread.join()
        finally:
            kafka.start()
        assert [type(error) for error in errors] in ([Unavailable], [StoreFailed])
        with pytest.raises(Unavailable, match="until a restart"):
            log.append(b"c")
    with KafkaLog.open(topics, NAME, again=True) as log:
        assert records(log)[0] == b"a"


def test_a_broker_and_then_two_are_killed_amid_syncs(brokers: Cluster) -> None:
    topics = KafkaCluster.parse(f"kafka://{brokers.address}/outage")
    with KafkaLog.open(topics, NAME) as log:
        appender = Appender(log)
        appender.start()
        appender.wait_for_more(20)
        first = brokers.leader(topics.topic(NAME))
        first.crash()
        appender.wait_for_more(20)
        # With two of three gone nothing is acknowledged, and the topic cannot be written.
        second = random.Random(1).choice([b for b in brokers.brokers if b is not first])
        second.crash()
        time.sleep(1)
        acked = len(appender.acked)
        time.sleep(2)
        assert len(appender.acked) == acked
        first.start()
        second.start()
        appender.wait_for_more(20)
        appender.finish()
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
        each.crash()
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


def test_a_broker_restarts_under_the_service(
    kafka: Broker, topics: KafkaCluster, url: str, tmp_path: Path
) -> None:
    settings = Settings(
        runtime="local", port=0, workers=1, adjust="off", data_dir=tmp_path / "data", log_url=url
    )
    with start(settings) as service, Client(service.targets[0], timeout=60) as client:
        client.insert("q", "word", session="ann")
        client.publish([ROW])
        kafka.crash()
        kafka.start()
        client.publish([ROW | {"id": "after"}])
        with client.subscribe("ann") as matches:
            found = iter(matches)
            assert [next(found).object_id for _ in range(2)] == ["o", "after"]
