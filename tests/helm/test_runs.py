"""What the manifests run, run: settings, tokens, probe, and the test of a release."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from ps2stream import config
from ps2stream.cli import main
from ps2stream.cluster.service import start
from ps2stream.connectors.pipeline_config import build_job
from tests.helm.conftest import Manifest, case, manifests, of_kind, pods, with_value
from tests.support.certificates import Authority

HOSTS = {"ray_address", "nodes_s", "dispatcher_ports", "link_ports", "log_url", "log_config"}
"""Settings of a service on several hosts, and of the logs that it has in Kafka."""


def settings_of(found: list[Manifest]) -> str:
    [text] = [
        each["data"]["ps2stream.toml"]
        for each in of_kind(found, "ConfigMap")
        if "ps2stream.toml" in each["data"]
    ]
    return str(text)


def test_the_service_takes_the_settings(rendered: list[Manifest], tmp_path: Path) -> None:
    file = tmp_path / "ps2stream.toml"
    file.write_text(settings_of(rendered))
    settings = config.load(config=file, environ={"PS2STREAM_DATABASE_URL": "postgresql://db/x"})
    assert settings.host == "0.0.0.0"
    assert settings.port == 7077
    assert settings.database_url is not None
    told = tomllib.loads(file.read_text())
    assert settings.model_fields_set >= told.keys()


def test_odd_values_come_through(tmp_path: Path) -> None:
    values = with_value(case("tenants"), ("settings",), {
        "retention_bytes": 1 << 40, "sigma": 1.0000001, "retention_hours": 24,
        "stemmer": "eng\"lish\\ <&>", "quotas": {"a.b": {"queries": 123456789012}},
        "identities": {"CN \"x\".y": {"scopes": ["publish", "admin"], "tenant": "t"}},
    })  # fmt: skip
    told = tomllib.loads(settings_of(manifests(values)))
    for name, value in values["settings"].items():
        assert told[name] == value, name


class Running(NamedTuple):
    """A service whose token came as a Secret does, and where the files of pods lie."""

    target: str
    folder: Path


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """In one process, with a data directory in place of PostgreSQL and Kafka; all else as in the
    pod of the controller."""
    folder = tmp_path_factory.mktemp("pod")
    authority = Authority(folder)
    pair, own = authority.issue("server"), authority.issue("client")
    places = {
        "etc/ps2stream/tls/tls.crt": pair.cert, "etc/ps2stream/tls/tls.key": pair.key,
        "etc/ps2stream/client-ca/ca.crt": authority.ca,
        "etc/ps2stream/authority/ca.crt": authority.ca,
        "etc/ps2stream/client/tls.crt": own.cert, "etc/ps2stream/client/tls.key": own.key,
    }  # fmt: skip
    for path, source in places.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(source.read_bytes())
    values = with_value(case("tenants"), ("tokens",), [
        {"secret": "s", "key": "k", "scopes": ["publish", "subscribe"]},
    ])  # fmt: skip
    found = manifests(values)
    for path in ("run/ps2stream/token-0/token", "run/ps2stream/token"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
    text = f"ps2s_{secrets.token_hex(8)}_{secrets.token_hex(32)}\n"
    (folder / "run/ps2stream/token-0/token").write_text(text)
    (folder / "run/ps2stream/token").write_text(text)
    told = settings_of(found).replace('"/etc/', f'"{folder}/etc/')
    lines = [line for line in told.splitlines() if not line.startswith(("trace_", *HOSTS))]
    settings = folder / "etc/ps2stream/settings/ps2stream.toml"
    settings.parent.mkdir()
    head = f'data_dir = "{folder / "data"}"\nruntime = "local"\n'
    local = {"port": "0", "dispatchers": "1", "host": '"127.0.0.1"', "auth": "true"}
    kept = [line for line in lines if line.split(" =")[0] not in local]
    head += "".join(f"{name} = {value}\n" for name, value in local.items())
    settings.write_text(head + "\n".join(kept) + "\n")
    controller = of_kind(found, "Deployment")[0]
    keep = controller["spec"]["template"]["spec"]["initContainers"][1]["command"]
    assert keep[:3] == ["ps2stream", "token", "keep"]
    words = [word.replace("/run/", f"{folder}/run/") for word in keep[1:]]
    done = CliRunner().invoke(main, words, env={"PS2STREAM_CONFIG": str(settings)})
    assert done.exit_code == 0, done.output
    with start(config.load(config=settings, environ={})) as service:
        yield Running(service.targets[0].replace("127.0.0.1", "localhost"), folder)


def words_of(command: list[str], running: Running) -> list[str]:
    """A pod's command, with its files and the service where they are here."""
    found = [word.replace("=/", f"={running.folder}/", 1) for word in command]
    return [f"--server={running.target}" if w.startswith("--server=") else w for w in found]


def role(name: str, of: str = "tenants") -> Any:
    [found] = [pod for pod in pods(manifests(case(of))) if pod.role == name]
    return found.spec["containers"][0]


def test_the_probe_finds_it_serving(running: Running) -> None:
    probe = role("dispatcher")["readinessProbe"]["exec"]["command"]
    assert probe[:3] == ["env", "GRPC_DNS_RESOLVER=native", "ps2stream"]
    done = CliRunner().invoke(main, words_of(probe[3:], running))
    assert (done.exit_code, done.output) == (0, f"{running.target} serves\n")


def test_the_test_delivers(running: Running, root: Path) -> None:
    [_, *words] = words_of(role("test")["command"], running)
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, timeout=120,
        env=os.environ | {"PYTHONPATH": str(root)},
    )  # fmt: skip
    assert done.returncode == 0, (done.stderr, time.monotonic() - begun)
    assert done.stdout.startswith("delivered: query test")


def test_the_pipelines_program_takes_its_options(tmp_path: Path) -> None:
    """All is understood but the file, which declares nothing here."""
    words = role("pipeline", "production")["command"]
    program = words.index("/opt/ps2stream/main.py")
    assert words[0] == "spark-submit"
    assert words[program + 1 : program + 3] == ["pipeline", "/etc/ps2stream/pipeline/pipeline.toml"]
    empty = tmp_path / "pipeline.toml"
    empty.write_text("")
    done = CliRunner().invoke(main, ["pipeline", str(empty), *words[program + 3 :]])
    assert done.exit_code == 2, done.output
    fields = {v["field"] for v in json.loads(done.output)["error"]["violations"]}
    assert fields == {"source.format", "checkpoint"}


def test_the_pipelines_file_declares_one() -> None:
    found = of_kind(manifests(case("production")), "ConfigMap")
    [text] = [f["data"]["pipeline.toml"] for f in found if "pipeline.toml" in f["data"]]
    assert build_job(tomllib.loads(text)).name == "feed"


def test_the_planners_program_takes_its_options(running: Running) -> None:
    words = role("planner")["command"]
    program = words.index("/opt/ps2stream/main.py")
    assert words[0] == "spark-submit"
    done = CliRunner().invoke(main, [*words_of(words[program + 1 :], running), "--dry-run"])
    assert done.exit_code == 11, done.output  # this token lacks the scope, and says so
    assert json.loads(done.output.splitlines()[-1])["error"]["code"] == "permission_denied"
