"""`ps2stream health`, by which a kubelet finds out whether a dispatcher serves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from tests.support.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def guarded(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningService]:
    pair = authority.issue("server")
    settings = Settings(
        runtime="local", port=0, workers=1, auth=True, tls_cert=pair.cert, tls_key=pair.key,
        data_dir=tmp_path_factory.mktemp("data"),
    )  # fmt: skip
    with start(settings) as running:
        yield running


def ask(target: str, *more: str) -> tuple[int, str]:
    found = CliRunner().invoke(main, ["health", "--server", target, "--timeout", "5", *more])
    return found.exit_code, found.output


def test_it_serves_and_asks_for_no_token(guarded: RunningService, authority: Authority) -> None:
    target = guarded.targets[0].replace("127.0.0.1", "localhost")
    assert ask(target, "--tls-ca", str(authority.ca)) == (0, f"{target} serves\n")
    code, said = ask(target, "--tls-ca", str(authority.ca), "--json")
    assert (code, json.loads(said)) == (0, {"serves": True})


def test_it_does_not_trust_just_anybody(guarded: RunningService, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    assert ask(guarded.targets[0], "--tls-ca", str(other.ca), "--timeout", "1")[0] == 5
    assert ask(guarded.targets[0], "--timeout", "1")[0] == 5


def test_nothing_answers() -> None:
    assert ask("127.0.0.1:1", "--timeout", "1")[0] == 5
