"""docs/cli.md and --help say the same, both ways."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click

from ps2stream.commands.output import CODES
from scripts import cli_docs


def test_the_help_of_every_command_is_in_the_docs(root: Path) -> None:
    text = (root / "docs" / "cli.md").read_text("utf-8")
    for path in cli_docs.commands():
        name = " ".join(("ps2stream", *path))
        assert cli_docs.help_of(path).rstrip() in text, f"{name}: run scripts/cli_docs.py"


def test_every_command_of_the_docs_exists(root: Path) -> None:
    text = (root / "docs" / "cli.md").read_text("utf-8")
    documented = re.findall(r"^## (ps2stream.*)$", text, re.MULTILINE)
    assert documented == [" ".join(("ps2stream", *path)) for path in cli_docs.commands()]


def test_every_option_has_help() -> None:
    for path in cli_docs.commands():
        command = cli_docs.command_of(path)
        for option in command.params:
            assert not isinstance(option, click.Option) or option.help, (path, option.name)


def test_every_exit_code_is_documented(root: Path) -> None:
    text = (root / "docs" / "cli.md").read_text("utf-8")
    for _, code, name in CODES:
        assert re.search(rf"^\| {code} \|.*`{name}` \|$", text, re.MULTILINE), name


def test_commands_named_in_the_readme_exist(root: Path) -> None:
    known = {" ".join(path) for path in cli_docs.commands() if path}
    for page in ("README.md", *(f"docs/{p.name}" for p in (root / "docs").glob("*.md"))):
        text = (root / page).read_text("utf-8")
        for words in re.findall(
            r"^(?:\$ )?(?:\.venv/bin/)?ps2stream ([a-z ]+)", text, re.MULTILINE
        ):
            first = words.split()[0]
            assert first in known, f"{page}: ps2stream {first}"


def test_recipes_named_in_the_readme_exist(root: Path) -> None:
    recipes = set(re.findall(r"^([a-z]+):", (root / "Makefile").read_text(), re.MULTILINE))
    named = re.findall(r"\bmake ([a-z]+)\b", (root / "README.md").read_text("utf-8"))
    assert named
    assert set(named) <= recipes | {"it", "up"}


def test_plan_offers_every_algorithm() -> None:
    from ps2stream.commands.plan_candidates import ALGORITHMS
    from ps2stream.planner import algorithms

    assert tuple(algorithms.ALGORITHMS) == ALGORITHMS


def test_commands_of_the_guides_parse(root: Path) -> None:
    """Every `ps2stream connect` of docs/howto, with its options."""
    checked = 0
    for page in (root / "docs" / "howto").glob("*.md"):
        text = page.read_text("utf-8").replace("\\\n", " ")
        for line in re.findall(r"^\$ ps2stream (connect .*)$", text, re.MULTILINE):
            group, name, *words = shlex.split(line)
            command = cli_docs.command_of((group, name))
            command.make_context(name, words)
            checked += 1
    assert checked >= 6
