"""A service from its settings: how long a match log keeps what nobody acknowledges, then a gap;
and an archive that cannot be written, with which nothing starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ps2stream.cluster import service
from ps2stream.cluster.service import start, topology_of
from ps2stream.config import Settings
from ps2stream.errors import DataDirectoryError
from ps2stream.language.analyzer import Analysis
from ps2stream.routing.plan import text_plan
from ps2stream.space.grid import Grid
from tests.support.merging import Rig, attach, inserts, release, rig

HOUR_MS = 3_600_000
MIB = 1 << 20


def kept_as(tmp_path: Path, **given: Any) -> Rig:
    """A merger as these settings make it, and one query of session 1."""
    settings = Settings(data_dir=tmp_path, workers=1, session_quota=1 << 30, **given)
    r = rig()
    topology = topology_of(settings, text_plan(Analysis(salt=1), Grid(), 1))
    r.machine = topology.merger(0, r.log)
    r.send(inserts(1, [1]))
    return r


def gaps(r: Rig) -> list[tuple[int, int, int]]:
    r.send(attach(1))
    assert r.clients[1].gapless()
    return r.clients[1].gaps


@pytest.mark.parametrize(("hours", "lost"), [(0.5, True), (2.0, False)])
def test_hours(tmp_path: Path, hours: float, lost: bool) -> None:
    r = kept_as(tmp_path, retention_hours=hours)
    for batch in range(0, 100, 4):  # 50 minutes
        r.send(release(batch, 4, 1, [(0, 1, 1)]))
        r.tick(20, HOUR_MS // 600)
    assert bool(gaps(r)) is lost
    if lost:  # the last half hour is there, and not much more
        assert 15 <= len(r.clients[1].pairs) <= 20


@pytest.mark.parametrize(("size", "lost"), [(4 * MIB, True), (64 * MIB, False)])
def test_bytes(tmp_path: Path, size: int, lost: bool) -> None:
    r = kept_as(tmp_path, retention_bytes=size)
    for batch in range(0, 64, 4):  # 16 MiB
        r.send(release(batch, 4, 1, [(0, 1, 1)], text="x" * MIB))
        r.tick(10)
    assert bool(gaps(r)) is lost
    if lost:
        assert 1 <= len(r.clients[1].pairs) <= 4
        assert r.log.bytes <= 2 * size


@pytest.mark.parametrize("runtime", ["local", "ray"])
def test_a_service_does_not_start_without_its_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: Any
) -> None:
    def go_on(*_: Any) -> None:
        raise AssertionError("it is refused before anything is started")

    for name in ("compile_kernels", "load_kernels", "LocalService", "RayService"):
        monkeypatch.setattr(service, name, go_on)
    (tmp_path / "file").write_text("")
    archive = tmp_path / "file/archive"
    settings = Settings(runtime=runtime, port=0, data_dir=tmp_path / "data", archive=archive)
    with pytest.raises(DataDirectoryError) as refused:
        start(settings)
    assert str(refused.value) == f"archive: {archive} cannot be written: Not a directory"
