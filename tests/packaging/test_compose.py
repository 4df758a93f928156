"""compose.yaml: its keys are those of Compose, and what its containers run, runs."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.certificates import Authority

TOP = {"name", "services", "secrets", "x-image"}
SERVICE = {
    "build", "cap_drop", "command", "depends_on", "environment", "healthcheck", "image", "ports",
    "read_only", "restart", "secrets", "security_opt", "shm_size", "stop_grace_period", "tmpfs",
    "user", "volumes",
}  # fmt: skip
HEALTHCHECK = {"interval", "start_period", "test", "timeout"}
"""Keys of the Compose Specification, as far as they are used."""


@pytest.fixture(scope="module")
def compose(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((root / "compose.yaml").read_text("utf-8"))
    return found


def test_every_key_is_one_of_compose(compose: dict[str, Any]) -> None:
    assert compose.keys() == TOP
    for service in compose["services"].values():
        assert service.keys() <= SERVICE
        assert service.get("healthcheck", {}).keys() <= HEALTHCHECK
        assert set(service["secrets"]) <= compose["secrets"].keys()
        assert set(service.get("depends_on", ())) <= compose["services"].keys()
    assert all(secret.keys() == {"file"} for secret in compose["secrets"].values())


def test_the_image_is_the_one_of_the_dockerfile(root: Path, compose: dict[str, Any]) -> None:
    dockerfile = (root / "Dockerfile").read_text("utf-8")
    for service in compose["services"].values():
        target, (name, version) = service["build"]["target"], service["image"].split(":")
        assert re.search(rf" AS {target}$", dockerfile, re.MULTILINE)
        assert f"ARG VERSION={version}\n" in dockerfile
        assert name == target
        [mount] = service["volumes"]
        inside = mount.split(":")[1]
        assert service["environment"]["PS2STREAM_DATA_DIR"].startswith(inside)
        assert service["environment"]["NUMBA_CACHE_DIR"].startswith(inside)


@pytest.mark.takes_turns(2)
def test_what_the_containers_run_serves(
    root: Path, compose: dict[str, Any], tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    files = {
        "admin": f"ps2s_{secrets.token_hex(8)}_{secrets.token_hex(32)}\n".encode(),
        "tls.crt": pair.cert.read_bytes(), "tls.key": pair.key.read_bytes(),
        "ca.crt": authority.ca.read_bytes(),
    }  # fmt: skip
    assert files.keys() == compose["secrets"].keys()
    (tmp_path / "secrets").mkdir()
    for name, content in files.items():
        (tmp_path / "secrets" / name).write_bytes(content)
    services = compose["services"]

    def words(command: list[str]) -> list[str]:
        here = [word.replace("/run/secrets", str(tmp_path / "secrets")) for word in command]
        assert here[0] == "ps2stream"
        return [sys.executable, "-m", *here]

    environment = os.environ | {
        "PYTHONPATH": str(root), "PS2STREAM_DATA_DIR": str(tmp_path / "data"),
        "PS2STREAM_RUNTIME": "local", "PS2STREAM_PORT": "0",
    }  # fmt: skip
    subprocess.run(words(services["token"]["command"]), env=environment, check=True)
    with subprocess.Popen(
        words(services["ps2stream"]["command"]),
        env=environment, stdout=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        try:
            assert running.stdout is not None
            found = re.search(r"listens on \S+:(\d+);", running.stdout.readline())
            assert found is not None
            _, *test = services["ps2stream"]["healthcheck"]["test"]
            probe = [word.replace(":7077", f":{found[1]}") for word in words(test)]
            subprocess.run(probe, env=environment, check=True)
            token = str(tmp_path / "secrets" / "admin")
            ask = words(["ps2stream", "status", *probe[-2:], f"--token-file={token}"])
            subprocess.run(ask, env=environment, check=True)
        finally:
            running.terminate()
