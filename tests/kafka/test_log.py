"""A log in Kafka: one owner, nothing half, damage is told, brokers that are away are waited for."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewTopic,
)

from ps2stream.errors import DataDirectoryError, FailedPrecondition, StoreFailed, Unavailable
from ps2stream.store import kafka_chunks, kafka_cluster, kafka_log
from ps2stream.store.identity import LogIdentity
from ps2stream.store.kafka_cluster import KafkaAdmin, KafkaCluster
from ps2stream.store.kafka_log import KafkaLog, look_at_end
from tests.conftest import ROOT
from tests.support.kafka_broker import Broker
from tests.support.kafka_logs import NAME, change, fill, records

pytestmark = pytest.mark.takes_turns

KILLS = int(os.environ.get("PS2STREAM_KILLS", "8")) // 4


@pytest.fixture
def admin(topics: KafkaCluster) -> AdminClient:
    """Somebody else, with all rights."""
    return AdminClient({"bootstrap.servers": topics.address.brokers})


def begins_at(topics: KafkaCluster) -> int:
    return KafkaAdmin(topics).find_bounds(NAME)[0]


def wait_until_trimmed(topics: KafkaCluster, before: int) -> None:
    deadline = time.monotonic() + 60
    while begins_at(topics) <= before:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_logs_of_one_prefix_do_not_mix(topics: KafkaCluster) -> None:
    with KafkaLog.open(topics, NAME) as a, KafkaLog.open(topics, "matches-0") as b:
        fill(a, b"a")
        fill(b, b"b", b"bb")
        assert (records(a), records(b)) == ([b"a"], [b"b", b"bb"])
    assert KafkaAdmin(topics).list_logs() == ["matches-0", NAME]
    with pytest.raises(Unavailable, match="closed"):
        a.append(b"")
    with pytest.raises(Unavailable, match="closed"):
        a.sync()
    with pytest.raises(Unavailable, match="closed"):
        a.trim(0)


@pytest.mark.parametrize("syncs", [1, 2])
def test_what_a_zombie_appends_is_refused(topics: KafkaCluster, syncs: int) -> None:
    old = KafkaLog.open(topics, NAME)
    for _ in range(syncs):  # either of its producers is the next
        fill(old, b"a")
    position = old.append(b"zombie")
    with KafkaLog.open(topics, NAME, again=True) as new:
        assert new.append(b"b") == position
        new.sync()
        with pytest.raises(StoreFailed, match="taken it over"):
            old.sync()
        with pytest.raises(Unavailable, match="until a restart"):
            old.append(b"")
        assert records(new) == [b"a"] * syncs + [b"b"]
    old.close()
    with KafkaLog.open(topics, NAME, again=True) as log:
        assert records(log) == [b"a"] * syncs + [b"b"]


@pytest.mark.parametrize(("taken", "written"), [(0, 0), (1, 1)])
def test_of_two_who_open_a_log_at_a_time_one_writes_at_most(
    topics: KafkaCluster, taken: int, written: int
) -> None:
    with KafkaLog.open(topics, NAME) as log:
        fill(log, b"a")
    with KafkaLog.open(topics, NAME, again=True) as log:
        other = Producer(
            {
                "bootstrap.servers": topics.address.brokers,
                "transactional.id": f"{topics.topic(NAME)}.{taken}",
            }
        )
        other.init_transactions(30)  # as one who opens it has one of the two ids so far
        for _ in range(written):
            fill(log, b"b")
        log.append(b"c")
        with pytest.raises(StoreFailed, match="taken it over"):
            log.sync()
    with KafkaLog.open(topics, NAME, again=True) as log:
        assert records(log) == [b"a"] + [b"b"] * written


def test_a_sync_that_nobody_ended_is_no_part_of_the_log(topics: KafkaCluster) -> None:
    with KafkaLog.open(topics, NAME) as log:
        fill(log, b"a")
    half = Producer(
        {
            "bootstrap.servers": topics.address.brokers,
            "transactional.id": f"{topics.topic(NAME)}.1",
        }
    )
    half.init_transactions(30)
    half.begin_transaction()
    half.produce(topics.topic(NAME), b"half", b"no header", partition=0)
    half.flush()
    with KafkaLog.open(topics, NAME, again=True) as log:
        assert records(log) == [b"a"]
        fill(log, b"b")
        assert records(log) == [b"a", b"b"]


def test_a_transaction_of_another_program_is_told(
    topics: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_cluster, "_NEWS_S", 0.5)
    with KafkaLog.open(topics, NAME) as log:
        fill(log, b"a")
    other = Producer({"bootstrap.servers": topics.address.brokers, "transactional.id": "other"})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(topics.topic(NAME), b"half", partition=0)
    other.flush()
    with pytest.raises(Unavailable, match="another program has a transaction open in the topic"):
        KafkaLog.open(topics, NAME, again=True)
    other.abort_transaction()
    with KafkaLog.open(topics, NAME, again=True) as log:
        assert records(log) == [b"a"]


def test_an_empty_log_keeps_its_end_and_identity(topics: KafkaCluster) -> None:
    identity = LogIdentity(1 << 62, 5, 3, 9)
    with KafkaLog.open(topics, NAME, segment_bytes=1) as log:
        assert (log.first, log.end, log.identity) == (0, 0, None)
        log.identify(identity)
        assert log.sync() == 0
        fill(log, b"0" * 300_000)
        last = fill(log, b"1" * 300_000)
        log.trim(log.end)
        end = log.sync()
        log.identify(identity._replace(generation=4))
        log.sync()
        assert log.first == last[0]
    wait_until_trimmed(topics, 1)
    assert look_at_end(topics, NAME) == (end, identity._replace(generation=4))
    with KafkaLog.open(topics, NAME, again=True) as log:
        assert (log.first, log.end, log.synced, log.bytes) == (last[0], end, end, end - last[0])
        with pytest.raises(KeyError):
            log.read(0)
        assert log.append(b"") == end


@pytest.mark.parametrize("how", ["retention", "some", "all", "topic"])
def test_what_somebody_else_deletes_is_told(
    topics: KafkaCluster, admin: AdminClient, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_cluster, "_NEWS_S", 1.0)
    with KafkaLog.open(topics, NAME) as log:
        at = fill(log, *(b"%d" % i * 400_000 for i in range(10)))
        for i in range(20):  # so that the broker begins segments
            fill(log, b"%d" % i * 700_000)
    log = KafkaLog.open(topics, NAME, again=True)  # which has none of it in memory
    part = TopicPartition(topics.topic(NAME), 0, 5 if how == "some" else -1)
    problem = "deleted by somebody else"
    if how == "retention":
        change(admin, part.topic, segment_bytes=f"{1 << 20}", retention_bytes="1")
        for i in range(3):
            fill(log, b"%d" % i * 700_000)
        wait_until_trimmed(topics, 5)
    elif how == "topic":
        admin.delete_topics([part.topic])[part.topic].result(30)
        problem = "no such topic any more"
    else:
        admin.delete_records([part])[part].result(30)
    if how != "topic":
        with pytest.raises(DataDirectoryError, match=f"{part.topic}: .*{problem}"):
            log.read(at[0])
        with pytest.raises(DataDirectoryError, match=f"{part.topic}: .*{problem}"):
            list(log.scan())
    log.close()
    deadline = time.monotonic() + 30
    while how == "topic" and NAME in KafkaAdmin(topics).list_logs():
        assert time.monotonic() < deadline
    with pytest.raises(DataDirectoryError, match=problem):
        KafkaLog.open(topics, NAME, again=True)


def test_records_that_go_while_a_log_is_opened_are_looked_at_again(
    topics: KafkaCluster, admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the broker has first is asked for, and then read: retention may come in between."""
    with KafkaLog.open(topics, NAME) as log:
        for i in range(3):
            fill(log, b"%d" % i * 100)
    part = TopicPartition(topics.topic(NAME), 0, 2)
    find_bounds, times = KafkaAdmin.find_bounds, itertools.count(1)

    def find_then_delete(self: KafkaAdmin, name: str, settled: bool = False) -> tuple[int, int]:
        found = find_bounds(self, name, settled)
        if next(times) == 1:
            admin.delete_records([part])[part].result(30)
        return found

    monkeypatch.setattr(KafkaAdmin, "find_bounds", find_then_delete)
    with pytest.raises(DataDirectoryError, match="deleted by somebody else"):
        KafkaLog.open(topics, NAME, again=True)
    assert next(times) > 2


def test_a_flipped_bit_is_told(kafka: Broker, topics: KafkaCluster) -> None:
    with KafkaLog.open(topics, NAME) as log:
        fill(log, b"before")
        at = fill(log, b"a record that is somewhere on the disk")
        fill(log, b"after")
    (file,) = (kafka.folder / "data" / f"{topics.topic(NAME)}-0").glob("*.log")
    data = bytearray(file.read_bytes())
    data[data.index(b"somewhere")] ^= 4
    file.write_bytes(data)
    with pytest.raises(DataDirectoryError), KafkaLog.open(topics, NAME, again=True) as log:
        log.read(at[0])
    with pytest.raises(DataDirectoryError), KafkaLog.open(topics, NAME, again=True) as log:
        list(log.scan())


def test_what_others_write_there_is_told(topics: KafkaCluster) -> None:
    with KafkaLog.open(topics, NAME) as log:
        fill(log, b"a")
    other = Producer({"bootstrap.servers": topics.address.brokers})
    other.produce(topics.topic(NAME), b"value", b"key", partition=0)
    assert other.flush(30) == 0
    with pytest.raises(DataDirectoryError, match="written by another program"):
        KafkaLog.open(topics, NAME, again=True)


def test_many_and_large_records(topics: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_chunks, "CHUNK", 5000)
    want = [bytes([i % 251]) * (i % 70) for i in range(1000)] + [b"x" * 20_000, b"", b"y" * 9000]
    with KafkaLog.open(topics, NAME) as log:
        at = fill(log, *want)
        assert records(log) == want
    monkeypatch.undo()
    rng = random.Random(1)
    more = [rng.randbytes(rng.choice([100, 700_000, 983_040 - 8, 3_000_000])) for _ in range(30)]
    with KafkaLog.open(topics, NAME, again=True) as log:
        for record in more:
            at += fill(log, record)
        want += more
        assert records(log) == want
    with KafkaLog.open(topics, NAME, again=True) as log:  # whose offsets are looked for
        for i in rng.sample(range(len(want)), 40):
            assert log.read(at[i]) == want[i]
        assert list(log.scan(at[1005])) == list(zip(at, want, strict=True))[1005:]
        assert records(log) == want
        monkeypatch.setattr(kafka_log, "MAX_RECORD", 100)
        with pytest.raises(ValueError, match="record: 101 bytes are over the limit of 100"):
            log.append(b"x" * 101)


def test_one_thread_appends_while_another_syncs_and_a_third_reads(topics: KafkaCluster) -> None:
    want: list[tuple[int, bytes]] = []
    done = threading.Event()
    errors: list[BaseException] = []
    size = 20_000

    def sync() -> None:
        try:
            while not done.is_set():
                log.sync()
                log.trim(log.end - 4_000_000)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    def read() -> None:
        try:
            while not done.is_set():
                for position, record in want[-200::10]:
                    try:
                        assert log.read(position) == record
                    except KeyError:  # this thread may have waited for long
                        assert position < log.first
                assert all(len(record) == size for _, record in log.scan(log.first))
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    with KafkaLog.open(topics, NAME, segment_bytes=500_000) as log:
        threads = [threading.Thread(target=sync), threading.Thread(target=read)]
        for thread in threads:
            thread.start()
        i = 0
        while (log.first == 0 or i < 1000) and not errors:
            record = b"%0*d" % (size, i)
            want.append((log.append(record), record))
            i += 1
            time.sleep(0.0005)
        done.set()
        for thread in threads:
            thread.join()
        assert errors == []
        log.sync()
        kept = [r for r in want if r[0] >= log.first]
        assert list(log.scan()) == kept
    assert len(kept) < len(want)
    with KafkaLog.open(topics, NAME, again=True) as log:
        assert list(log.scan()) == kept


@pytest.mark.parametrize("development", [False, True])
@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({}, "replication factor 1, but needs 3 or more"),
        ({"min.insync.replicas": "1"}, "min.insync.replicas=1, but needs 2 or more"),
        (
            {"unclean.leader.election.enable": "true"},
            "unclean.leader.election.enable=true, but needs false",
        ),
        ({"cleanup.policy": "compact"}, "cleanup.policy=compact, but must have delete"),
        ({"max.message.bytes": "1000"}, "max.message.bytes=1000, but needs 1015808 or more"),
        ({"partitions": "2"}, "has 2 partitions, but must have 1"),
    ],
)  # fmt: skip
def test_topics_that_lose_what_was_acknowledged_are_refused_by_name(
    topics: KafkaCluster,
    admin: AdminClient,
    config: dict[str, str],
    problem: str,
    development: bool,
) -> None:
    """Copies are excused for development; what a log cannot do without is not."""
    settings = dict(config)
    parts = int(settings.pop("partitions", "1"))
    topic = NewTopic(topics.topic(NAME), parts, 1, config=settings)
    admin.create_topics([topic])[topic.topic].result(30)
    assert KafkaAdmin(topics).has_log(NAME, wait=True)
    if not development:
        topics = KafkaCluster(topics.address._replace(development=False))
    excused = any(word in problem for word in ("replica", "unclean"))
    if development and excused:
        with KafkaLog.open(topics, NAME) as log:
            fill(log, b"a")
        return
    with pytest.raises(FailedPrecondition, match=f"log_url: .*{topic.topic}.* {problem}") as caught:
        KafkaLog.open(topics, NAME)
    assert ("?development=true" in str(caught.value)) is excused


def test_a_cluster_with_too_few_brokers_is_refused_by_name(topics: KafkaCluster) -> None:
    with pytest.raises(FailedPrecondition, match="has 1 of the 3 brokers needed"):
        KafkaLog.open(KafkaCluster(topics.address._replace(development=False)), NAME)
    assert KafkaAdmin(topics).list_logs() == []


OWNER = """
import sys
from ps2stream.store.kafka_cluster import KafkaCluster
from ps2stream.store.kafka_log import KafkaLog

with KafkaLog.open(KafkaCluster.parse(sys.argv[1]), "objects-0") as log:
    while True:
        for _ in range(log.end % 7 + 1):
            position = log.append(b"%d" % log.end * 30)
        log.sync()
        print(position, flush=True)
"""


@pytest.mark.slow
def test_an_owner_killed_amid_syncs_has_lost_nothing_acknowledged(
    topics: KafkaCluster, url: str, tmp_path: Path
) -> None:
    rng = random.Random(2)
    acked = 0
    for _ in range(max(KILLS, 2)):
        with (tmp_path / "out").open("wb") as out:
            owner = subprocess.Popen(
                [sys.executable, "-c", OWNER, url],
                cwd=ROOT, stdout=out, env=os.environ | {"PYTHONPATH": str(ROOT)},
            )  # fmt: skip
            while not (tmp_path / "out").read_bytes().count(b"\n"):
                assert owner.poll() is None
                time.sleep(0.02)
            time.sleep(rng.uniform(0.05, 0.4))
            owner.kill()
            owner.wait()
        said = (tmp_path / "out").read_text().split("\n")[:-1]
        acked = max([acked, *map(int, said)])
        with KafkaLog.open(topics, NAME, again=True) as log:
            found = list(log.scan())
        assert found[-1][0] >= acked
        assert all(record == b"%d" % position * 30 for position, record in found)
        assert sum(len(record) + 8 for _, record in found) == log.end
