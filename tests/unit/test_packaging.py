"""The checkout is a truthful import tree; its dependencies have bounds, and pins."""

from __future__ import annotations

import tomllib
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
    extras = project["optional-dependencies"]
    lock = (root / "requirements.txt").read_text()
    assert "://" not in lock
    pinned = [line.split("==")[0].split("[")[0] for line in lock.splitlines() if "==" in line]
    used = [project["dependencies"], *(extras[name] for name in extras.keys() - {"dev", "fuzz"})]
    for requirement in (one for each in used for one in each):
        name = requirement.split(">")[0].split("[")[0].lower()
        if name != "ps2stream":  # an extra that includes another
            assert "<" in requirement, requirement
            assert name in pinned, f"{name} is not pinned; run: make lock"
