"""An option under a name of another program, or of the clients: the error says what it is here."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from ps2stream.cli import main


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("list --target x:1", "No such option '--target'. Did you mean '--server'?"),
        ("insert q flood --host x", "No such option '--host'. Did you mean '--server'?"),
        ("serve --address ::1", "No such option '--address'. Did you mean '--host'?"),
        ("list --sever x:1", "No such option '--sever'. Did you mean '--server'?"),
        ("plan show --target x", "No such option '--target'."),  # it has no such thing
        ("list --colour", "No such option '--colour'."),
    ],
)
def test_the_option_that_was_meant_is_named(words: str, problem: str) -> None:
    found = CliRunner().invoke(main, words.split())
    assert (found.exit_code, found.stderr.splitlines()[-1]) == (2, f"Error: {problem}")
    found = CliRunner().invoke(main, [*words.split(), "--json"])
    assert json.loads(found.stderr)["error"]["message"] == f"arguments: {problem}"
