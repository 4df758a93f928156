"""`apply --regrid`: a plan with another grid waits in the ledger until the service starts again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ps2stream.client.client import Client
from ps2stream.cluster.service import fitted_plan, start
from ps2stream.config import Settings
from ps2stream.errors import FailedPrecondition, InvalidArgument
from ps2stream.routing.plan import Leaf, RoutingPlan, Space, Text
from ps2stream.routing.plan_file import save_plan
from ps2stream.space.grid import Grid
from tests.support.moving import World, lines, run, settled, swapped

FINE = Grid(
    10, 9, 256,
    (-180.0, -9.0, -3.0, -1.0, 0.0, 0.5, 4.0, 9.0, 180.0), (-90.0, -5.0, 0.0, 5.0, 90.0),
)  # fmt: skip


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        runtime="local", port=0, hot="off", adjust="off", workers=2, dispatchers=2,
        data_dir=tmp_path / "data",
    )  # fmt: skip


def regridded(client: Client, workers: int = 2, grid: Grid = FINE) -> RoutingPlan:
    """A plan derived from the one in force, on another grid: strips in turn, some by text."""
    now = RoutingPlan.from_dict(json.loads(client.plan()))
    leaves: list[Leaf] = [
        *map(Space, range(workers)),
        Text(tuple(range(workers)), {"flood": workers - 1}),
    ]
    cells = np.arange(grid.size, dtype=np.uint32) // 5_003 % len(leaves)
    return RoutingPlan(
        workers, now.analysis, grid, tuple(leaves), cells, version=now.version + 1,
        base_version=now.version,
    )  # fmt: skip


def as_json(plan: RoutingPlan) -> bytes:
    return json.dumps(plan.to_dict()).encode()


def grid_of(client: Client) -> Grid:
    return Grid.from_dict(json.loads(client.plan())["grid"])


class MatchReader:
    """Takes the matches of a session from where it stopped, by its cursor."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []
        self._cursor = b""

    def take(self, client: Client, n: int) -> None:
        """Takes matches until there are n in all."""
        with client.subscribe(cursor=self._cursor) as matches:
            while len(self.found) < n:
                match = matches.next(timeout=60)
                self.found.append((match.query_id, match.object_id))
            self._cursor = matches.cursor

    def check(self, world: World) -> None:
        """Takes what is left: exactly what the oracle has, and nothing after it."""
        self.take(world.client, len(world.expected))
        assert sorted(self.found) == sorted(world.expected)
        with world.client.subscribe(cursor=self._cursor) as matches, pytest.raises(TimeoutError):
            matches.next(timeout=0.5)


@pytest.mark.takes_turns
def test_a_restart_takes_the_new_grid_and_delivers_what_brute_force_finds(
    settings: Settings, tmp_path: Path
) -> None:
    path, reader = tmp_path / "fine.json", MatchReader()
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        world = World(client)
        world.insert(30)
        world.publish(30)
        plan = regridded(client, workers=3)
        save_plan(plan, str(path))
        refused = run(service, "apply", str(path))
        assert refused.exit_code == 7
        for part in ("512 x 256", "1024 x 512", "max_cells 256", "--regrid"):
            assert part in refused.stderr
        [kept] = lines(run(service, "apply", str(path), "--regrid", "--json"))
        assert (kept["event"], kept["plan_version"]) == ("pending", 2)
        assert "with another grid" in run(service, "migrations").stdout
        # Live plan changes keep the running grid; the last one has the number of the plan that
        # waits.
        client.apply_plan(swapped(client))
        assert settled(client).pending_version == 2
        assert (grid_of(client), client.migrations().plan_version) == (Grid(), 2)
        world.delete(5)
        world.publish(30)
        reader.take(client, 20)
    with start(settings) as service, Client(service.targets[1], timeout=90) as client:
        found = client.migrations()
        assert (found.plan_version, found.workers, found.pending_version) == (3, 3, 0)
        assert (grid_of(client), json.loads(client.plan())["base_version"]) == (FINE, 2)
        world.client = client
        world.publish(30)
        world.insert(20)
        world.publish(30)
        client.scale(2)
        settled(client)
        world.publish(30)
        assert grid_of(client) == FINE
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        assert (client.migrations().plan_version, grid_of(client)) == (4, FINE)
        world.client = client
        world.publish(30)
        reader.check(world)
    assert len(reader.found) > 100


DOOMED = """
import sys
from pathlib import Path
from ps2stream.cluster.service import start
from ps2stream.config import Settings
settings = Settings.model_validate_json(sys.argv[1])
service = start(settings)
print(service.targets[0], flush=True)
sys.stdin.read()
"""


@pytest.mark.takes_turns
def test_a_kill_loses_and_doubles_nothing(settings: Settings) -> None:
    """SIGKILL after objects were accepted: what was not delivered then is, under the new grid."""
    reader, described = MatchReader(), settings.model_dump_json(exclude_unset=True)
    doomed = subprocess.Popen(
        [sys.executable, "-c", DOOMED, described], stdin=-1, stdout=-1, text=True
    )
    try:
        assert doomed.stdout is not None
        with Client(doomed.stdout.readline().strip(), timeout=90) as client:
            world = World(client)
            world.insert(30)
            world.publish(200)
            reader.take(client, 10)
            client.apply_plan(as_json(regridded(client)), regrid=True)
            world.insert(10)
            world.publish(200)
            doomed.kill()
    finally:
        doomed.kill()
        doomed.communicate()
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        assert (grid_of(client), client.migrations().plan_version) == (FINE, 2)
        world.client = client
        world.insert(10)
        world.publish(50)
        reader.check(world)


def test_the_plan_that_waits_is_replaced_withdrawn_and_passed_over(settings: Settings) -> None:
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        client.insert("q", "flood")
        client.apply_plan(as_json(regridded(client, grid=Grid(4, 4))), regrid=True)
        client.apply_plan(as_json(regridded(client, grid=Grid(5, 5))), regrid=True)
        assert fitted_plan(settings, None).grid == Grid(5, 5)
        assert run(service, "apply", "--abort").exit_code == 0
        assert client.migrations().pending_version == 0
        assert client.migrations().plan_version == 1
        client.apply_plan(as_json(regridded(client, grid=Grid(6, 6))), regrid=True)
        given = RoutingPlan.from_dict(json.loads(client.plan()))
    with start(settings, given) as service, Client(service.targets[0], timeout=90) as client:
        assert (grid_of(client), client.migrations().pending_version) == (Grid(), 0)
    assert fitted_plan(settings, None).grid == Grid()


def test_what_cannot_wait_is_refused(settings: Settings, tmp_path: Path) -> None:
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        with pytest.raises(FailedPrecondition, match="is that of the service"):
            client.apply_plan(swapped(client), regrid=True)
        stale = regridded(client).to_dict() | {"version": 9, "base_version": 8}
        with pytest.raises(FailedPrecondition, match="derived from version 8"):
            client.apply_plan(json.dumps(stale).encode(), regrid=True)
        with pytest.raises(InvalidArgument, match="cannot coexist"):
            client.apply_plan(as_json(regridded(client)), regrid=True, coexist=True)
        vast = json.loads(swapped(client)) | {
            "grid": Grid(14, 14).to_dict(), "cells": [[1 << 28, 0]]
        }  # fmt: skip
        with pytest.raises(InvalidArgument, match="268,435,456 cells, over 16,777,216"):
            client.apply_plan(json.dumps(vast).encode(), regrid=True)
        assert client.migrations().pending_version == 0
        path = tmp_path / "plan.json"
        save_plan(regridded(client), str(path))
        for more in ("--coexist", "--wait"):
            assert run(service, "apply", str(path), "--regrid", more).exit_code == 2
        assert run(service, "apply", "--regrid", "--abort").exit_code == 2
