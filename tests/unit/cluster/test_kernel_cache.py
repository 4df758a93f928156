"""Where the kernels' code is kept, and when the rehearsal that compiles them is left out."""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from ps2stream.cluster import kernel_cache, warm
from ps2stream.cluster.kernel_cache import MARKER, VARIABLE, KernelCache, choose_folder
from ps2stream.cluster.topology import Topology
from ps2stream.commands.serve import StartProgress
from ps2stream.language.analyzer import Analysis
from ps2stream.routing.plan import built_in_plan
from ps2stream.space.grid import Grid
from ps2stream.workers.indexes import INDEX_NAMES


def test_the_rehearsal_is_left_out_only_while_all_that_it_compiled_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsed: list[int] = []
    halved: list[Topology] = []
    package = tmp_path / "package"
    package.mkdir()
    (source := package / "kernels.py").write_text("x = 1")
    compiled = tmp_path / "cache" / "kernels.nbi"
    compiled.parent.mkdir()

    def rehearse(_: Topology) -> None:
        rehearsed.append(1)
        compiled.write_text("code")

    monkeypatch.setenv(VARIABLE, str(compiled.parent))
    monkeypatch.setattr(kernel_cache, "PACKAGE", package)
    monkeypatch.setattr(warm, "warm", rehearse)
    monkeypatch.setattr(warm, "compile_in_halves", halved.append)
    monkeypatch.setattr(warm, "_LOADED", set())
    topology = Topology(built_in_plan(Analysis(salt=0), Grid(), 1))

    def starts(count: int) -> int:
        rehearsed.clear()
        for _ in range(count):
            warm.compile_kernels(topology)
        return len(rehearsed)

    assert (starts(1), starts(3)) == (1, 0)
    compiled.unlink()
    assert (starts(1), starts(1)) == (1, 0)
    os.utime(source, ns=(1, 1))  # another version
    assert (starts(1), starts(1)) == (1, 0)
    (compiled.parent / MARKER).write_text("[damaged")
    assert (starts(1), starts(1)) == (1, 0)
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_name", lambda: "another")
    assert (starts(1), starts(1)) == (1, 0)
    assert halved == [topology] * 5
    index, *_ = (name for name in INDEX_NAMES if name != topology.index)
    first, topology = topology, dataclasses.replace(topology, index=index)  # other kernels
    assert (starts(1), starts(1)) == (1, 0)
    topology = first  # whose code is still there
    assert starts(1) == 0


def test_without_a_folder_for_code_no_process_compiles_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    monkeypatch.setattr(warm, "warm", lambda _: called.append("here"))
    monkeypatch.setattr(warm, "compile_in_halves", lambda _: called.append("halves"))
    monkeypatch.setattr(warm, "_LOADED", set())
    topology = Topology(built_in_plan(Analysis(salt=0), Grid(), 1))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "file" / "folder"))  # which cannot be
    warm.compile_kernels(topology)
    assert called == ["here"]
    monkeypatch.setenv(VARIABLE, str(tmp_path / "new" / "folder"))  # which is made
    warm.compile_kernels(topology)
    assert called == ["here", "halves", "here"]


def test_nothing_is_marked_where_nothing_was_compiled(tmp_path: Path) -> None:
    cache = KernelCache(["Space"], {VARIABLE: str(tmp_path)})
    cache.mark()
    assert not cache.complete


def test_a_python_that_writes_no_bytecode_compiles_once_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code := tmp_path / "sequencer" / "__pycache__").mkdir(parents=True)
    (code / "kernels.nbi").write_text("code")  # Numba makes its folders, and no other
    monkeypatch.setattr(kernel_cache, "PACKAGE", tmp_path)
    cache = KernelCache(["Space"], {})
    cache.mark()
    assert cache.complete


def test_a_read_only_package_has_its_kernels_in_a_private_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, home = tmp_path / "package", tmp_path / "home"
    package.mkdir()
    environ = {"HOME": str(home)}
    choose_folder(environ, package)
    assert VARIABLE not in environ  # it is writable
    readable = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != package and readable(path, mode))
    choose_folder(environ, package)
    folder = home / ".cache" / "ps2stream" / "kernels"
    assert environ[VARIABLE] == str(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    folder.chmod(0o777)  # anybody could put code there
    environ = {"HOME": str(home)}
    choose_folder(environ, package)
    assert environ[VARIABLE] == str(tmp_path / f"ps2stream-kernels-{os.getuid()}")
    given = {VARIABLE: "/given"}
    choose_folder(given, package)
    assert given == {VARIABLE: "/given"}


def test_stages_are_shown_at_a_terminal_and_logged_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records: list[logging.LogRecord] = []
    keeper = logging.Handler()
    keeper.emit = records.append  # type: ignore[method-assign,assignment]
    logger = logging.getLogger("ps2stream")  # whose handlers other tests may have set
    monkeypatch.setattr(logger, "handlers", [keeper])
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(logger, "level", logger.level)
    logger.setLevel(logging.INFO)
    shown = io.StringIO()
    people = StartProgress(Console(file=shown, force_terminal=True, no_color=True), False)
    people.begin("starting Ray")
    assert shown.getvalue() == "starting Ray ...\n"
    people.begin("starting actors")
    people.begin("")
    assert shown.getvalue().splitlines()[1::2] == ["  0.0 s", "  0.0 s"]
    assert records == []
    quiet = io.StringIO()
    machines = StartProgress(Console(file=quiet, quiet=True), True)
    machines.begin("starting Ray")
    machines.begin("")
    [record] = records
    assert (record.stage, record.seconds, quiet.getvalue()) == ("starting Ray", 0.0, "")  # type: ignore[attr-defined]
    records.clear()
    journal = StartProgress(Console(file=quiet, quiet=True), False)
    journal.begin("starting Ray")
    assert [record.getMessage() for record in records] == ["start: starting Ray"]
    assert quiet.getvalue() == ""


def test_an_actor_imports_no_other_roles_machine() -> None:
    code = "import json, sys, ps2stream.cluster.actor_shells; print(json.dumps(list(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    rooms = ("dispatcher.router", "dispatcher.gridt", "workers.gi2", "workers.state",
             "merger.state", "planner.controller")  # fmt: skip
    heavy = {f"ps2stream.{room}" for room in rooms} | {"pyarrow", "grpc", "ray"}
    assert heavy.isdisjoint(json.loads(found.stdout))
