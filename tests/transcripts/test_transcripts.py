"""Replays the transcripts of this folder against a service."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from tests.support.replay import pattern, run, steps

FOLDER = Path(__file__).parent
NAMES = sorted(path.name for path in FOLDER.glob("*.txt"))


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A service in this process; the working directory is empty."""
    settings = Settings(
        port=0, hot="off", adjust="off", data_dir=tmp_path / "data", workers=2, runtime="local"
    )
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    with start(settings) as service:
        monkeypatch.setenv("PS2STREAM_SERVER", service.targets[0])
        yield service.targets[0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("server")
def test_transcript(name: str) -> None:
    for command, expected in steps((FOLDER / name).read_text("utf-8")):
        got = run(command).strip()
        assert re.fullmatch(pattern(expected), got), f"$ {command}\n{got}\n-- expected:\n{expected}"


def test_a_service_that_is_not_there() -> None:
    result = CliRunner().invoke(main, ["status", "--server", "127.0.0.1:1", "--timeout", "0.5"])
    assert result.exit_code == 5
    assert len(result.output.splitlines()) == 1


def test_bad_settings_are_one_line(tmp_path: Path) -> None:
    file = tmp_path / "ps2stream.toml"
    file.write_text("prot = 1\n")
    result = CliRunner().invoke(main, ["serve", "--config", str(file)])
    assert result.exit_code == 2
    assert result.output.startswith(f"ps2stream: prot: unknown setting (from {file})")
    assert len(result.output.splitlines()) == 1
