"""SIGTERM while Ray starts or ends, for which it takes the process's own handler away."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path

from ps2stream.cluster.ray_instance import _keep_signals


def is_caught() -> bool:
    """Whether SIGTERM reaches a handler of this process."""
    status = Path("/proc/self/status").read_text()
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def test_sigterm_reaches_its_handler_also_while_ray_ends() -> None:
    got: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: got.append(number))
    default = ctypes.create_string_buffer(1024)  # of zeros: SIG_DFL, no flags, an empty mask
    try:
        with _keep_signals():
            for _ in range(2):
                ctypes.CDLL(None).sigaction(signal.SIGTERM.value, default, None)
                deadline = time.monotonic() + 30
                while not is_caught():
                    assert time.monotonic() < deadline
                    time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGTERM)
            assert got == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
