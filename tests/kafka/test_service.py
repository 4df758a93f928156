"""The whole service with its logs in Kafka."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.client.client import Client
from ps2stream.client.matches import Gap
from ps2stream.cluster import service as cluster_service
from ps2stream.cluster.doctor_checks import check_brokers, check_directory, find_logs
from ps2stream.config import Settings, load
from ps2stream.errors import DataDirectoryError, InvalidArgument
from ps2stream.protocol.session_numbers import LEAP
from ps2stream.store.kafka_cluster import KafkaAdmin, KafkaCluster
from ps2stream.store.places import KafkaTopics, place
from tests.support.kafka_broker import Broker
from tests.support.kafka_logs import ROW, start
from tests.support.scaled_mergers import move_and_restart

pytestmark = pytest.mark.takes_turns


@pytest.fixture
def settings(topics: KafkaCluster, url: str, tmp_path: Path) -> Settings:
    return Settings(
        runtime="local", port=0, workers=2, dispatchers=2, mergers=2, adjust="off",
        data_dir=tmp_path / "data", log_url=url,
    )  # fmt: skip


def doctor(settings: Settings) -> dict[str, str]:
    found = check_directory(settings.data_dir, find_logs(settings))
    return {finding.what: f"{finding.verdict}: {finding.found}" for finding in found}


@pytest.mark.every_turn
def test_a_service_goes_on_where_it_was(settings: Settings, topics: KafkaCluster) -> None:
    with start(settings) as service, Client(service.targets[0], timeout=60) as client:
        client.insert("kept", "word", session="ann")
        client.insert("dropped", "word", session="ann")
        client.delete("dropped")
        client.publish([ROW])
        assert "development=true" in service.status()["sequencer-0"]["caveat"]
        client.publish([ROW | {"id": "after"}])
    assert not list(settings.data_dir.glob("*-[0-9]"))
    names = ["matches-0", "matches-1", "objects-0", "objects-1"]
    assert KafkaAdmin(topics).list_logs() == names
    with start(settings) as service, Client(service.targets[1]) as client:
        assert [q.id for q in client.list()] == ["kept"]
        with client.subscribe("ann") as matches:
            found = iter(matches)
            assert [next(found).object_id for _ in range(2)] == ["o", "after"]
            client.publish([ROW | {"id": "again"}])
            last = next(found)
            assert (last.object_id, last.query_id) == ("again", "kept")
    assert doctor(settings)["logs"] == f"ok: {', '.join(names)}: consistent with the ledger"
    brokers = check_brokers(settings)
    assert (brokers.verdict, brokers.what) == ("warn", "brokers")
    assert ", ".join(names) in brokers.found
    assert settings.log_url is not None
    solid = settings.model_copy(update={"log_url": settings.log_url.partition("?")[0]})
    assert check_brokers(solid).verdict == "fail"


def test_sessions_move_between_mergers(settings: Settings) -> None:
    move_and_restart(lambda: cluster_service.start(settings))


def test_a_lost_log_is_refused_and_then_a_gap(settings: Settings, topics: KafkaCluster) -> None:
    settings = settings.model_copy(update={"mergers": 1, "dispatchers": 1})
    with start(settings) as service, Client(service.targets[0]) as client:
        client.insert("q", "word", session="ann")
        client.publish([ROW])
    KafkaAdmin(topics).delete_topics(["matches-0"])
    with pytest.raises(DataDirectoryError, match=r"matches-0 is missing.*--accept-loss"):
        start(settings)
    assert doctor(settings)["logs"].startswith("fail: matches-0 is missing")
    with start(settings, accept_loss=True) as service, Client(service.targets[0]) as client:
        client.publish([ROW | {"id": "later"}])
        with client.subscribe("ann") as matches:
            batches = iter(matches.batches())
            assert next(batches).gap == Gap(1, LEAP, 0)
            assert [match.object_id for match in next(batches)] == ["later"]


def test_a_ledger_that_was_restored_alone_is_refused_and_then_a_gap(
    settings: Settings, tmp_path: Path
) -> None:
    settings = settings.model_copy(update={"mergers": 1, "dispatchers": 1})
    with start(settings) as service, Client(service.targets[0]) as client:
        client.insert("kept", "word", session="ann")
        client.publish([ROW])
    copy = tmp_path / "copy"
    shutil.copytree(settings.data_dir, copy)
    with start(settings) as service, Client(service.targets[0]) as client:
        client.insert("later", "word", session="ann")
        client.publish([ROW | {"id": "afterwards"}])
    shutil.rmtree(settings.data_dir)
    copy.rename(settings.data_dir)
    with pytest.raises(DataDirectoryError, match=r"ledger is older than the log.*--accept-loss"):
        start(settings)
    with start(settings, accept_loss=True) as service, Client(service.targets[0]) as client:
        assert [q.id for q in client.list()] == ["kept"]
        client.publish([ROW | {"id": "anew"}])
        with client.subscribe("ann") as matches:
            batches = iter(matches.batches())
            assert next(batches).gap is not None
            assert [(m.query_id, m.object_id) for m in next(batches)] == [("kept", "anew")]


def test_another_service_does_not_take_the_logs(settings: Settings, tmp_path: Path) -> None:
    with start(settings) as service, Client(service.targets[0]) as client:
        other = settings.model_copy(update={"data_dir": tmp_path / "other"})
        with pytest.raises(DataDirectoryError, match="matches-0: it belongs to another ledger"):
            start(other)
        client.insert("q", "word", session="ann")
        client.publish([ROW])
        with client.subscribe("ann") as matches:
            assert next(iter(matches)).object_id == "o"


def test_logs_are_not_looked_for_where_they_are_not(settings: Settings) -> None:
    here = settings.model_copy(update={"log_url": None})
    with start(here) as service, Client(service.targets[0]) as client:
        client.publish([ROW])
    with pytest.raises(DataDirectoryError, match=r"matches-0 is missing.*objects-0 is missing"):
        start(settings)
    with start(here):
        pass


def test_a_backup_without_the_logs_is_refused(settings: Settings, tmp_path: Path) -> None:
    with start(settings):
        pass
    made = CliRunner().invoke(
        main, ["backup", str(tmp_path / "copy"), "--data-dir", str(settings.data_dir), "--json"]
    )
    assert made.exit_code == 7, made.output
    assert "matches-0, matches-1, objects-0, objects-1" in made.stderr
    assert "log_url" in made.stderr


@pytest.mark.parametrize(
    ("option", "code", "problem"),
    [
        ("kafka://{}/solid", 7, "log_url: kafka://{}/solid: the cluster has 1 of the 3 brokers"),
        ("kafka://{}", 2, "log_url: is not of the form kafka://HOST:PORT[,HOST:PORT...]/PREFIX"),
        ("kafka://far.example.org:9092/x", 2, "log_config: must be set, because the broker far.ex"),
    ],
)
def test_serve_refuses_by_name(
    kafka: Broker, tmp_path: Path, option: str, code: int, problem: str
) -> None:
    url = option.format(kafka.address)
    words = ["--runtime=local", "--port=0", f"--data-dir={tmp_path / 'data'}", f"--log-url={url}"]
    served = CliRunner().invoke(main, ["serve", *words, "--json"])
    assert served.exit_code == code, served.output
    error = json.loads(served.stderr.splitlines()[-1])["error"]
    assert problem.format(kafka.address) in error["message"]


def test_where_logs_are_kept(tmp_path: Path) -> None:
    url = "kafka://k1:9093,[::1]:9093/streams"
    config = tmp_path / "librdkafka"
    config.write_text("sasl.password=secret\n")
    found = load({"log_url": url, "log_config": config, "data_dir": tmp_path}, environ={})
    topics = place(tmp_path, None, "ps2stream", found.log_url, found.log_config)
    assert isinstance(topics, KafkaTopics)
    assert topics.cluster.address.hosts == ["k1", "::1"]
    assert topics.cluster.topic("objects-0") == "streams.objects-0"
    assert str(topics) == f"{tmp_path}, logs in {url}"
    assert topics.cluster.properties == {"sasl.password": "secret"}
    assert "secret" not in repr(topics)
    for bad in ("kafka://k1/x", "kafka://u:p@k1:1/x", "kafka://k1:1/x/y", "kafka://k1:1/x?y=1", ""):
        with pytest.raises(InvalidArgument, match="log_url: is not of the form") as caught:
            load({"log_url": bad}, environ={})
        assert "u:p" not in str(caught.value)
    with pytest.raises(InvalidArgument, match="log_config: needs log_url"):
        load({"log_config": config}, environ={})
    config.write_text("isolation.level=read_uncommitted\n")
    with pytest.raises(InvalidArgument, match=r"log_config: .*isolation.level is set by PS2Stream"):
        place(tmp_path, None, "ps2stream", url, config)
