"""The page about queries and posts over HTTP: its commands do what it shows."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from ps2stream.web.api.operations import OPERATIONS
from ps2stream.web.serve import ServedMap
from tests.http.conftest import Answer, ask

PAGE = "docs/howto/http-publish.md"


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    return (root / PAGE).read_text("utf-8")


def run_curl(command: str, home: str) -> Answer:
    """What curl would get."""
    method, headers, body, url = "", {}, None, ""
    words = iter(shlex.split(command)[1:])
    for word in words:
        match word:
            case "-X":
                method = next(words)
            case "-H":
                name, _, value = next(words).partition(": ")
                headers[name] = value
            case "-d" | "--data-binary":
                body = next(words).encode()
            case _:
                url = word.replace("localhost:7080/", home)
    return ask(url, method or ("GET" if body is None else "POST"), body, headers)


def check_shown(shown: Any, got: Any, where: str) -> None:
    """What is shown is there; of numbers and reasons only the kind is the same."""
    if isinstance(shown, dict):
        for name, value in shown.items():
            assert name in got, f"{where}.{name}"
            check_shown(value, got[name], f"{where}.{name}")
    elif isinstance(shown, list):
        for one, other in zip(shown, got, strict=True):
            check_shown(one, other, where)
    elif isinstance(shown, bool) or shown is None or (isinstance(shown, str) and " " not in shown):
        assert got == shown, where
    else:
        assert isinstance(got, str if isinstance(shown, str) else int | float), where


def test_the_commands_of_the_page_answer_what_it_shows(page: str, live: ServedMap) -> None:
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) == 20
    for command, shown in zip(lines[::2], lines[1::2], strict=True):
        answer = run_curl(command.removeprefix("$ "), live.url)
        assert answer.status in (200, 201), (command, answer.body)
        check_shown(json.loads(shown), answer.body, command)


def test_the_page_lists_every_operation(page: str) -> None:
    rows = re.findall(r"^\| `([A-Z]+) (/v1/\S+)` \| (.*) \|$", page, re.MULTILINE)
    assert rows == [(o.method, o.path, o.summary) for o in OPERATIONS]
