"""Memory of the service's processes, as Linux counts it."""

from __future__ import annotations

import os
from pathlib import Path

from ps2stream.cluster.running_service import RunningService


def resident(service: RunningService) -> dict[str, int]:
    """Returns the resident bytes of each actor's process, or of this one if all run in it."""
    return _read_bytes(service, "VmRSS")


def peak(service: RunningService) -> dict[str, int]:
    """Returns the most resident bytes since the last `reset`."""
    return _read_bytes(service, "VmHWM")


def reset(service: RunningService) -> None:
    """Restarts the measurement of `peak`."""
    for pid in _find_pids(service).values():
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def _read_bytes(service: RunningService, name: str) -> dict[str, int]:
    found = {}
    for actor, pid in _find_pids(service).items():
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        kib = next(line for line in lines if line.startswith(name + ":")).split()[1]
        found[actor] = int(kib) << 10
    return found


def _find_pids(service: RunningService) -> dict[str, int]:
    found = {name: s["pid"] for name, s in service.status().items() if "pid" in s}
    return found or {"service": os.getpid()}
