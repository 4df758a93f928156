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
