"""docs/tutorial.md, from beginning to end: every command, every program, what each prints.

Commands that end run in this process; services and the map are programs of their own, on free
ports. Digits differ from run to run where times and rates are told, so there any number will do.
"""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transcripts.replay import pattern, run, steps

LOOSE = ("publish", "explain", "price", "migrations", "plan")
"""Commands that tell times, rates and numbers of workers."""


class Desk:
    """A newcomer's terminals in the working directory."""

    def __init__(self, port: int, root: Path) -> None:
        self.port = str(port)
        self._root = root
        self._running: list[subprocess.Popen[str]] = []

    def does(self, command: str) -> str:
        """What a command prints; of one that goes on, its first line."""
        words = shlex.split(command)
        if words[:2] == ["ps2stream", "serve"]:
            return self._begun([*words[1:], "--port", self.port])
        if command == "ps2stream map":
            return self._begun(["map", "--server", f"localhost:{self.port}", "--port", "0"])
        if command == "kill -9 %1":
            self._running[-1].send_signal(signal.SIGTSTP)  # Ctrl-Z
            self._ended(signal.SIGKILL)
            return ""
        if words[0] == "python":
            done = subprocess.run(
                [sys.executable, *words[1:]], capture_output=True, text=True, check=True,
                env={"PYTHONPATH": str(self._root), "PATH": "/usr/bin:/bin"},
            )  # fmt: skip
            return done.stdout
        if words[:2] == ["rm", "-r"]:
            while self._running:  # Ctrl-C ends the map, and the service
                assert self._ended(signal.SIGINT) in (0, 130)
            shutil.rmtree(words[2])
            return ""
        return run(command.replace("localhost:7077", f"localhost:{self.port}"))

    def close(self) -> None:
        while self._running:
            self._ended(signal.SIGKILL)

    def _begun(self, arguments: list[str]) -> str:
        process = subprocess.Popen(
            [sys.executable, "-m", "ps2stream", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={"PYTHONPATH": str(self._root), "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        self._running.append(process)
        assert process.stdout is not None
        return process.stdout.readline()

    def _ended(self, how: signal.Signals) -> int:
        process = self._running.pop()
        process.send_signal(how)
        process.communicate(timeout=60)
        return process.returncode


@pytest.fixture
def desk(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PS2STREAM_SERVER", f"localhost:{port}")
    found = Desk(port, root)
    yield found
    found.close()


def numbers(text: str) -> str:
    """Any number as the same, any space as one."""
    return re.sub(r" +", " ", re.sub(r"[-+\d.,:TZ]*\d[-+\d.,:TZ]*", "0", text))


def is_as_told(command: str, got: str, told: str, port: str) -> bool:
    got = re.sub(r":\d+/ ;", ":7080/ ;", got.replace(port, "7077")).strip()
    got = re.sub(r"\n?\[\d+\]$", "", got) if told.startswith("ps2stream: ") else got
    words = command.split()
    if (words[0] == "ps2stream" and words[1] in LOOSE) or "publish" in words:
        got, told = numbers(got), numbers(told)
    return re.fullmatch(pattern(told), got) is not None


def test_a_newcomers_half_hour(root: Path, desk: Desk) -> None:
    text = (root / "docs" / "tutorial.md").read_text("utf-8")
    blocks = re.findall(r"```(\w+)(?: title=\"(.+?)\")?\n(.*?)```", text, re.DOTALL)
    assert [kind for kind, _, _ in blocks].count("console") > 12
    for kind, title, body in blocks:
        if kind == "python":
            Path(title).write_text(body.replace("localhost:7077", f"localhost:{desk.port}"))
        for command, told in steps(body) if kind == "console" else ():
            got = desk.does(command)
            if told or not command.startswith("ps2stream"):
                assert is_as_told(command, got, told, desk.port), f"$ {command}\n{got}\n--\n{told}"
            else:
                assert not re.search(r"\[\d+\]$", got), got
