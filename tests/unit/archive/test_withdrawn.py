"""Withdrawn objects of an archive: readers leave them out, whoever is killed, and later objects of
the same id are there."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ps2stream.archive import layout, withdrawn
from ps2stream.archive.layout import (
    WITHDRAWN,
    ArchivePoint,
    RawFile,
    read_manifest,
)
from ps2stream.archive.reading import read_batches
from ps2stream.archive.withdrawn import (
    append_withdrawn,
    find_damaged,
    find_needed,
    find_needless,
    read_archive,
    read_lines,
    remove_lines,
)
from ps2stream.cluster import withdrawal_upkeep
from ps2stream.store.directory import replace_file
from tests.support.archive_reading import Compaction, read_keys, withdraw
from tests.support.archived import Key
from tests.support.archived_world import ArchivedWorld
from tests.support.shortening import choose_first

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


@pytest.mark.parametrize("seed", range(8))
def test_readers_leave_out_what_is_withdrawn_whoever_is_killed(open_world: Open, seed: int) -> None:
    world, rng = open_world(seed=seed, delay_s=1.0), random.Random(seed)
    gone: list[tuple[int, set[Key]]] = []  # position, and what is withdrawn there
    for _ in range(120):
        action = rng.random()
        if action < 0.4:
            world.append(rng.randrange(1, 6))
        elif action < 0.55 and world.logged:
            ids = {post.id for _, _, (_, post) in rng.sample(world.logged, 1)}
            keys = {key for _, key, (_, post) in world.logged if post.id in ids}
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
    withdraw(world, [first.id])
    world.sync()
    world.look(is_last=True)
    left = {key for _, key, (_, post) in world.logged if post.id != first.id}
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
    lines = [(line.point, line.id) for line in read_lines(folder / WITHDRAWN) if line.id]
    assert lines == [((0, 5), "a"), ((0, 4), "a"), ((0, 4), "\u6771")]
    assert [line.number for line in read_lines(folder / WITHDRAWN)] == [0, 1, 2, 3]
    assert (folder / "withdrawn.jsonl").stat().st_mode & 0o077 == 0


def test_a_damaged_line_is_reported_by_readers_and_the_writer_and_stops_neither(
    open_world: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The beginning of a line that a killed writer left, and wrote again, is no damage."""
    monkeypatch.setattr(withdrawal_upkeep, "UPKEEP_S", 0.0)
    world = open_world()
    world.append(20)
    world.sync()
    world.look(is_last=True)
    first, second, *others = sorted({post.id for _, _, (_, post) in world.logged})
    point = ArchivePoint(0, 1 << 40)
    path = world.writer.folder / WITHDRAWN
    append_withdrawn(path.parent, point, [first])
    path.write_bytes(path.read_bytes() + json.dumps([*point, second]).encode()[:-3] + b"\0\0")
    append_withdrawn(path.parent, point, [second, *others])
    assert find_damaged(path) == []
    world.look(is_last=True)
    assert read_keys(world.limits.path) == set()
    assert (world.writer.status()["archive_damaged_withdrawals"], caplog.records) == (0, [])

    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:-1], b"\xff" + lines[-1][1:]]))
    for _ in range(2):
        world.look(is_last=True)
    warned = (
        f"{path}: 1 damaged, number {len(lines) - 1} (from 0), so what they withdrew is read again"
    )
    [of_writer] = [record.getMessage() for record in caplog.records]
    assert warned in of_writer
    assert world.writer.status()["archive_damaged_withdrawals"] == 1
    assert not world.writer.problem
    assert read_keys(world.limits.path) == {
        key for _, key, (_, post) in world.logged if post.id == others[-1]
    }
    assert (caplog.records[-1].name, warned in caplog.messages[-1]) == ("ps2stream.archive", True)


class Killed(Exception):
    """The process ends here."""


@pytest.mark.takes_turns
@pytest.mark.parametrize("seed", choose_first(range(12), 4))
def test_lines_go_when_no_file_needs_them_whoever_is_killed(
    open_world: Open, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(withdrawal_upkeep, "UPKEEP_S", 0.0)
    rng = random.Random(seed)
    world = open_world(seed=seed, delay_s=1.0, hours=0.01 if seed % 3 == 0 else 100.0)
    path, gone = world.limits.path, list[tuple[int, set[Key]]]()
    dropped: set[Key] = set()  # by retention of the compacted
    compaction: Compaction | None = None

    def die(target: Path, data: bytes) -> None:
        if target.name != WITHDRAWN:
            replace_file(target, data)
            return
        if rng.random() < 0.3:
            target.with_name(target.name + ".new").write_bytes(data[: len(data) // 2])
            raise Killed
        replace_file(target, data)
        if rng.random() < 0.3:
            raise Killed

    monkeypatch.setattr(withdrawal_upkeep, "replace_file", die)

    def check() -> None:
        """What is withdrawn never comes back, and nothing else is missing but by retention."""
        found, lost = read_keys(path), set[Key]().union(*(keys for _, keys in gone))
        written = {key for key in world.expected() if key not in lost}
        assert not found & lost
        if world.limits.hours > 1:
            assert written - dropped <= found

    def look(is_last: bool = False) -> None:
        try:
            world.look(is_last)
        except Killed:
            kill()

    def kill() -> None:
        world.kill()
        gone[:] = [each for each in gone if each[0] < world.log.end]

    look()
    for _ in range(150):
        action = rng.random()
        if action < 0.3:
            world.append(rng.randrange(1, 6))
        elif action < 0.5 and world.logged:
            ids = {post.id for _, _, (_, post) in rng.sample(world.logged, 1)}
            keys = {key for _, key, (_, post) in world.logged if post.id in ids}
            gone.append((withdraw(world, [*ids]), keys))
            world.sync()
            look()
        elif action < 0.75:
            world.sync()
            world.now_ms += rng.choice([0, 400, 3_000, 20_000])
            look()
        elif action < 0.9:
            if compaction is None:
                compaction = Compaction(path)
                compaction.read()
            elif rng.random() < 0.7:
                keeps = rng.random() < 0.8
                if not keeps:
                    dropped |= {key for key in world.durable if key[1:] < world.mark.point}
                compaction.end(keeps)
                compaction.close()
                compaction = None
            else:  # it is killed
                compaction.close()
                compaction = None
        else:
            kill()
        world.sync()
        check()
    if compaction is not None:
        compaction.close()
    world.append(3)
    world.sync()
    world.now_ms += 5_000
    look(is_last=True)
    last = Compaction(path)
    last.read()
    last.end(keeps=True)
    last.close()
    for _ in range(9):  # until nobody is killed
        world.now_ms += 1
        look()
    check()
    assert (world.writer.folder / WITHDRAWN).stat().st_size < 20
    assert not read_archive(path)[1]


def test_numbers_of_lines_go_on_when_some_are_removed(tmp_path: Path) -> None:
    path = tmp_path / WITHDRAWN
    needed = find_needed(layout.CompactedManifest(), 3, [RawFile(0, 7, 9)])
    assert (needed.first, needed.below) == (float("inf"), (0, 7))
    append_withdrawn(tmp_path, ArchivePoint(0, 5), ["a", "b"])
    append_withdrawn(tmp_path, ArchivePoint(0, 8), ["c"])
    assert find_needless(path, needed)[0] == 2
    remove_lines(path, *find_needless(path, needed), replace_file)
    append_withdrawn(tmp_path, ArchivePoint(0, 9), ["d"])
    assert [(line.number, line.id) for line in read_lines(path)] == [(2, "c"), (3, "d")]
    assert find_needless(path, needed) == (0, 0)
    known = layout.CompactedManifest(1, {3: ArchivePoint(0, 9)}, withdrawn={3: 3})
    needed = find_needed(known, 3, [RawFile(0, 7, 9)])
    assert find_needless(path, needed)[0] == 3
    remove_lines(path, *find_needless(path, needed), replace_file)
    assert path.read_bytes() == b'[3]\n[0, 9, "d"]\n'
    # A few needless lines before many that are needed stay, as it would cost more to remove them.
    append_withdrawn(tmp_path, ArchivePoint(0, 9), map(str, range(9)))
    known = layout.CompactedManifest(1, {3: ArchivePoint(0, 9)}, withdrawn={3: 5})
    assert find_needless(path, find_needed(known, 3, [])) == (0, 0)


def test_a_reader_that_a_compaction_overtakes_begins_anew(
    open_world: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the files and the lines of its choice, those lines go."""
    world = open_world()
    world.append(4)
    world.sync()
    world.look(is_last=True)
    [post, *_] = [post for _, _, (_, post) in world.logged]
    withdraw(world, [post.id])
    world.sync()
    world.look(is_last=True)
    path, read = world.limits.path, withdrawn.read_withdrawn
    expected = read_keys(path)

    def read_late(snapshot: layout.ArchiveSnapshot) -> withdrawn.WithdrawnObjects:
        if not snapshot.manifest.generation:
            run = Compaction(path)
            run.read()
            run.end(keeps=True)
            run.close()
            world.now_ms += 10**6
            world.look()
            assert (world.writer.folder / WITHDRAWN).read_bytes() == b"[1]\n"
        return read(snapshot)

    monkeypatch.setattr(withdrawn, "read_withdrawn", read_late)
    assert read_manifest(path).generation == 0
    assert {(3, 0, r["offset"]) for part in read_batches(str(path), ["offset"])
            for r in part.to_pylist()} == expected  # fmt: skip
    assert read_manifest(path).generation == 1
    assert len(expected) < 4


def test_lines_stay_for_what_is_being_compacted(open_world: Open) -> None:
    """Its files may be gone meanwhile, by the bounds of what is not compacted."""
    world = open_world(hours=0.01)
    world.append(4)
    world.sync()
    world.look(is_last=True)
    run = Compaction(world.limits.path)
    run.read()
    [post, *_] = [post for _, _, (_, post) in world.logged]
    withdraw(world, [post.id])
    world.sync()
    world.look(is_last=True)
    world.now_ms += 10**6
    world.look()
    assert read_keys(world.limits.path) == set()
    run.end(keeps=True)
    run.close()
    world.now_ms += 10**6
    world.look()
    left = {key for _, key, (_, other) in world.logged if other.id != post.id}
    assert read_keys(world.limits.path) == left
    assert left


def test_ids_of_one_hash_are_told_apart(open_world: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(withdrawn, "hash_ids", lambda off, _: np.zeros(len(off) - 1, np.uint64))
    world = open_world()
    world.append(9)
    world.sync()
    world.look(is_last=True)
    ids = [post.id for _, _, (_, post) in world.logged]
    withdraw(world, ids[:2])
    world.sync()
    world.look(is_last=True)
    left = {key for _, key, (_, post) in world.logged if post.id not in ids[:2]}
    assert read_keys(world.limits.path) == left
