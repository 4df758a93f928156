"""Python processes in which only what the bare distribution installs can be imported."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = (
    "ps2stream", "click", "google", "grpc", "grpc_health", "grpc_status", "markdown_it", "mdurl",
    "pygments", "rich", "typing_extensions",
)  # fmt: skip
"""What a bare installation has besides the standard library."""
BLOCK = f"""
import sys

class AllowingFinder:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in {ALLOWED!r} or top in sys.stdlib_module_names:
            return self.finder.find_spec(name, path, target)

sys.meta_path[:] = map(AllowingFinder, sys.meta_path)
"""
CLI = "from ps2stream.cli import main; main(prog_name='ps2stream')"
REFERENCE = "import argparse, asyncio, dataclasses, json, typing"
REFERENCE_CPU_S = 0.08  # of two idle cores of 2022; with other programs beside it, up to 0.2


class FinishedProcess(NamedTuple):
    """The output of a process, its exit code, and the CPU that it took in seconds."""

    code: int
    stdout: str
    stderr: str
    cpu_s: float


def run_python(
    code: str,
    *arguments: str,
    bare: bool = True,
    stdin: str = "",
    environ: Mapping[str, str] | None = None,
) -> FinishedProcess:
    """Runs Python code in a process of its own; with `bare` it can import ALLOWED only."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", BLOCK * bare + code, *arguments],
        check=False, cwd=ROOT, input=stdin, capture_output=True, text=True, timeout=120,
        env={k: v for k, v in os.environ.items() if not k.startswith("PS2STREAM_")}
        | {"PYTHONPATH": str(ROOT)} | dict(environ or {}),
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return FinishedProcess(done.returncode, done.stdout, done.stderr, cpu_s)


def run_cli(*arguments: str, bare: bool = True, stdin: str = "") -> FinishedProcess:
    """Runs the command ps2stream."""
    return run_python(CLI, *arguments, bare=bare, stdin=stdin)


def machine_slowness() -> float:
    """How much longer a start of Python takes now than on an idle machine; at least 1.

    Programs that share a core's cache and pipeline lengthen even the CPU time of the others, so a
    limit in seconds holds for an idle machine and is multiplied by this elsewhere.
    """
    least = min(run_python(REFERENCE, bare=False).cpu_s for _ in range(3))
    return max(1.0, least / REFERENCE_CPU_S)
