"""The tutorial and the README, from beginning to end: every command and what each prints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.newcomers_desk import Desk, difference
from tests.support.replay import steps

RANGE = " a second (0.9 to 4e-05 at 95%);"
_BLOCK = re.compile(r"^```(\w+)(?: title=\"(.+?)\")?\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.fixture
def desk(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.chdir(tmp_path)
    found = Desk(root)
    yield found
    found.close()


def wrong_steps(page: str, desk: Desk) -> Iterator[str]:
    """The commands of a page that print something else than it says, in their order."""
    for kind, title, body in _BLOCK.findall(page):
        if kind == "python":
            assert title, f"a program without a name: {body}"
            desk.write(title, body)
        for command, told in steps(body) if kind == "console" else ():
            if found := difference(desk.run(command), told):
                yield f"$ {command}\n{found}"
        for line in body.splitlines() if kind == "sh" else ():
            run_shell_line(line.partition("  #")[0].strip(), desk)


def run_shell_line(line: str, desk: Desk) -> None:
    """A line whose output a page does not show."""
    words = line.split()
    if words[:2] == ["ps2stream", "serve"]:
        desk.stop()
        assert "listens on" in desk.run(line)
    elif words[0] == "ps2stream":
        assert not re.search(r"^(ps2stream|Error): ", desk.run(line), re.MULTILINE), line
    elif words[0] == "prometheus":
        assert Path(words[1].partition("=")[2]).is_file()
    else:  # make: test_recipes_named_in_the_readme_exist
        assert words[0] in ("make", ".", "mkdir", "cd"), line


@pytest.mark.takes_turns(1)
def test_a_newcomers_half_hour(root: Path, desk: Desk) -> None:
    page = (root / "docs" / "tutorial.md").read_text("utf-8")
    assert len(_BLOCK.findall(page)) > 20
    assert next(wrong_steps(page, desk), "") == ""


@pytest.mark.takes_turns(2)
def test_the_tour_of_the_readme(root: Path, desk: Desk) -> None:
    page = (root / "README.md").read_text("utf-8")
    assert page.count("\n$ ps2stream") > 8
    assert next(wrong_steps(page, desk), "") == ""


@pytest.mark.parametrize(
    ("got", "told", "same"),
    [
        ("published 5 objects in 1.2 s (4/s)", "published 5 objects in 0.1 s (50/s)", True),
        ("published 6 objects in 1.2 s (4/s)", "published 5 objects in 0.1 s (50/s)", False),
        ("inserted a (LSN 2)", "inserted a (LSN 1)", False),
        ("a\nb\nc", "a\n<...>", True),
        ("a\nb\nc", "b\n<...>", False),
        ("a", "a\n<...>", False),
        (
            "NOT healthy\n  - the disk of the data directory is nearly full: 9.9% is free",
            "healthy",
            True,
        ),
        ("NOT healthy\n  - worker-0 does not work: no", "healthy", False),
        ("a  \nb\n", "a\nb", True),
        ("traffic    7.5 a second, over 9 s", "traffic    80.1 a second, over 10 s", True),
        ("matches    1 a second (0 to 2 at 95%); 4", f"matches    3{RANGE} 4", True),
        ("matches    1 a second (0 to 2 at 95%); 4", f"matches    1{RANGE} 5", False),
    ],
)  # fmt: skip
def test_numbers_count(got: str, told: str, same: bool) -> None:
    assert (difference(got, told) == "") is same
