"""What a dispatcher tells those who watch, and that it tells nobody else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ps2stream.dispatcher.instructions import ShowSample
from ps2stream.dispatcher.watchers import MAX_WATCHERS, TIMED, StreamWatcher, StreamWatchers
from ps2stream.errors import ResourceExhausted
from ps2stream.protocol.addresses import Send
from ps2stream.protocol.frame import U8, column_to_strings, strings_to_column
from ps2stream.protocol.messages.watch import (
    SEEN_PER_S,
    SeenMatches,
    WatchNotice,
    WatchSample,
)
from ps2stream.protocol.ticks import TICKS_PER_S
from tests.support.desk import rows


def seen_of(out: list[Send]) -> list[tuple[int, SeenMatches]]:
    return [(s.to.index, s.frame) for s in out if isinstance(s.frame, SeenMatches)]


def strings(seen: Any, name: str) -> list[str]:
    return column_to_strings(getattr(seen, f"{name}_off"), getattr(seen, name))


class Stand:
    """The watchers of a dispatcher, what was sent, and a clock."""

    def __init__(self, mergers: int = 2) -> None:
        self.out: list[Any] = []
        self.watchers = StreamWatchers(3, mergers, self.out)

    def watch(self, tenant: str = "") -> tuple[StreamWatcher, list[WatchSample]]:
        told: list[WatchSample] = []
        watcher = StreamWatcher(tenant, told)
        self.watchers.add(watcher)
        return watcher, told

    def tick(self) -> None:
        """A tick, after which the watchers have what they are shown."""
        self.watchers.tick()
        for each in [each for each in self.out if isinstance(each, ShowSample)]:
            self.out.remove(each)
            each.watcher.append(each.sample)


def seen(names: list[str], pairs: int) -> SeenMatches:
    n = len(names)
    i, f, empty = np.arange(n), np.zeros(n), np.zeros(n + 1, np.int64)
    blank: U8 = np.zeros(0, np.uint8)
    columns = (np.zeros(n, np.uint32), i, i, f, f, empty, blank, empty, blank)
    return SeenMatches(*columns, pairs, i, i, *strings_to_column(names))


def test_while_nobody_watches_nothing_is_told_or_kept() -> None:
    stand = Stand()
    stand.watchers.accepted(rows(9), 0, routed=True, now=0.0)
    stand.watchers.on(seen(["q"], 1))
    stand.tick()
    _, told = stand.watch()
    for _ in range(TICKS_PER_S):
        stand.tick()
    assert told == [WatchSample([], [], 0, 0, [])]  # a second's silence
    asked = [
        (s.to.index, s.frame.dispatcher) for s in stand.out if isinstance(s.frame, WatchNotice)
    ]
    assert asked == [(0, 3), (1, 3)] * 2


def test_objects_are_sampled_and_batches_timed_until_they_are_complete() -> None:
    stand = Stand()
    _, told = stand.watch()
    stand.watchers.accepted(rows(100), 1000, routed=True, now=0.0)
    stand.watchers.accepted(rows(1), 1100, routed=False, now=0.0)
    stand.watchers.completed([7, 1100], 0.25)  # nobody waits for these
    stand.tick()
    for _ in range(2):
        stand.watchers.completed([1000], 0.5)
    stand.tick()
    first, second = told
    (some,) = first.objects
    assert some.offset.tolist() == [1000 + 2 * i for i in range(SEEN_PER_S)]
    assert some.partition.tolist() == [3] * SEEN_PER_S
    assert strings(some, "id")[:2] == ["0", "2"]
    assert (first.accepted, first.latency) == (101, [])
    assert (second.accepted, second.latency) == (0, [0.5])


def test_watchers_hear_at_once_what_is_withdrawn() -> None:
    stand = Stand()
    stand.watchers.withdrawn(*strings_to_column(["before"]))
    _, told = stand.watch()
    stand.watchers.withdrawn(*strings_to_column(["a", "é"]))
    stand.watchers.withdrawn(*strings_to_column(["a"]))
    stand.tick()
    stand.tick()
    assert told == [WatchSample([], [], 0, 0, [], ("a", "é", "a"))]


def test_what_is_timed_is_bounded() -> None:
    stand = Stand()
    watcher, _ = stand.watch()
    for batch in range(2 * TIMED):
        stand.watchers.accepted(rows(1), batch, routed=True, now=0.0)
    assert len(stand.watchers._waiting) == TIMED
    stand.watchers.drop(watcher.handle)
    assert not stand.watchers._waiting
    stand.watchers.drop(watcher.handle)


def test_each_watcher_gets_its_tenants_matches_and_no_more_than_it_may() -> None:
    stand = Stand()
    (_, a), (_, default) = stand.watch("a"), stand.watch()
    stand.watchers.on(seen(["a\0x", "b\0x", "x", "a\0y", "ab\0x"], 700))
    stand.tick()
    assert [strings(m, "query") for m in a[0].matches] == [["a\0x", "a\0y"]]
    assert [strings(m, "query") for m in default[0].matches] == [["x"]]
    stand.watchers.on(seen([f"q{i}" for i in range(200)], 200))
    stand.tick()
    assert len(default[1].matches[0].handle) == SEEN_PER_S
    assert len(a) == 1  # that others have matches is not even told by an empty glimpse
    for _ in range(TICKS_PER_S):
        stand.tick()
    assert (a[1].matches, a[1].matched) == ([], 900)
    assert sum(glimpse.matched for glimpse in default) == sum(g.matched for g in a) == 900


def test_no_more_may_watch_than_there_is_room_for() -> None:
    stand = Stand()
    watchers = [stand.watch()[0] for _ in range(MAX_WATCHERS)]
    with pytest.raises(ResourceExhausted, match=r"16 clients watch, the limit \(watchers\)"):
        stand.watch()
    stand.watchers.drop(watchers[0].handle)
    stand.watch()
