"""examples/go: what a Go programmer makes of the protos, against a real service."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.replay import steps

PATIENCE_S = 600
"""Without Go's cache, gRPC and the standard library are compiled first."""


@pytest.fixture(scope="module")
def go(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with go and buf; without Go or Node: skipped, and a failure where CI=true."""
    lacking = [name for name in ("go", "npx") if shutil.which(name) is None]
    if lacking:
        complaint = f"{' and '.join(lacking)} not found (Debian: apt-get install golang nodejs npm)"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(complaint)
        pytest.skip(complaint)
    path = os.environ["PATH"]
    if shutil.which("buf") is None:
        (version,) = re.findall(
            r"^buf=(\S+)$", (root / "scripts" / "lint.sh").read_text(), re.MULTILINE
        )
        programs = tmp_path_factory.mktemp("bin")
        (programs / "buf").write_text(f'#!/bin/sh\nexec npx --yes @bufbuild/buf@{version} "$@"\n')
        (programs / "buf").chmod(0o755)
        path = f"{programs}:{path}"
    return {**os.environ, "PATH": path, "GOFLAGS": "-mod=readonly"}


@pytest.mark.takes_turns
def test_the_commands_of_the_guide_print_what_it_says(
    go: dict[str, str], root: Path, target: str
) -> None:
    """The second run gets the second match: the first one was acknowledged."""
    text = (root / "docs" / "howto" / "client.md").read_text("utf-8")
    (block,) = (b for b in re.findall(r"```console\n(.*?)```", text, re.DOTALL) if "go run" in b)
    told = list(steps(block))
    assert [command for command, _ in told] == [
        "cd examples/go",
        "go generate",
        "go run .",
        "go run .",
    ]
    for command, expected in told[1:]:
        done = subprocess.run(
            ["sh", "-c", command.replace("go run .", f"go run . {target}")],
            cwd=root / "examples" / "go", env=go, capture_output=True, text=True, check=False,
            timeout=PATIENCE_S,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert done.stdout.strip() == expected, command


def test_the_example_stays_short(root: Path) -> None:
    text = (root / "examples" / "go" / "client.go").read_text("utf-8")
    body = text.partition("func main() {\n")[2].partition("\n}\n")[0]
    assert len([line for line in body.splitlines() if line.strip()]) <= 35
