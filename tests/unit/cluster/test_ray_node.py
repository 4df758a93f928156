"""A host's part in a cluster of Ray: how it ends, and what it leaves."""

from __future__ import annotations

import signal
import tempfile
import threading
import time
from pathlib import Path

import pytest

from ps2stream.cluster import private_folder, ray_node
from ps2stream.errors import Unavailable


def test_a_ray_that_ends_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(private_folder, "_choose_base", lambda _: tmp_path)
    monkeypatch.setattr(ray_node, "_RAY", "import sys; sys.exit('Error: no such cluster')")
    with ray_node.RayNode(["--address=10.0.0.1:6379"]) as found:
        found._child.wait()
        with pytest.raises(Unavailable, match=r"Ray has ended .* \(code 1\): Error: no such clus"):
            found.check()
    assert list(tmp_path.iterdir()) == []


def test_a_ray_that_is_starting_and_deaf_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(private_folder, "_choose_base", lambda _: tmp_path)
    monkeypatch.setattr(ray_node, "NODE_STOP_S", 3600.0)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush"
    monkeypatch.setattr(ray_node, "_RAY", f"{deaf}=True); time.sleep(3600)")
    host = ray_node.RayNode([])
    while "deaf" not in host.last():
        time.sleep(0.01)
    ending = threading.Thread(target=host.stop, daemon=True)
    ending.start()
    ending.join(60)
    assert host.code == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []
