"""Extras suffice for what they are for. It takes minutes: kernels are compiled anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.packaging.environments import Environment, make_environment

DEMO = ("demo", "--seconds", "3", "--sample", "100", "--json")


@pytest.fixture(scope="module")
def serving(root: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with what a service needs that does without Ray."""
    made = make_environment(tmp_path_factory.mktemp("local"))
    made.install(f"{wheel}[local]", pins=root / "requirements.txt")
    return made


def test_local_runs_a_service_in_one_process(serving: Environment) -> None:
    found = json.loads(serving.ps2stream(*DEMO, "--runtime", "local"))
    assert found["equal"] == found["sampled"] == 100
    refused = serving.run("ps2stream", *DEMO)
    assert "needs the package ray" in refused.stderr
    assert ".[server]'" in refused.stderr


def test_local_plans_without_spark(serving: Environment) -> None:
    refused = serving.run("ps2stream", "plan", "--objects", "none.jsonl", "--queries", "none.jsonl")
    assert "needs the package py4j" in refused.stderr
    assert ".[planner]'" in refused.stderr


def test_server_runs_a_service_of_actors(serving: Environment, root: Path, wheel: Path) -> None:
    serving.install(f"{wheel}[server]", pins=root / "requirements.txt")
    found = json.loads(serving.ps2stream(*DEMO))
    assert found["equal"] == found["sampled"] == 100


def test_connectors_need_no_service_here(
    root: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = make_environment(tmp_path_factory.mktemp("connectors"))
    made.install(f"{wheel}[kafka,mqtt,webhook,feeds]", pins=root / "requirements.txt")
    modules = (
        "kafka_source kafka_sink mqtt_source mqtt_sink webhook slack ntfy atom_file mail_sink "
        "cap_feed feed_source file_source wis2_notices"
    )
    for module in modules.split():
        done = made.run("python", "-c", f"import ps2stream.connectors.{module}")
        assert done.code == 0, done
    libraries = "confluent_kafka, paho.mqtt.client, prometheus_client"
    assert made.run("python", "-c", f"import {libraries}").code == 0
