"""The checkout is a truthful import tree, and the wheel holds it and nothing else."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOMS = (
    "benchmarks", "controller", "dispatcher", "experiments", "merger", "planner", "sequencer",
    "workers",
)  # fmt: skip


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_linked_into_the_package(root: Path, room: str) -> None:
    link = root / "ps2stream" / room
    assert link.is_symlink()
    assert link.readlink() == Path(f"../{room}")
    assert (root / room / "__init__.py").is_file()


def test_every_package_is_listed(root: Path) -> None:
    listed = set(
        tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    )
    found = {
        ".".join(("ps2stream", *folder.relative_to(base).parts))
        for base, place in (
            (root / "ps2stream", root / "ps2stream"),
            *((root, root / room) for room in ROOMS),
        )
        for folder in (place, *(path for path in place.glob("**/") if not path.is_symlink()))
        if (folder / "__init__.py").is_file()
    }
    assert listed == found


def test_dependencies_have_upper_bounds_and_the_lock_pins_them(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    for requirement in project["dependencies"]:
        assert "<" in requirement, requirement
    lock = (root / "requirements.txt").read_text()
    assert "://" not in lock
    pinned = [line.split("==")[0].split("[")[0] for line in lock.splitlines() if "==" in line]
    for requirement in project["dependencies"]:
        name = requirement.split(">")[0].split("[")[0].lower()
        assert name in pinned, f"{name} is not pinned; run: make lock"


@pytest.mark.slow
def test_the_wheel_holds_every_module_and_nothing_generic(root: Path, tmp_path: Path) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    clone = tmp_path / "clone"
    for name in filter(None, tracked):
        source, target = root / name, clone / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            target.symlink_to(source.readlink())
        elif source.is_file():
            target.write_bytes(source.read_bytes())
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--disable-pip-version-check", "--wheel-dir", str(tmp_path), str(clone)],
        check=True,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    held = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    expected = {
        name if name.startswith("ps2stream/") else f"ps2stream/{name}"
        for name in tracked
        if name.endswith(".py") and name.split("/")[0] in ("ps2stream", *ROOMS)
    }
    assert {n for n in held if n.endswith(".py")} == expected
    assert {n.split("/")[0] for n in held} == {"ps2stream"}
    assert {"ps2stream/py.typed", "ps2stream/space/places.arrow"} <= held
    page = {name for name in tracked if name.startswith("ps2stream/web/static/")}
    assert "ps2stream/web/static/index.html" in page <= held
