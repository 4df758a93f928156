"""An interrupt of a command that has hardly begun: its exit code, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

RUN = """
import os, runpy, signal, sys

module = sys.argv.pop(1)
handlers = {"ignored": signal.SIG_IGN, "default": signal.default_int_handler}
signal.signal(signal.SIGINT, handlers[sys.argv.pop(1)])  # whatever those above have set

class Interrupting:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting)
runpy.run_module("ps2stream", run_name="__main__", alter_sys=True)
"""
"""Runs the command, which is interrupted when it loads a module."""


def run(module: str, handling: str, *words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", RUN, module, handling, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "module", ["ps2stream.cli", "click", "ps2stream.commands.output", "ps2stream.commands.config"]
)
def test_an_interrupt_while_modules_are_loaded_ends_with_130_alone(module: str) -> None:
    assert run(module, "default", "config", "--help") == (130, "", "")


def test_a_job_in_the_background_is_not_interrupted() -> None:
    code, out, err = run("click", "ignored", "--version")
    assert (code, err) == (0, "")
    assert out.startswith("ps2stream")


def test_the_program_that_is_installed_begins_there(root: Path) -> None:
    scripts = tomllib.loads((root / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, name = scripts["ps2stream"].partition(":")
    assert module == "ps2stream.__main__"
    assert callable(getattr(import_module(module), name))
