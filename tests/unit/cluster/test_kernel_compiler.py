"""The processes that compile kernels: what they report, and what happens if one fails."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from ps2stream.cluster import kernel_compiler
from ps2stream.cluster.kernel_compiler import KERNELS, compile_in_halves, report
from ps2stream.cluster.topology import Topology
from ps2stream.language.analyzer import Analysis
from ps2stream.routing.plan import built_in_plan
from ps2stream.space.grid import Grid

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
