"""`serve` that is stopped while something starts that does not listen to it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.starting import HEARS_INTERRUPTS

SLOW_RAY = """
import subprocess, sys, time
DAEMON = "import time; print(flush=True); time.sleep(600)"
def is_initialized():
    return False
def init(_temp_dir, **_):
    words = [sys.executable, "-c", DAEMON, _temp_dir + "/session"]
    daemon = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
    daemon.stdout.readline()
    print("daemon", daemon.pid, file=sys.stderr, flush=True)
    until = time.monotonic() + 600
    while time.monotonic() < until:
        try:
            time.sleep(0.1)
        except BaseException:
            pass
"""


@pytest.mark.takes_turns
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_while_ray_starts_ends_at_once_and_leaves_nothing(
    number: int, tmp_path: Path, root: Path
) -> None:
    """Ray looks at no signal while it waits for its daemons, nor does the import of a module."""
    package = tmp_path / "packages" / "ray"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(SLOW_RAY)
    with tempfile.TemporaryDirectory(dir="/tmp") as base:
        serving = subprocess.Popen(
            [*HEARS_INTERRUPTS, sys.executable, "-m", "ps2stream.cli", "serve", "--port", "0",
             "--json", "--data-dir", str(tmp_path / "data")],
            env={**os.environ, "TMPDIR": base, "PYTHONPATH": f"{package.parent}:{root}"},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        )  # fmt: skip
        assert serving.stderr is not None
        daemon = next(filter(None, (re.match(r"daemon (\d+)", line) for line in serving.stderr)))
        serving.send_signal(number)
        out, err = serving.communicate(timeout=60)
        assert (serving.returncode, out) == (0, '{"event": "stopped"}\n'), err
        assert not Path(f"/proc/{daemon[1]}/cwd").exists()
        assert not list(Path(base).glob("ps2s-*"))
