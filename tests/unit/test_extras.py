"""ps2stream/extras.py: which extra brings which package, and when a hint names it."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

import pytest

from ps2stream.cli import COMMANDS
from ps2stream.errors import FailedPrecondition
from ps2stream.extras import (
    COMMAND_EXTRAS,
    EXTRAS,
    explain_missing_package,
    import_optional,
    name_missing_extra,
)

BY_ANOTHER = {"llvmlite": "numba", "py4j": "pyspark"}
"""Packages that come with the distribution of another."""


def distribution_names(requirements: list[str]) -> set[str]:
    """The names that requirements begin with, as the index spells them."""
    return {re.split(r"[\[<>=;]", one)[0].lower().replace("_", "-") for one in requirements}


@pytest.fixture(scope="module")
def project(root: Path) -> dict[str, list[str]]:
    """Distributions by extra; those of the bare package under the empty name."""
    found = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    return {"": found["dependencies"], **found["optional-dependencies"]}


def test_each_package_is_of_the_extra_that_brings_it(project: dict[str, list[str]]) -> None:
    origins = importlib.metadata.packages_distributions()
    for package, extra in EXTRAS.items():
        own = {name.lower().replace("_", "-") for name in origins[BY_ANOTHER.get(package, package)]}
        assert own & distribution_names(project[extra]), f"{package} is not of [{extra}]"


def test_every_package_that_the_code_imports_is_listed(
    root: Path, project: dict[str, list[str]]
) -> None:
    origins = importlib.metadata.packages_distributions()
    bare = distribution_names(project[""])
    known = {name for name, found in origins.items() if bare & set(found)}
    folders = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    for folder in folders["package-dir"].values():
        for file in (root / folder).rglob("*.py"):
            for top in imported_packages(file):
                ours = top == "ps2stream" or top in sys.stdlib_module_names
                assert ours or top in known or top in EXTRAS, f"{file}: {top} is of no extra"


def imported_packages(file: Path) -> set[str]:
    """The first names of what a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").split(".")[0])
    return found


def test_commands_have_extras_of_pyproject(project: dict[str, list[str]]) -> None:
    assert COMMAND_EXTRAS.keys() <= COMMANDS.keys()
    assert set(COMMAND_EXTRAS.values()) <= project.keys()


def test_only_a_package_that_is_missing_is_explained() -> None:
    for name in ("no_such_package", "numpy.no_such_module"):
        error = ModuleNotFoundError(f"No module named {name!r}", name=name)
        assert explain_missing_package(error, "It") is None
    with pytest.raises(ModuleNotFoundError), name_missing_extra("It"):
        importlib.import_module("no_such_package")


def test_a_missing_package_is_explained_by_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTRAS, "no_such_package", "kafka")
    with pytest.raises(FailedPrecondition) as caught:
        import_optional("no_such_package", "A sink")
    assert str(caught.value) == (
        "A sink needs the package no_such_package, which is not installed: pip install "
        "'./ps2stream-0.1.0-py3-none-any.whl[kafka]', or in a checkout: pip install '.[kafka]'"
    )
    monkeypatch.setitem(EXTRAS, "no_such_package", "local")
    error = ModuleNotFoundError(name="no_such_package")
    for extra, named in ((None, "[local]"), ("server", "[server]")):
        assert named in str(explain_missing_package(error, "It", extra))
