"""The runtime `local`: one process, which knows nothing of Ray."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.takes_turns(1)

SERVE = pytest.param(
    "serve --data-dir data",
    marks=pytest.mark.repeats("tests/packaging/test_local.py::test_it_imports_no_ray"),
)


@pytest.mark.parametrize("command", ["demo --seconds 1 --queries 50", SERVE])
def test_it_imports_no_ray(root: Path, tmp_path: Path, command: str) -> None:
    listen = ["--port", "0"] if command.startswith("serve") else []
    with (
        (tmp_path / "imports").open("w") as imports,
        subprocess.Popen(
            [sys.executable, "-X", "importtime", "-m", "ps2stream", *command.split(),
             "--runtime", "local", *listen],
            cwd=tmp_path, env={"PYTHONPATH": str(root)}, text=True,
            stdout=subprocess.PIPE, stderr=imports,
        ) as running,
    ):  # fmt: skip
        assert running.stdout is not None
        seen = next((line for line in running.stdout if "listens on" in line), "")
        if listen:
            running.terminate()
        running.stdout.read()
    assert seen
    assert running.returncode == 0
    imported = set(re.findall(r"\| +(\w+)", (tmp_path / "imports").read_text("utf-8")))
    assert {"numba", "grpc"} <= imported
    assert "ray" not in imported
