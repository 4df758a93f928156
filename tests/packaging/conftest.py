"""A wheel, environments that it is installed into, and a service for them to talk to."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.environments import Environment, make_environment


@pytest.fixture(scope="session")
def tracked(root: Path) -> list[str]:
    """The files of the checkout that Git tracks."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    return [name for name in listed if (root / name).is_symlink() or (root / name).is_file()]


@pytest.fixture(scope="session")
def wheel(root: Path, tracked: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the tracked files."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in tracked:
        source, target = root / name, folder / "clone" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            target.symlink_to(source.readlink())
        else:
            target.write_bytes(source.read_bytes())
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--disable-pip-version-check", "--wheel-dir", str(folder), str(folder / "clone")],
        check=True,
    )  # fmt: skip
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def bare(root: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the wheel alone, without an extra."""
    made = make_environment(tmp_path_factory.mktemp("bare"))
    made.install(str(wheel), pins=root / "requirements.txt")
    return made


@pytest.fixture(scope="module")
def server(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service that the checkout's environment runs."""
    folder = tmp_path_factory.mktemp("service")
    with subprocess.Popen(
        [sys.executable, "-m", "ps2stream", "serve", "--runtime", "local", "--workers", "2",
         "--port", "0", "--data-dir", str(folder / "data")],
        cwd=root, stdout=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        try:
            assert running.stdout is not None
            found = re.search(r"listens on (\S+);", running.stdout.readline())
            assert found is not None
            yield found[1]
        finally:
            running.terminate()
