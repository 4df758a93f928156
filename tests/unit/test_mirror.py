"""The tests mirror the rooms: each module has its test file, and rooms keep their private names.

A module that another place tests, because it needs Spark for example, is in EXEMPT with that place.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOMS = ("controller", "dispatcher", "merger", "planner", "sequencer", "workers")
"""The rooms whose tests mirror them, with their sub-packages."""
EXEMPT = {
    "planner/compaction.py": "tests/spark/test_compaction.py",
    "planner/spark.py": "tests/spark/test_twins.py",
    "planner/spark_archive.py": "tests/spark/test_compaction.py",
    "planner/spark_candidates.py": "tests/spark/test_candidates.py",
    "planner/spark_migration.py": "tests/spark/test_migration.py",
    "planner/spark_rest.py": "tests/spark/test_twins.py",
    "planner/spark_session.py": "tests/spark/test_spark_session.py",
}
"""The test file of each module that has it elsewhere."""
PRIVATE = re.compile(r"_(?!_)")


def modules_of(room: str, root: Path) -> list[str]:
    """The modules of a room, as paths from the root."""
    found = (path.relative_to(root).as_posix() for path in (root / room).rglob("*.py"))
    return sorted(name for name in found if not name.endswith("__init__.py"))


def place_of(module: str) -> str:
    """The test file of a module."""
    path = Path(module)
    return EXEMPT.get(module) or f"tests/unit/{path.parent.as_posix()}/test_{path.name}"


def dotted(module: str) -> str:
    return "ps2stream." + module.removesuffix(".py").replace("/", ".")


def imported_names(tree: ast.AST) -> dict[str, str]:
    """What each name stands for that a file imports: `t` after `import a.b as t` is a.b."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return found


def spelled(node: ast.expr) -> str:
    """A chain of attributes as it is written: `a.b.c`; empty for any other expression."""
    if isinstance(node, ast.Attribute):
        before = spelled(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""


def full_name(written: str, names: dict[str, str]) -> str:
    """What a written name stands for; empty if no import begins it."""
    parts = written.split(".")
    for n in range(len(parts), 0, -1):
        if (known := names.get(".".join(parts[:n]))) is not None:
            return ".".join([known, *parts[n:]])
    return ""


def names_used(tree: ast.AST) -> Iterator[str]:
    """The full names of the package that a file imports, reads or patches."""
    names = imported_names(tree)
    yield from names.values()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield full_name(spelled(node), names)
        elif isinstance(node, ast.Call) and spelled(node.func).endswith(("setattr", "delattr")):
            constants = [a.value for a in node.args if isinstance(a, ast.Constant)]
            first = full_name(spelled(node.args[0]), names) if node.args else ""
            if constants and isinstance(text := constants[0], str):
                yield f"{first}.{text}" if first else text


def private_names(source: str, room: str) -> set[str]:
    """The private names of other rooms that a test file of `room` uses."""
    used = {name for name in names_used(ast.parse(source)) if name.startswith("ps2stream.")}
    foreign = {name for name in used if name.split(".")[1] != room}
    return {name for name in foreign if any(map(PRIVATE.match, name.split(".")))}


def files_of_tests(room: str, root: Path) -> list[Path]:
    return sorted((root / "tests" / "unit" / room).rglob("*.py"))


def folders_of_tests(root: Path) -> list[str]:
    """The rooms that have a folder of unit tests."""
    return sorted(
        path.name for path in (root / "tests" / "unit").iterdir() if any(path.glob("*.py"))
    )


@pytest.mark.parametrize("room", ROOMS)
def test_every_module_has_a_test_file_that_imports_it(room: str, root: Path) -> None:
    modules = modules_of(room, root)
    assert modules
    missing = []
    for module in modules:
        place = root / place_of(module)
        names = imported_names(ast.parse(place.read_text("utf-8"))) if place.is_file() else {}
        wanted = dotted(module)
        if not any(f"{name}.".startswith(f"{wanted}.") for name in names.values()):
            missing.append(f"{module}: {place.relative_to(root)}")
    assert not missing


def test_only_modules_that_exist_are_exempt(root: Path) -> None:
    assert not [module for module in EXEMPT if not (root / module).is_file()]
    places = [Path(module) for module in EXEMPT]
    folder = root / "tests" / "unit"
    needless = [p for p in places if (folder / p.parent / f"test_{p.name}").is_file()]
    assert not needless


def test_no_test_uses_private_names_of_another_room(root: Path) -> None:
    found = {
        path.relative_to(root).as_posix(): names
        for room in folders_of_tests(root)
        for path in files_of_tests(room, root)
        if (names := private_names(path.read_text("utf-8"), room))
    }
    assert not found


def test_no_file_imports_a_test(root: Path) -> None:
    """What several use lies in tests/support, or in a conftest.py."""
    found = [
        f"{path.relative_to(root).as_posix()}: {name}"
        for path in sorted((root / "tests").rglob("*.py"))
        for name in imported_names(ast.parse(path.read_text("utf-8"))).values()
        if re.search(r"^tests\..*\.test_\w+", name)
    ]
    assert not found


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("from ps2stream.merger.fanout import _split", {"ps2stream.merger.fanout._split"}),
        ("import ps2stream.merger._fanout as f", {"ps2stream.merger._fanout"}),
        ("from ps2stream.merger import fanout\nfanout._split(1)",
         {"ps2stream.merger.fanout._split"}),
        ("import ps2stream.merger.fanout\nps2stream.merger.fanout._LIMIT",
         {"ps2stream.merger.fanout._LIMIT"}),
        ("from ps2stream.merger.fanout import Fanout as F\nF._send = 1",
         {"ps2stream.merger.fanout.Fanout._send"}),
        ("from ps2stream.merger import fanout\npatch.setattr(fanout, '_split', 1)",
         {"ps2stream.merger.fanout._split"}),
        ("def test(monkeypatch): monkeypatch.setattr('ps2stream.merger.fanout._split', 1)",
         {"ps2stream.merger.fanout._split"}),
        ("from ps2stream.merger import fanout\npatch.setattr(fanout, 'LIMIT', 1)", set()),
        ("from ps2stream.planner.hits import _hash\nx._private", set()),
        ("from ps2stream.merger import fanout\nfanout.__name__", set()),
    ],
)  # fmt: skip
def test_private_names_are_found_however_they_are_written(source: str, names: set[str]) -> None:
    assert private_names(source, "planner") == names
