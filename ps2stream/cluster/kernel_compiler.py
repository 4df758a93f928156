"""The processes that compile the kernels, and the report of how far they are.

Numba compiles under one lock of its process, so threads would not help. Two processes share the
work (`warm_halves`) and leave the code on disk. What they compile does not stay in the memory of
the process that waits for them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterable

from ps2stream.cluster.topology import Topology

log = logging.getLogger("ps2stream.cluster")
HALVES = ("index", "service")
KERNELS = 303
"""Number of kernels that a service with the default index has, to report how far the
compiler is; tests/unit/cluster/test_kernel_compiler.py counts them."""
REPORT_S = 5.0


def compile_in_halves(topology: Topology) -> None:
    """Compiles the kernels of this topology in two processes; returns when both have ended. Logs
    how far they are, and a failure: whoever calls a kernel that was left out compiles it."""
    code = pickle.dumps(topology)
    read, write = os.pipe()
    children = [_start(half, code, write) for half in HALVES]
    os.close(write)  # so that the lines end with the processes
    with os.fdopen(read) as lines:
        report(lines)
    for half, child in zip(HALVES, children, strict=True):
        if exit_code := child.wait():
            log.warning("the rehearsal of the %s ended with code %d", half, exit_code)


def _start(half: str, topology: bytes, write: int) -> subprocess.Popen[bytes]:
    """Starts the process that plays this half; it ends if nobody reads what it prints."""
    command = [sys.executable, "-m", "ps2stream.cluster.warm_halves", half]
    # Colours for messages of errors, most of which nobody sees, take 3% of the time.
    environ = {**os.environ, "NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING": "1"}
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=write, start_new_session=True, env=environ
    )
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError), child.stdin:
        child.stdin.write(topology)
    return child


def report(lines: Iterable[str]) -> None:
    """Reads the names of compiled kernels, and logs their number every few seconds."""
    kernels: set[str] = set()
    begun = told = time.monotonic()
    for line in lines:
        kernels.add(line)
        if (now := time.monotonic()) - told >= REPORT_S:
            told = now
            log.info("compiled %d of about %d kernels", len(kernels), max(KERNELS, len(kernels)))
    if kernels:
        log.info("compiled %d kernels in %.0f s", len(kernels), time.monotonic() - begun)
