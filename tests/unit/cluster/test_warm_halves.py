"""The halves of the rehearsal; tests/service/test_compiled.py says that nothing is left out."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from ps2stream.cluster.topology import Topology
from ps2stream.cluster.warm_halves import KernelPrinter, rehearse_index, rehearse_service
from ps2stream.language.analyzer import Analysis
from ps2stream.routing.plan import built_in_plan
from ps2stream.space.grid import Grid
from ps2stream.workers.indexes import INDEX_NAMES, IndexName
from ps2stream.workers.machine import WorkerMachine

COMPILE_ONE = """
from numba import njit
from numba.core import event
from ps2stream.cluster.warm_halves import KernelPrinter
kernel = njit(lambda x: x + 1)
kernel.py_func.__module__ = "ps2stream.here"
with event.install_listener("numba:compile", KernelPrinter()):
    kernel(1)
"""


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_service_without_an_index_is_rehearsed_to_its_end(
    workers: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[WorkerMachine] = []
    make = Topology.worker

    def keep(topology: Topology, index: int) -> WorkerMachine:
        made.append(make(topology, index))
        return made[-1]

    monkeypatch.setattr(Topology, "worker", keep)
    rehearse_service(Topology(built_in_plan(Analysis(salt=0), Grid(), workers)))
    assert [record.getMessage() for record in caplog.records] == []
    assert sum(worker.matches for worker in made) > 0


@pytest.mark.parametrize("index", INDEX_NAMES)
def test_an_index_is_rehearsed_alone(index: IndexName) -> None:
    rehearse_index(Topology(built_in_plan(Analysis(salt=0), Grid(), 2), index=index))


def test_kernels_of_this_package_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    from numba import njit
    from numba.core import event

    ours: Any = njit(lambda x: x + 1)
    theirs: Any = njit(lambda x: x + 2)
    ours.py_func.__module__ = "ps2stream.here"
    with event.install_listener("numba:compile", KernelPrinter()):
        assert (ours(1), theirs(1)) == (2, 3)
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("ps2stream.here.")


def test_a_half_that_nobody_waits_for_ends_without_a_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    half = [sys.executable, "-c", COMPILE_ONE]
    ended = subprocess.run(
        half, check=False, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60
    )
    os.close(write)
    assert (ended.returncode, ended.stderr) == (1, "")


def test_what_nobody_calls_is_left_out_and_the_rest_is_called_as_before() -> None:
    from numba import njit
    from numba.core import event

    def _inner(x: int) -> int:
        return x + 1

    inner: Any = njit(_inner)
    outer: Any = njit(lambda x: inner(x) + 1)
    alone: Any = njit(_inner)
    for kernel in (inner, outer, alone):
        kernel.py_func.__module__ = "ps2stream.here"
    with event.install_listener("numba:compile", KernelPrinter()):
        assert (outer(1), alone(1)) == (3, 2)
    assert [k.targetoptions.get("no_cfunc_wrapper") for k in (inner, outer, alone)] == [True] * 3
    left_out = [k.targetoptions.get("no_cpython_wrapper") for k in (inner, outer, alone)]
    assert left_out == [True, None, None]
