"""What a transcript says, and what comes of it: `$` begins a command, what follows is its output.

A command runs in this process. Understood besides ps2stream: `printf '...' | ps2stream ...` (or
echo) for standard input, `printf '...' > file`. `<...>` stands for text that differs from run to
run, on a line of its own for many lines; `[3]` at the end is the exit code.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from click.testing import CliRunner

from ps2stream.cli import main


def steps(text: str) -> Iterator[tuple[str, str]]:
    """(command, expected output) of a transcript; lines before the first are prose."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output.strip()


def run(command: str) -> str:
    """What the command prints, and its exit code where that is not 0."""
    words = shlex.split(command)
    given = ""
    if words[0] in ("printf", "echo"):
        given = words[1].replace("\\n", "\n") + "\n" * (words[0] == "echo")
        if words[2] == ">":
            Path(words[3]).write_text(given, "utf-8")
            return ""
        assert words[2] == "|", command
        words = words[3:]
    assert words[0] == "ps2stream", command
    result = CliRunner().invoke(main, words[1:], input=given, terminal_width=96)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output + (f"[{result.exit_code}]" if result.exit_code else "")


def pattern(expected: str) -> str:
    """A regular expression of the expected output."""
    lines = expected.split("\n")
    found = [".+?".join(map(re.escape, line.split("<...>"))) for line in lines]
    return "\n".join("(?s:.+?)" if part == ".+?" else part for part in found)
