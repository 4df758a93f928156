"""The page about alerts: its commands, from nothing to an alert, print what it shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.feed_server import feed_server
from tests.support.newcomers_desk import Desk, difference
from tests.support.replay import steps

_BLOCK = re.compile(r"^```(\w+)(?: title=\"(.+?)\")?\n(.*?)^```", re.DOTALL | re.MULTILINE)
SERVED = "http://127.0.0.1:8099"
ELSEWHERE = ("pip ", "ps2stream connect cap-source --url https:")
"""Beginnings of commands that need the internet, or the wheel."""


@pytest.fixture
def desk(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(root))
    found = Desk(root)
    yield found
    found.close()


def run_connector(command: str, url: str, port: str) -> str:
    """What a connector that ends prints, with the addresses of the page."""
    words = [word.replace(SERVED, url) for word in shlex.split(command)[1:]]
    done = subprocess.run(
        [sys.executable, "-m", "ps2stream", *words, "--server", f"127.0.0.1:{port}"],
        capture_output=True, text=True, check=True, env=os.environ, timeout=120,
    )  # fmt: skip
    return done.stdout.replace(url, SERVED).replace(f":{port}", ":7077")


@pytest.mark.takes_turns
def test_from_nothing_to_an_alert(root: Path, desk: Desk) -> None:
    page = (root / "docs" / "howto" / "alerts.md").read_text("utf-8")
    ran = 0
    with feed_server() as served:
        for kind, title, body in _BLOCK.findall(page):
            if kind == "xml":
                served.documents[f"/{title}"] = body.encode()
            for command, told in steps(body) if kind == "console" else ():
                if command.startswith(ELSEWHERE) or "http.server" in command:
                    continue
                if command.startswith("ps2stream connect"):
                    got = run_connector(command, served.url, desk.port)
                else:
                    got = desk.run(command)
                assert not difference(got, told)
                ran += 1
    assert ran == 4
