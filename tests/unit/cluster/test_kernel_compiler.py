"""The processes that compile kernels: what they report, and what happens if one fails."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from ps2stream.cluster import kernel_compiler
from ps2stream.cluster.kernel_compiler import KERNELS, compile_in_halves, report
from ps2stream.cluster.topology import Topology
from ps2stream.language.analyzer import Analysis
from ps2stream.routing.plan import built_in_plan
from ps2stream.space.grid import Grid

COUNT = """
import sys, types
from ps2stream.cluster.topology import Topology
from ps2stream.cluster.warm_halves import rehearse_index, rehearse_service
from ps2stream.language.analyzer import Analysis
from ps2stream.routing.plan import built_in_plan
from ps2stream.space.grid import Grid

def find_called(kernel):
    codes, names = [kernel.py_func.__code__], set()
    for code in codes:
        names.update(code.co_names)
        codes += [part for part in code.co_consts if isinstance(part, types.CodeType)]
    found = [kernel.py_func.__globals__.get(name) for name in names]
    found += [cell.cell_contents for cell in kernel.py_func.__closure__ or ()]
    return [each for each in found if type(each).__name__ == "CPUDispatcher"]

topology = Topology(built_in_plan(Analysis(salt=0), Grid(), 2))
rehearse_service(topology)
rehearse_index(topology)
modules = [m for name, m in list(sys.modules.items()) if name.startswith("ps2stream.")]
values = [value for module in modules for value in vars(module).values()]
kernels = [v for v in values if type(v).__name__ == "CPUDispatcher" and v.signatures]
seen = {id(kernel) for kernel in kernels}
for kernel in kernels:
    called = {id(k): k for k in find_called(kernel) if id(k) not in seen}
    seen.update(called)
    kernels += called.values()
compiled = [k for k in kernels if k.targetoptions.get("inline") != "always"]
names = {(k.py_func.__module__, k.py_func.__qualname__) for k in compiled}
print(sum(module.startswith("ps2stream.") for module, _ in names))
"""
"""Counts the kernels that the rehearsal calls, and those that they call: what is not a part of its
callers is compiled by itself."""

TOPOLOGY = Topology(built_in_plan(Analysis(salt=0), Grid(), 2))


def test_the_number_of_compiled_kernels_is_logged_while_they_are_compiled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = iter([0.0, 1.0, 6.0, 7.0, 12.5, 13.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    caplog.set_level(logging.INFO, "ps2stream")
    report(["a\n", "b\n", "b\n", "c\n"])
    assert [record.getMessage() for record in caplog.records] == [
        f"compiled 2 of about {KERNELS} kernels",
        f"compiled 3 of about {KERNELS} kernels",
        "compiled 3 kernels in 13 s",
    ]


def test_as_many_kernels_are_announced_as_a_rehearsal_has() -> None:
    counted = subprocess.run(
        [sys.executable, "-c", COUNT], capture_output=True, text=True, check=True, timeout=600
    )
    assert int(counted.stdout) == KERNELS


def test_nothing_is_logged_where_nothing_was_compiled(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ps2stream")
    report([])
    assert caplog.records == []


def test_both_halves_receive_the_topology_and_a_failure_is_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    program = tmp_path / "python"
    code = (
        "import pickle, sys; half = sys.argv[3]; topology = pickle.load(sys.stdin.buffer);"
        "import os; os.write(1, f'{half} {topology.workers}\\n'.encode());"  # in one piece
        "sys.exit(3 if half == 'index' else 0)"
    )
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n')
    program.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(program))
    lines: list[str] = []
    monkeypatch.setattr(kernel_compiler, "report", lines.extend)
    compile_in_halves(TOPOLOGY)
    assert sorted(lines) == ["index 2\n", "service 2\n"]
    assert [record.getMessage() for record in caplog.records] == [
        "the rehearsal of the index ended with code 3"
    ]


def test_a_process_that_ends_at_once_is_a_failure_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    compile_in_halves(TOPOLOGY)
    assert len(caplog.records) == 2
