"""Withdrawn objects of an archive: readers leave them out, whoever is killed, and later objects of
the same id are there."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ps2stream.archive.layout import ArchivePoint, read_snapshot
from ps2stream.archive.reading import count_rows, read_batches
from ps2stream.archive.withdrawn import append_withdrawn, read_withdrawn
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.log_records import WithdrawalRecord
from ps2stream.tenants import under
from tests.support.archived import Key
from tests.support.archived_world import ArchivedWorld

Open = Callable[..., ArchivedWorld]


@pytest.fixture
def open_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Worlds of this test, without power cuts: what was written need not reach the disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    worlds: list[ArchivedWorld] = []

    def make(**more: Any) -> ArchivedWorld:
        worlds.append(ArchivedWorld(tmp_path / "archive", **more))
        return worlds[-1]

    yield make
    for world in worlds:
        world.writer.close()


def withdraw(world: ArchivedWorld, ids: list[str]) -> int:
    """Logs a withdrawal; returns its position."""
    return world.log.append(WithdrawalRecord(*strings_to_column(ids)).encode())


def read_keys(path: Path) -> set[Key]:
    """What a reader finds now; fails if an object is there twice."""
    found: list[Key] = []
    for part in read_batches(str(path), ["offset", "series", "partition"], 7):
        assert part.schema.names == ["offset", "series", "partition"]
        found += [(r["partition"], r["series"], r["offset"]) for r in part.to_pylist()]
    assert len(found) == len(set(found)) == count_rows(str(path))
    return set(found)


@pytest.mark.parametrize("seed", range(8))
def test_readers_leave_out_what_is_withdrawn_whoever_is_killed(open_world: Open, seed: int) -> None:
    world, rng = open_world(seed=seed, delay_s=1.0), random.Random(seed)
    gone: list[tuple[int, set[Key]]] = []  # position, and what is withdrawn there
    for _ in range(120):
        action = rng.random()
        if action < 0.4:
            world.append(rng.randrange(1, 6))
        elif action < 0.55 and world.logged:
            ids = {under(post.tenant, post.id) for _, _, (_, post) in rng.sample(world.logged, 1)}
            keys = {key for _, key, (_, post) in world.logged if under(post.tenant, post.id) in ids}
            gone.append((withdraw(world, [*ids, "unknown"]), keys))
        elif action < 0.75:
            world.sync()
        elif action < 0.95:
            world.now_ms += rng.choice([0, 400, 3_000])
            world.look()
        else:
            world.kill()
            gone = [each for each in gone if each[0] < world.log.end]
    world.sync()
    world.look(is_last=True)
    withdrawn = set[Key]().union(*(keys for _, keys in gone))
    assert withdrawn
    assert read_keys(world.limits.path) == world.expected().keys() - withdrawn


def test_a_withdrawal_counts_before_its_object_is_written(open_world: Open) -> None:
    world = open_world(delay_s=60.0)
    world.append(3)
    world.sync()
    world.look()  # they wait
    [first, *_] = [post for _, _, (_, post) in world.logged]
    withdraw(world, [under(first.tenant, first.id)])
    world.sync()
    world.look(is_last=True)
    left = {
        key
        for _, key, (_, post) in world.logged
        if (post.tenant, post.id) != (first.tenant, first.id)
    }
    assert read_keys(world.limits.path) == left


def test_a_line_that_was_cut_off_counts_for_nothing(open_world: Open) -> None:
    world = open_world()
    world.append(1)
    world.sync()
    world.look(is_last=True)
    folder = world.writer.folder
    append_withdrawn(folder, ArchivePoint(0, 5), ["a"])
    with (folder / "withdrawn.jsonl").open("ab") as file:
        file.write(b'[0, 9, "lo')
    append_withdrawn(folder, ArchivePoint(0, 4), ["a", "\u6771"])
    found = read_withdrawn(read_snapshot(world.limits.path))
    assert found.points == {(3, "a"): (0, 5), (3, "\u6771"): (0, 4)}
    assert (folder / "withdrawn.jsonl").stat().st_mode & 0o077 == 0
