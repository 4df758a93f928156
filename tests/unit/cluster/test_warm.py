"""The rehearsal that compiles the kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from ps2stream.cluster import warm as rehearsal
from ps2stream.cluster.topology import Topology
from ps2stream.cluster.warm import _on_small_grid, load_kernels, warm
from ps2stream.language.analyzer import Analysis
from ps2stream.routing.plan import built_in_plan, text_plan
from ps2stream.routing.plan_file import load_plan
from ps2stream.space.grid import Grid
from ps2stream.workers.indexes import INDEX_NAMES


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_rehearsed_move_ends(workers: int, caplog: pytest.LogCaptureFixture) -> None:
    warm(Topology(built_in_plan(Analysis(salt=0), Grid(), workers)))
    assert [record.getMessage() for record in caplog.records] == []


def test_a_process_rehearses_once_for_each_kind_of_leaf(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsed: list[Topology] = []
    monkeypatch.setattr(rehearsal, "warm", rehearsed.append)
    monkeypatch.setattr(rehearsal, "_LOADED", set())
    spatial = Topology(built_in_plan(Analysis(salt=0), Grid(), 1))
    textual = Topology(load_plan(root / "examples" / "plan-text.json"))
    for topology in (spatial, textual, spatial, textual):
        load_kernels(topology)
    assert rehearsed == [spatial, textual]


def test_a_host_compiles_the_kernels_of_its_index(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Topology] = []
    monkeypatch.setattr(rehearsal, "compile_kernels", compiled.append)
    for index in INDEX_NAMES:
        rehearsal.prepare_host(index)
    assert [topology.index for topology in compiled] == list(INDEX_NAMES)


def test_a_rehearsal_needs_no_large_map() -> None:
    """The kinds of leaves stay, and so does what decides which kernels are called."""
    grid = Grid(12, 11, 512)
    plan = text_plan(Analysis(salt=0), grid, 2)
    small = _on_small_grid(Topology(plan)).plan
    assert small.grid == Grid(9, 8, 512)
    assert (small.leaves, small.workers) == (plan.leaves, plan.workers)
    same = Topology(built_in_plan(Analysis(salt=0), Grid(4, 9), 2))
    assert _on_small_grid(same).plan.grid == Grid(4, 8)
    default = Topology(built_in_plan(Analysis(salt=0), Grid(), 2))
    assert _on_small_grid(default) is default
