"""Dispatchers that are not there when their objects are withdrawn: readers leave them out, and what
comes later under the same id is there, whoever is killed or late."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from ps2stream.archive.departed import ANY_LSN, DepartedRows, find_departed, read_ended
from ps2stream.archive.layout import ENDED, MARK, WITHDRAWN, ArchivePoint, read_mark
from ps2stream.archive.withdrawn import find_damaged, read_archive, read_lines
from ps2stream.cluster import withdrawal_upkeep
from tests.support.archive_reading import Compaction, read_keys, withdraw
from tests.support.archived import Key
from tests.support.archived_world import ArchivedWorld
from tests.support.shortening import choose_first

STAYS, LEAVES = 0, 3


class Pair:
    """Two dispatchers of one ledger and archive, of which one comes and goes."""

    def __init__(self, path: Path, seed: int = 0) -> None:
        self.path = path
        self.near = ArchivedWorld(path, seed, STAYS, delay_s=1.0)
        self.far = ArchivedWorld(path, seed + 1, LEAVES, delay_s=1.0)
        self.worlds = (self.near, self.far)
        self.is_there = True
        self.lsn = 1
        self.gone: set[Key] = set()  # what is withdrawn

    def publish(self, world: ArchivedWorld, count: int = 3) -> None:
        world.lsn = self.lsn  # which others may raise meanwhile
        world.append(count)
        self.lsn = max(self.lsn, world.lsn)
        world.sync()

    def withdraw(self, ids: set[str]) -> None:
        """The dispatcher that stays is called, and answers."""
        self.gone |= {
            key for world in self.worlds for _, key, (_, post) in world.logged if post.id in ids
        }
        withdraw(self.near, sorted(ids), LEAVES + 1 if self.is_there else 1, self.lsn)
        self.near.sync()
        if self.is_there:
            withdraw(self.far, sorted(ids))
            self.far.sync()

    def withdraw_some(self, rng: random.Random) -> None:
        posts = [post.id for world in self.worlds for _, _, (_, post) in world.logged]
        self.withdraw({rng.choice(posts)} if posts else {"unknown"})

    def leave(self, is_killed: bool = False) -> None:
        """Leaves; if it is killed, its archive lacks what came last."""
        if not is_killed:
            self.far.look(is_last=True)
        self.far.kill()
        self.far.writer.close()
        if not is_killed:
            self.far.look(is_last=True)  # as it closes
            self.far.writer.close()
        self.lsn += 1
        self.is_there = False

    def join(self) -> None:
        self.lsn += 1
        self.far.kill()
        self.is_there = True

    def settle(self) -> None:
        for world in self.worlds:
            world.now_ms += 5_000
            if world is self.near or self.is_there:
                world.look(is_last=True)

    def compact(self, keeps: bool = True) -> None:
        run = Compaction(self.path)
        run.read()
        run.end(keeps)
        run.close()

    def check(self) -> None:
        """What is withdrawn is not there, and all else that has been archived."""
        expected = {key for world in self.worlds for key in world.expected()}
        assert read_keys(self.path) == expected - self.gone

    def count_lines(self) -> int:
        return len(list(read_lines(self.near.writer.folder / WITHDRAWN)))


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """Without power cuts: what was written need not reach the disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(withdrawal_upkeep, "UPKEEP_S", 0.0)
    found = Pair(tmp_path / "archive")
    for world in found.worlds:
        world.look()
    yield found
    for world in found.worlds:
        world.writer.close()


@pytest.mark.parametrize("seed", choose_first(range(12), 4))
def test_readers_leave_out_what_one_had_that_is_away(pair: Pair, seed: int) -> None:
    rng = random.Random(seed)
    away = 0
    for _ in range(100):
        match rng.choice(["near", "far", "far", "withdraw", "withdraw", "look", "look", "move",
                          "compact", "kill"]):  # fmt: skip
            case "near":
                pair.publish(pair.near)
            case "far" if pair.is_there:
                pair.publish(pair.far, rng.randrange(1, 5))
            case "withdraw":
                away += not pair.is_there
                pair.withdraw_some(rng)
            case "look":  # or the writer of the one that stays is late
                world = rng.choice(pair.worlds)
                if world is pair.near or pair.is_there:
                    world.now_ms += rng.choice([0, 400, 3_000])
                    world.look(is_last=rng.random() < 0.1)
            case "move":
                if pair.is_there:
                    pair.leave(is_killed=rng.random() < 0.4)
                else:
                    pair.join()
            case "compact" if rng.random() < 0.4:
                pair.near.look()
                pair.compact()
            case "kill":
                pair.near.kill()
    if not pair.is_there:
        pair.settle()
        pair.check()
        pair.join()
    pair.publish(pair.far)
    pair.settle()
    assert away
    pair.check()
    pair.compact()
    pair.check()
    for _ in range(2):
        pair.publish(pair.far)  # of which the archive sees that nothing earlier is to come
        pair.settle()
        pair.compact()
    pair.settle()
    assert pair.count_lines() == 0
    assert not read_archive(pair.path)[1]
    pair.check()


def test_lines_are_removed_while_one_is_away_for_good(pair: Pair) -> None:
    pair.publish(pair.far, 9)
    pair.leave()
    assert read_ended(pair.far.writer.folder) == pair.far.mark.point
    for _ in range(5):
        pair.withdraw_some(random.Random(1))
    pair.settle()
    pair.check()
    assert pair.count_lines() == 10
    pair.compact()
    pair.settle()
    assert pair.count_lines() == 0
    pair.check()


def test_lines_stay_for_what_may_come_when_one_is_back(pair: Pair) -> None:
    """It was killed before the archive had all of its log."""
    pair.publish(pair.far, 4)
    pair.leave(is_killed=True)
    assert read_ended(pair.far.writer.folder) is None
    pair.withdraw({post.id for _, _, (_, post) in pair.far.logged})
    pair.settle()
    pair.compact()
    pair.settle()
    assert pair.count_lines() > 0
    pair.join()
    pair.settle()
    assert len(pair.far.expected()) == 4
    pair.check()


def test_lines_go_once_nothing_earlier_can_come(pair: Pair) -> None:
    for publishes in (False, True):
        pair.publish(pair.far)
        pair.leave(is_killed=True)
        pair.withdraw({post.id for _, _, (_, post) in pair.far.logged})
        pair.settle()
        pair.join()
        if publishes:  # and goes on
            pair.publish(pair.far)
        else:  # and leaves
            pair.settle()
        for _ in range(2):
            pair.far.look()
            pair.far.now_ms += 9_000
        pair.compact()
        pair.near.look()
        assert pair.count_lines() == 0
        pair.check()


def other_service(pair: Pair) -> set[str]:
    """The ids of what a dispatcher had that was part of a service with far higher LSNs."""
    pair.far.writer.close()
    pair.far.identity, pair.lsn, pair.far.series = "b-1", 10**6, 1
    pair.far.writer = pair.far.open()
    pair.publish(pair.far)
    pair.far.look(is_last=True)
    pair.far.writer.close()
    pair.is_there, pair.lsn = False, 5
    return {post.id for _, _, (_, post) in pair.far.logged}


def test_what_another_service_had_is_left_out_whatever_its_lsn(pair: Pair) -> None:
    pair.withdraw(other_service(pair))
    pair.settle()
    assert read_keys(pair.path) == set()
    [found] = find_departed(pair.path, 1, 5, "a-7")
    assert found == DepartedRows(LEAVES, pair.far.mark.point, ANY_LSN)


def test_and_after_one_of_this_number_was_there(pair: Pair) -> None:
    earlier = other_service(pair)
    pair.far.identity, pair.far.series = "a", 2
    pair.join()
    pair.publish(pair.far)
    pair.leave()
    pair.withdraw(earlier)
    pair.settle()
    assert {series for _, series, _ in read_keys(pair.path)} == {2}


def test_what_is_known_of_one_that_is_away(pair: Pair) -> None:
    def find() -> DepartedRows:
        [found] = find_departed(pair.path, 1, pair.lsn, "a-7")
        return found

    folder, end = pair.far.writer.folder, 1 << 62
    pair.publish(pair.far)
    pair.far.look(is_last=True)
    mark = pair.far.mark
    assert find() == DepartedRows(LEAVES, mark.point, pair.lsn)
    assert find_departed(pair.path, LEAVES + 1, pair.lsn, "a-7") == []
    pair.publish(pair.far)
    pair.far.look()  # it waits, and so more is to come
    assert find() == DepartedRows(LEAVES, ArchivePoint(0, end), pair.lsn)
    pair.far.look(is_last=True)
    assert find().point == pair.far.mark.point > mark.point
    pair.far.kill()  # its successor may take something in at once
    assert find().point == (0, end)
    (folder / ENDED).write_text("{}")
    assert find().point == (0, end)
    (folder / MARK).write_text("damaged")
    assert find() == DepartedRows(LEAVES, ArchivePoint(0, end), pair.lsn)
    (folder / MARK).unlink()
    assert read_mark(folder) is None
    assert find() == DepartedRows(LEAVES, ArchivePoint(0, end), pair.lsn)


def test_lines_of_others_are_read_as_they_were_written(pair: Pair) -> None:
    pair.publish(pair.far)
    pair.leave()
    pair.withdraw({"a"})
    pair.near.look()
    path = pair.near.writer.folder / WITHDRAWN
    own, other = read_lines(path)
    assert (own.id, own.partition, own.lsn) == ("a", None, ANY_LSN)
    assert (other.id, other.partition, other.lsn) == ("a", LEAVES, pair.lsn)
    assert other.point == pair.far.mark.point
    with path.open("ab") as file:
        file.write(b'[1, 2, "b", 3]\n[1, 2, "b", 3, "4"]\n[1, 2, "b", 3, null]\n')
    assert [line.lsn for line in read_lines(path) if line.id == "b"] == [ANY_LSN]
    assert find_damaged(path) == [2, 3]
