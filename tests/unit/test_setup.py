"""What the recipes install: a demo the packages of a service, tests the rest and programs too."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def commands_of(root: Path, tmp_path: Path, recipe: str) -> list[str]:
    """What `make` runs for a recipe where nothing is installed yet."""
    given = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "--dry-run", recipe, f"VENV={tmp_path / 'venv'}"],
        cwd=root, env=given, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [line.replace(str(tmp_path / "venv"), "VENV") for line in done.stdout.splitlines()]


def test_a_demo_installs_what_serves_and_nothing_else(root: Path, tmp_path: Path) -> None:
    setup, touch, demo = commands_of(root, tmp_path, "demo")
    assert (setup, touch) == ("sh scripts/setup.sh VENV server", "touch VENV/.server")
    assert demo.startswith("VENV/bin/ps2stream demo")
    assert "apt-get" not in (root / "scripts/setup.sh").read_text("utf-8").split("install() {")[1]


def test_tests_complete_the_environment_of_a_demo(root: Path, tmp_path: Path) -> None:
    assert commands_of(root, tmp_path, "setup") == [
        "sh scripts/setup.sh VENV dev",
        "sh scripts/test_tools.sh VENV",
        "touch VENV/.server VENV/.ready",
    ]  # fmt: skip
    (tmp_path / "venv").mkdir()
    for stamp in (".server", ".ready"):
        (tmp_path / "venv" / stamp).touch()
    assert commands_of(root, tmp_path, "setup")[-1].startswith("make: Nothing to be done")
    assert len(commands_of(root, tmp_path, "demo")) == 1


PYTHON = """#!/bin/sh
case "$*" in
"-m pip "*) printf '%s\\n' "$*" >>"$LOG"
    while [ $# -gt 0 ] && [ "$1" != --requirement ]; do shift; done
    [ $# = 0 ] || cat "$2" >>"$LOG" ;;
"-m ps2stream.cluster.warm") ;;
*) exec "$REAL" "$@" ;;
esac
"""


def test_a_service_is_built_once_and_ray_installed_beside_it(root: Path, tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON)
    python.chmod(0o755)
    log = tmp_path / "log"
    subprocess.run(
        ["sh", str(root / "scripts" / "setup.sh"), str(tmp_path / "venv"), "server"],
        env={**os.environ, "LOG": str(log), "REAL": sys.executable}, check=True,
    )  # fmt: skip
    local, server, ray = log.read_text().splitlines()
    assert local.endswith(" --editable .[local]")
    assert "--editable" not in server
    assert server.endswith(f" --requirement {tmp_path}/venv/server.txt")
    assert ray.startswith("ray[default]")
    assert ray.count("ray") == 1


@pytest.mark.parametrize(("ci", "code"), [("false", 0), ("true", 1)])
def test_a_missing_program_is_named_and_an_error_in_ci(
    root: Path, tmp_path: Path, ci: str, code: int
) -> None:
    """On a machine without apt-get."""
    for name in ("sh", "dirname", "awk", "grep", "id", "ls"):
        program = shutil.which(name)
        assert program is not None
        (tmp_path / name).symlink_to(program)
    done = subprocess.run(
        ["sh", str(root / "scripts" / "test_tools.sh"), "build/no-venv"],
        env={"PATH": str(tmp_path), "CI": ci}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    lines = done.stdout.splitlines()
    assert (
        "== mvn is missing, so tests are skipped: tests against Kafka, which Maven fetches "
        "(Debian: apt-get install maven)" in lines
    )
    assert any(line.startswith("== go is missing") and "https://go.dev" in line for line in lines)
    assert "in CI no test may be skipped" in done.stderr or not code
