"""Virtual environments with a wheel, outside of the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class CommandResult(NamedTuple):
    """What a program printed, its exit code, and the CPU time that it took."""

    code: int
    stdout: str
    stderr: str
    cpu_s: float


class Environment(NamedTuple):
    """A virtual environment; `folder` is also where its programs run."""

    folder: Path

    @property
    def bin(self) -> Path:
        return self.folder / "venv" / "bin"

    def install(self, *what: str, pins: Path) -> None:
        """Installs with pip, with the versions that the lock pins."""
        pip = (sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install")
        how = (
            "--quiet",
            "--prefer-binary",
            "--disable-pip-version-check",
            "--constraint",
            str(pins),
        )
        subprocess.run([*pip, *how, *what], cwd=self.folder, env=environ(), check=True)

    def run(self, program: str, *arguments: str, stdin: str = "") -> CommandResult:
        """Runs one of the environment's programs, which knows nothing of the checkout."""
        before = os.times()
        done = subprocess.run(
            [self.bin / program, *arguments],
            cwd=self.folder, env=environ(), input=stdin, capture_output=True, text=True,
            check=False, timeout=300,
        )  # fmt: skip
        after = os.times()
        cpu_s = sum(after[2:4]) - sum(before[2:4])
        return CommandResult(done.returncode, done.stdout, done.stderr, cpu_s)

    def ps2stream(self, *arguments: str, stdin: str = "") -> str:
        """Returns what the command prints; it must succeed."""
        done = self.run("ps2stream", *arguments, stdin=stdin)
        assert done.code == 0, done
        return done.stdout

    def least_cpu_s(self, program: str, *arguments: str, times: int = 5) -> float:
        """Returns the least CPU time of some runs, which other work on the machine lengthens."""
        runs = [self.run(program, *arguments) for _ in range(times)]
        assert not any(run.code for run in runs), runs[0]
        return min(run.cpu_s for run in runs)


def environ() -> dict[str, str]:
    """The environment of programs that find packages in their own folder alone."""
    dropped = ("PYTHON", "PS2STREAM_", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(dropped)}


def make_environment(folder: Path) -> Environment:
    """Makes an empty virtual environment, by the Python of these tests, whose pip installs."""
    command = [sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")]
    subprocess.run(command, check=True)
    return Environment(folder)


def installed_bytes(environment: Environment) -> int:
    """Returns the size of all that is installed."""
    (packages,) = (environment.folder / "venv" / "lib").glob("python3*/site-packages")
    return sum(file.stat().st_size for file in packages.rglob("*") if file.is_file())
