"""What code and pages cite can be opened: sections of docs/spec, decisions, pages, files."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SPEC = ("algorithms", "contract", "semantics", "speed")
NUMBER = r"\d+(?:\.\d+)*"
CITED = re.compile(
    rf"(?<![/\w-])(?<!\]\()({'|'.join(SPEC)})\.md((?:,?\s+{NUMBER})?(?:(?:, | and ){NUMBER})*)"
)
DECISION = re.compile(r"decisions?/(\d{4})\b")
PYTHON = re.compile(r"(?<![\w./{-])((?:[a-z_]+/)+[a-z_0-9]+\.py)\b")
PAGE = re.compile(r"(?<![\w./])(docs/[a-z0-9_/-]+\.md)\b")
INVENTED = {"there/engine.py"}


def listed(root: Path, *patterns: str) -> list[str]:
    """Tracked files."""
    command = ["git", "ls-files", *patterns]
    found = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return found.stdout.split()


def texts(root: Path) -> Iterator[tuple[str, str]]:
    """The path and text of each Python file and page; a line break in prose is a space."""
    for name in listed(root, "*.py", "*.md"):
        path = root / name
        if path.is_file() and not path.is_symlink() and name != "CHANGELOG.md":
            yield name, re.sub(r"\n[ #]*", " ", path.read_text("utf-8"))


def citations(root: Path) -> Iterator[tuple[str, str, str]]:
    """File, page of the specification, number of the section; empty where none is named."""
    for name, text in texts(root):
        for found in CITED.finditer(text):
            for number in re.findall(NUMBER, found[2]) or [""]:
                yield name, found[1], number


@pytest.fixture(scope="module")
def headings(root: Path) -> set[tuple[str, str]]:
    """Page and number of each section of docs/spec."""
    return {
        (page, number)
        for page in SPEC
        for number in re.findall(
            rf"^#+ ({NUMBER})\b", (root / "docs/spec" / f"{page}.md").read_text(), re.MULTILINE
        )
    }


def test_every_citation_of_the_specification_names_a_section(
    root: Path, headings: set[tuple[str, str]]
) -> None:
    found = list(citations(root))
    assert not [each for each in found if each[1:] not in headings]
    assert len(found) > 50


def test_every_section_of_the_algorithms_is_cited(
    root: Path, headings: set[tuple[str, str]]
) -> None:
    """The page holds what the code rests on, and nothing else."""
    cited = {(page, number) for _, page, number in citations(root)}
    cited |= {(page, number.partition(".")[0]) for page, number in cited}
    assert not {each for each in headings if each[0] == "algorithms"} - cited


def test_every_decision_and_page_that_is_named_exists(root: Path) -> None:
    decisions = {path.name[:4] for path in (root / "docs/decisions").glob("*.md")}
    wrong = [
        (name, number)
        for name, text in texts(root)
        for number in DECISION.findall(text)
        if number not in decisions
    ]
    wrong += [
        (name, page)
        for name, text in texts(root)
        for page in PAGE.findall(text)
        if not (root / page).is_file()
    ]
    assert not wrong


def test_every_python_file_that_is_named_exists(root: Path) -> None:
    known = {name.removeprefix("ps2stream/") for name in listed(root, "*.py")} | INVENTED
    wrong = [
        (name, path)
        for name, text in texts(root)
        for path in PYTHON.findall(text)
        if path.removeprefix("ps2stream/") not in known
    ]
    assert not wrong
