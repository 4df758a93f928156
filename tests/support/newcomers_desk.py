"""A newcomer's terminals: what a page's commands print, compared with what the page says.

Commands that end run in this process; services, maps and Python programs run as processes of
their own, on free ports.
"""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from ps2stream.cli import main

PORT, MAP_PORT = "7077", "7080"
"""The ports in the pages."""
REST = "<...>"
"""As the last line: the output goes on."""
_RATE = r"[\d,]+(\.\d+)?(e[+-]\d+)?"
VARYING = (
    r"(?<= in )\d+\.\d s \([\d,]+/s\)$",
    rf"(?<=^matches    ){_RATE} a second \({_RATE} to {_RATE} at 95%\)",
    rf"(?<=^traffic    ){_RATE} a second, over [\d,]+ s$",
    r"(?<=  )\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00  \d+\.\d s(?=  transferred)",
)
"""All that differs from run to run: times, and rates of something in a second."""
_FULL_DISK = r"^NOT healthy\n  - the disk of the data directory is nearly full: .*$"
"""What a machine with little room has in place of "healthy"."""


class Desk:
    """The working directory is the newcomer's."""

    def __init__(self, root: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = str(free.getsockname()[1])
        self._environment = {"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"}
        self._running: list[subprocess.Popen[str]] = []

    def close(self) -> None:
        while self._running:
            self._end(signal.SIGKILL)

    def write(self, name: str, text: str) -> None:
        """Save a program of the page."""
        Path(name).write_text(text.replace(f"localhost:{PORT}", f"localhost:{self.port}"), "utf-8")

    def stop(self) -> None:
        """Ctrl-C in the other terminal."""
        while self._running:
            assert self._end(signal.SIGINT) in (0, 130)

    def run(self, command: str) -> str:
        """What a command prints, as on a page; of one that goes on, its first line."""
        return self._run(command).replace(f":{self.port}", f":{PORT}")

    def _run(self, command: str) -> str:
        words = shlex.split(command.replace(f"localhost:{PORT}", f"localhost:{self.port}"))
        if words[:2] == ["ps2stream", "serve"]:
            runtime = [] if "--runtime" in words else ["--runtime", "local"]
            given = [re.sub(r"^9404$", "0", word) for word in words[1:]]
            return self._begin([*given, *runtime, "--port", self.port])
        if words[:2] == ["ps2stream", "map"]:
            shown = self._begin(["map", "--server", f"localhost:{self.port}", "--port", "0"])
            return re.sub(r"(?<=127\.0\.0\.1:)\d+(?=/ )", MAP_PORT, shown)
        if command == "kill -9 %1":
            self._running[-1].send_signal(signal.SIGTSTP)  # Ctrl-Z
            self._end(signal.SIGKILL)
            return ""
        if words[:2] == ["rm", "-r"]:
            self.stop()  # the map, and the service
            shutil.rmtree(words[2])
            return ""
        if words[0] == "python":
            done = subprocess.run(
                [sys.executable, *words[1:]], capture_output=True, text=True, check=True,
                env=self._environment,
            )  # fmt: skip
            return done.stdout
        text = ""
        if words[0] == "echo":
            text = words[1] + "\n"
            if words[2] == ">":
                Path(words[3]).write_text(text, "utf-8")
                return ""
            assert words[2] == "|", command
            words = words[3:]
        assert words[0] == "ps2stream", command
        target = {"PS2STREAM_SERVER": f"localhost:{self.port}"}
        done_here = CliRunner(env=target).invoke(main, words[1:], input=text, terminal_width=96)
        if done_here.exception is not None and not isinstance(done_here.exception, SystemExit):
            raise done_here.exception
        return done_here.stdout + (done_here.stderr if done_here.exit_code else "")

    def _begin(self, arguments: list[str]) -> str:
        process = subprocess.Popen(
            [sys.executable, "-m", "ps2stream", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=self._environment,
        )  # fmt: skip
        self._running.append(process)
        assert process.stdout is not None
        return process.stdout.readline()

    def _end(self, how: signal.Signals) -> int:
        process = self._running.pop()
        process.send_signal(how)
        process.communicate(timeout=60)
        return process.returncode


def difference(got: str, told: str) -> str:
    """How an output differs from the page's, but for VARYING; "" if it does not."""
    got, told = (_without_varying(text) for text in (got, told))
    goes_on = told.endswith(f"\n{REST}")
    told = told.removesuffix(REST)
    same = got.startswith(told) and len(got) > len(told) if goes_on else got == told
    return "" if same else f"{got}\n-- the page has:\n{told}"


def _without_varying(text: str) -> str:
    text = re.sub(_FULL_DISK, "healthy", text, flags=re.MULTILINE)
    text = "\n".join(line.rstrip() for line in text.strip().splitlines())
    for varying in VARYING:
        text = re.sub(varying, "(varies)", text, flags=re.MULTILINE)
    return text
