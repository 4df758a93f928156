"""Names of other sessions are fetched beside those that are known."""

from __future__ import annotations

import numpy as np

from ps2stream.merger.followed_names import FollowedNames
from ps2stream.merger.forgotten import ForgottenNames
from ps2stream.merger.journal import MatchJournal
from ps2stream.protocol.frame import column_to_strings
from ps2stream.protocol.messages.updates import LedgerFetch, MergerQueries
from ps2stream.protocol.session_map import SessionMap, SessionMaps
from tests.support.handing import SESSIONS, SWITCH, Handing
from tests.support.memory_log import MemoryLog
from tests.support.merging import inserts


def change(lsn: int, maps: SessionMaps) -> MergerQueries:
    """A change of the tables with this LSN, as a dispatcher sends it."""
    none = np.zeros(0, np.int64)
    no_bytes = np.zeros(0, np.uint8)
    return MergerQueries(
        lsn, lsn, 0, 0, no_bytes, none, none, none, np.zeros(1, np.int64), no_bytes, maps.record()
    )


def test_the_present_names_stay_until_the_others_are_as_recent() -> None:
    world = Handing()
    before = SessionMap.first(2)
    maps = SessionMaps(before)
    names = FollowedNames(0, maps, ForgottenNames(MatchJournal(MemoryLog())))
    first = inserts(1, list(SESSIONS))
    assert isinstance(first, MergerQueries)
    names.on(first)
    even = np.array([2, 4, 6])
    assert column_to_strings(*names.of(even)) == ["q2", "q4", "q6"]
    assert names.follow(maps) == []
    [send] = names.follow(SessionMaps(before.spread(1, SWITCH), before))
    assert isinstance(send.frame, LedgerFetch)
    assert (names.is_fetching, names.applied) == (True, 6)
    assert column_to_strings(*names.of(even)) == ["q2", "q4", "q6"]
    world.maps, world.ends = SessionMaps(before.spread(1, SWITCH), before), SWITCH
    is_more, _ = names.on(world._state())
    assert is_more
    assert (names.is_fetching, names.applied) == (False, SWITCH)
    every = np.array(SESSIONS)
    assert column_to_strings(*names.of(every)) == [f"q{s}" for s in SESSIONS]
    assert names.maps.step == (SWITCH, True)


def test_sessions_that_left_and_come_back_at_once_are_fetched() -> None:
    """Their queries of the time between were sent to another merger, though both changes are known
    before anything is done about the first."""
    first = SessionMap.first(2)
    names = FollowedNames(1, SessionMaps(first), ForgottenNames(MatchJournal(MemoryLog())))
    start = inserts(1, list(SESSIONS))
    assert isinstance(start, MergerQueries)
    names.on(start)
    left = SessionMaps(first.spread(1, 7), first)
    back = SessionMaps(left.now.spread(2, 9), left.now)
    for lsn, maps in ((7, left), (8, left.finished()), (9, back)):
        names.on(change(lsn, maps))
    assert names.applied == 9
    assert names.follow(names.maps)
    assert names.is_fetching
