"""The segment log on a disk that loses things, against a list of records."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ps2stream.errors import Unavailable
from ps2stream.store.segments import SegmentLog
from tests.sim.disk import PowerCut, SimDisk

PATH = Path("/log")


class Model(RuleBasedStateMachine):
    """`records` is all that may be there, of which the first `synced` must be, but for those
    below `trimmed`."""

    @initialize(seed=st.integers(0, 2**32), segment=st.sampled_from([64, 700, 5000]))
    def begin(self, seed: int, segment: int) -> None:
        self.disk = SimDisk(random.Random(seed))
        self.segment = segment
        self.records: list[tuple[int, bytes]] = []
        self.synced = self.trimmed = self.made = 0
        self.dead = False
        self.zombies: list[SegmentLog] = []
        self.log = SegmentLog.open(PATH, self.disk, segment)

    def record(self, size: int) -> bytes:
        self.made += 1
        return (b"%d " % self.made * (size // 2 + 1))[:size]

    @rule(sizes=st.lists(st.sampled_from([0, 1, 20, 300, 1500]), min_size=1, max_size=12))
    def append(self, sizes: list[int]) -> None:
        for size in sizes:
            record, end = self.record(size), self.log.end
            try:
                position = self.log.append(record)
            except Unavailable:
                assert self.dead or self.disk.full
                assert self.log.end == end
            except PowerCut:
                self.restart(crash=True)
                break
            else:
                assert not self.dead
                assert position == end
                self.records.append((position, record))

    @rule()
    def sync(self) -> None:
        try:
            end = self.log.sync()
        except Unavailable:
            assert self.dead or self.disk.fail_sync
            self.dead = True
        except PowerCut:
            self.restart(crash=True)
        else:
            assert not self.dead
            assert end == self.log.end
            self.synced = len(self.records)

    @rule(part=st.floats(0, 1.1))
    def trim(self, part: float) -> None:
        before = int(self.log.end * part)
        self.trimmed = max(self.trimmed, before)
        try:
            self.log.trim(before)
        except Unavailable:
            assert self.dead or self.disk.fail_sync
            self.dead = True
        except PowerCut:
            self.restart(crash=True)

    @rule(full=st.booleans())
    def fill(self, full: bool) -> None:
        self.disk.full = full

    @rule()
    def break_syncs(self) -> None:
        self.disk.fail_sync = True

    @rule(sizes=st.lists(st.sampled_from([20, 300, 1500]), min_size=1, max_size=3))
    def recover_from_a_failed_sync(self, sizes: list[int]) -> None:
        """What the next owner reads is then there for good, though no sync wrote it."""
        self.append(sizes)
        self.disk.fail_sync = True
        self.sync()
        self.restart(crash=False)
        self.restart(crash=True)

    @rule(after=st.integers(0, 12))
    def burn(self, after: int) -> None:
        self.disk.fuse = after

    @rule(crash=st.booleans())
    def restart(self, crash: bool) -> None:
        (self.disk.crash if crash else self.disk.kill)()
        self.reopen()

    @rule(fuses=st.lists(st.integers(0, 12), min_size=1, max_size=3))
    def restart_in_pieces(self, fuses: list[int]) -> None:
        for fuse in fuses:
            self.disk.crash()
            self.disk.fail_sync = False
            self.disk.fuse = fuse
            try:
                SegmentLog.open(PATH, self.disk, self.segment)
            except PowerCut:
                pass
            except Unavailable:
                assert self.disk.full
        self.restart(crash=True)

    @rule()
    def close(self) -> None:
        if self.disk.fuse is None:
            self.log.close()
            with pytest.raises(Unavailable):
                self.log.append(b"")
            self.reopen()

    @rule()
    def stop(self) -> None:
        """The process is taken for dead, and replaced."""
        full, self.disk.full = self.disk.full, False
        zombie = self.log
        self.disk.kill()
        self.reopen()
        self.zombies.append(zombie)
        self.disk.full = full

    @precondition(lambda self: self.zombies)
    @rule(pick=st.integers(0, 9), sizes=st.lists(st.sampled_from([1, 20, 300]), max_size=4))
    def wake(self, pick: int, sizes: list[int]) -> None:
        zombie = self.zombies[pick % len(self.zombies)]
        try:
            for size in sizes:
                zombie.append(self.record(size))
            before = zombie._synced
            assert zombie.sync() == before
        except (Unavailable, PowerCut):
            pass
        try:
            first = zombie.first
            zombie.trim(zombie.end)
            assert zombie.first == first
        except (Unavailable, PowerCut):
            pass
        if self.disk.fuse is not None:
            self.restart(crash=True)

    def reopen(self) -> None:
        """What is there now counts as synced."""
        self.disk.fail_sync = self.dead = False
        self.zombies = [] if self.disk.crashes != getattr(self, "seen", 0) else self.zombies
        self.seen = self.disk.crashes
        try:
            self.log = SegmentLog.open(PATH, self.disk, self.segment)
        except Unavailable:
            assert self.disk.full
            self.disk.full = False
            self.log = SegmentLog.open(PATH, self.disk, self.segment)
        found = list(self.log.scan())
        first = self.log.first
        kept = [pair for pair in self.records if pair[0] >= first]
        assert found == kept[: len(found)]
        lost = kept[len(found) :]
        assert len(lost) <= len(self.records) - self.synced
        assert first <= max(self.trimmed, 0) or first == self.log.end
        self.records = self.records[: len(self.records) - len(lost)]
        self.synced = len(self.records)

    @invariant()
    def is_whole(self) -> None:
        first = self.log.first
        kept = [pair for pair in self.records if pair[0] >= first]
        assert first <= self.trimmed or not self.records
        assert list(self.log.scan()) == kept
        assert self.log.first == (kept[0][0] if kept else self.log.end)
        if kept:
            position, record = kept[len(kept) // 2]
            assert self.log.read(position) == record
            assert list(self.log.scan(position)) == kept[len(kept) // 2 :]
        with pytest.raises(KeyError):
            self.log.read(self.log.end)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


def run(seed: int, steps: int = 60) -> None:
    """One run with the odds of a hard life, where hypothesis' are even."""
    rng = random.Random(seed)
    model = Model()
    model.begin(seed, rng.choice([64, 700, 5000]))
    sizes = [0, 1, 20, 300, 1500]
    rules: list[tuple[int, Callable[[], object]]] = [
        (40, lambda: model.append(rng.choices(sizes, k=rng.randint(1, 8)))),
        (30, model.sync),
        (8, lambda: model.trim(rng.uniform(0, 1.1))),
        (8, lambda: model.restart(crash=True)),
        (4, lambda: model.restart(crash=False)),
        (2, lambda: model.restart_in_pieces([rng.randint(0, 12) for _ in range(3)])),
        (2, lambda: model.recover_from_a_failed_sync(rng.choices(sizes, k=2))),
        (2, model.close),
        (3, model.stop),
        (2, lambda: (model.stop(), model.wake(-1, [20]), model.restart(crash=True))),
        (
            3,
            lambda: (
                model.zombies
                and model.wake(rng.randrange(9), rng.choices(sizes, k=rng.randint(0, 2)))
            ),
        ),
        (3, lambda: model.burn(rng.randint(0, 12))),
        (2, model.break_syncs),
        (3, lambda: model.fill(rng.random() < 0.5)),
    ]
    weights, calls = zip(*rules, strict=True)
    for call in rng.choices(calls, weights, k=steps):
        call()
        model.is_whole()
        if len(model.records) > 150:
            break


@pytest.mark.takes_turns
@pytest.mark.parametrize("block", range(5))
def test_random_runs(block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        try:
            run(seed)
        except Exception as error:
            error.add_note(f"run({seed})")
            raise


class Hooked(SimDisk):
    """Calls `hook` before its operation number `at`."""

    def __init__(self, at: int) -> None:
        super().__init__(random.Random(at))
        self.left = at
        self.hook: Callable[[], object] | None = None

    def spend(self) -> None:
        hook = self.hook
        if hook is not None:
            self.left -= 1
            if self.left < 0:
                self.hook = None
                hook()
        super().spend()


@pytest.mark.parametrize("segment", [50, 4096])
@pytest.mark.parametrize("at", range(16))
def test_a_process_that_wakes_up_while_it_is_replaced(at: int, segment: int) -> None:
    """What it acknowledges is there; what comes after the new owner's look at the end is not."""
    disk = Hooked(at)
    old = SegmentLog.open(PATH, disk, segment)
    records = [(old.append(b"first"), b"first")]
    old.sync()

    def wake() -> None:
        with contextlib.suppress(Unavailable):
            position = old.append(b"second")
            old.sync()
            records.append((position, b"second"))

    disk.kill()
    disk.hook = wake
    new = SegmentLog.open(PATH, disk, segment)
    disk.hook = None
    found = list(new.scan())
    assert found[: len(records)] == records
    assert len(records) == (2 if at < 4 else 1)  # before the new mark stands
    with pytest.raises(Unavailable, match=r"another process has taken it over|until a restart"):
        old.append(b"third" * segment)
    with pytest.raises(Unavailable):
        old.sync()
    disk.kill()
    assert list(SegmentLog.open(PATH, disk, segment).scan()) == found
