"""Starts that fail: a Ray that is too slow, and a data directory that cannot be used. And what a
Ray says that dies."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ps2stream.cluster.private_folder import PrivateFolder, find_children
from ps2stream.cluster.ray_instance import RayInstance
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import DataDirectoryError
from ps2stream.observability.process import is_running
from ps2stream.store.directory import lock_directory

pytestmark = pytest.mark.ray
LIMIT = "RAY_gcs_server_port_wait_time_s"


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Ray forgets the process that was killed
def test_a_gcs_that_was_too_slow(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first: set[int] = set()
    end_first_try = RayInstance._end_first_try

    def look_and_end(instance: RayInstance) -> None:
        first.update(find_children(instance._folder))
        monkeypatch.delenv(LIMIT)
        end_first_try(instance)

    monkeypatch.setenv(LIMIT, "0")
    monkeypatch.setattr(RayInstance, "_end_first_try", look_and_end)
    with PrivateFolder(holds_sockets=True) as folder:
        instance = RayInstance(Settings(), folder.path)
        try:
            assert "it is started once more" in caplog.text
            assert first
            assert not any(map(is_running, first))
            assert not instance.find_loss()
            assert instance.get(instance.ray.remote(lambda: 7).remote(), 60, lambda: None) == 7
        finally:
            instance.close()
    gc.collect()


def test_a_data_directory_that_another_took_during_the_start_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sequencer finds it in its constructor, of which Ray brings back text alone."""
    monkeypatch.setattr("ps2stream.cluster.service.check_start", lambda _: None)
    settings = Settings(port=0, workers=1, data_dir=tmp_path)
    with (
        contextlib.closing(lock_directory(tmp_path)),
        pytest.raises(DataDirectoryError, match=f"^{tmp_path} is in use by process"),
    ):
        start(settings)


DEAD = """
import os
from ps2stream.cluster import ray_environment
ray_environment.prepare(os.environ)
from ray._private.worker import print_to_stdstream
for line in 2 * ["Raylet is terminated. Last lines:\\n    one\\n    two", "another line"]:
    print_to_stdstream({"lines": [line], "pid": "raylet", "is_err": False}, ignore_prefix=True)
"""


def test_the_last_lines_of_a_dead_raylet_are_not_printed(root: Path) -> None:
    """Its agents send them one by one; all other lines come through, and as often as they come."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    words = [sys.executable, "-c", DEAD]
    out = subprocess.check_output(words, env=clean, cwd=root, text=True, timeout=120)
    assert out.splitlines() == ["another line", "another line"]
