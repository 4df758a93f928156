"""What a merger tells those who watch, and that it tells nobody else."""

from __future__ import annotations

from ps2stream.merger.watching import LEASE_TICKS
from ps2stream.protocol.frame import decode
from ps2stream.protocol.messages.watch import (
    SEEN_PER_S,
    SeenMatches,
    WatchNotice,
)
from ps2stream.protocol.rows import UpdateKind
from ps2stream.protocol.ticks import TICKS_PER_S
from tests.support.merging import Rig, inserts, named, release
from tests.support.watching import seen_of, strings


def test_a_merger_tells_matches_while_it_is_watched() -> None:
    rig = Rig(dispatchers=2)
    rig.send(named(1, [(UpdateKind.INSERT, 1, 5, "a\0flood"), (UpdateKind.INSERT, 2, 6, "fire")]))
    rig.send(release(0, 4, 2, [(0, 1, 5)]))
    assert seen_of(rig.tick()) == []

    rig.send(WatchNotice(1))
    rig.send(release(4, 4, 2, [(1, 1, 5), (3, 1, 5), (3, 2, 6)]))
    ((to, frame),) = seen_of(rig.tick())
    seen = decode(frame.encode())
    assert isinstance(seen, SeenMatches)
    assert (to, seen.pairs) == (1, 3)
    assert seen.handle.tolist() == [1, 1, 2]
    assert seen.session.tolist() == [5, 5, 6]
    assert seen.offset.tolist() == [5, 7, 7]
    assert seen.time.tolist() == [50, 70, 70]
    assert (seen.lon * 8).tolist() == (seen.lat * 16).tolist() == [5, 7, 7]
    assert strings(seen, "id") == ["o5", "o7", "o7"]
    assert strings(seen, "text") == ["té5", "té7", "té7"]
    assert strings(seen, "query") == ["a\0flood", "a\0flood", "fire"]
    assert seen_of(rig.tick()) == []

    assert LEASE_TICKS == 3 * TICKS_PER_S
    rig.tick(LEASE_TICKS)
    rig.send(release(8, 4, 2, [(0, 1, 5)]))
    assert seen_of(rig.tick()) == []


def test_a_merger_tells_some_of_many_matches_and_how_many_there_were() -> None:
    rig = Rig()
    rig.send(inserts(1, [5]), WatchNotice(0))
    size = 400
    for batch in range(0, 3 * size, size):
        rig.send(release(batch, size, 1, [(i, 1, 5) for i in range(size)]))
    ((_, seen),) = seen_of(rig.tick())
    assert (seen.pairs, len(seen.handle)) == (3 * size, SEEN_PER_S)
    rig.send(
        release(3 * size, 4, 1, [(0, 1, 5)]),
        release(4 * size, 9, 1, [(i, 1, 5) for i in range(9)]),
    )
    ((_, seen),) = seen_of(rig.tick())
    assert (seen.pairs, len(seen.handle)) == (10, SEEN_PER_S // TICKS_PER_S)
