"""What workers hold at the end of a move against what they own."""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.addresses import ROLES
from ps2stream.protocol.messages.plan import PostingCounts
from ps2stream.sequencer.holdings import PATIENCE_TICKS, MigrationCheck


def told(holdings: MigrationCheck, lsn: int, role: str, index: int, *count: int) -> None:
    of = next(i for i, name in enumerate(ROLES) if name == role)
    holdings.hear(PostingCounts(of, index, lsn, np.array(count)))


def ended(lsn: int = 9) -> MigrationCheck:
    found = MigrationCheck()
    found.wait(lsn)
    return found


def test_it_is_known_once_all_have_told() -> None:
    holdings = ended()
    told(holdings, 9, "dispatcher", 0, 5, 7, 0)
    told(holdings, 9, "worker", 0, 5)
    told(holdings, 9, "worker", 2, 1)  # one that goes
    told(holdings, 8, "worker", 1, 7)  # of an earlier end
    assert holdings.figures(2, 2) is None
    told(holdings, 9, "worker", 1, 7)
    assert holdings.figures(2, 2) is None
    told(holdings, 9, "dispatcher", 1, 5, 7, 0)
    assert holdings.figures(2, 2) == {"missing": 0, "surplus": 0}
    holdings.wait(0)
    assert holdings.figures(2, 2) is None


def test_what_one_lacks_and_another_has_beyond_is_not_set_off() -> None:
    holdings = ended()
    told(holdings, 9, "dispatcher", 0, 5, 7, 4, 0)
    for worker, count in enumerate((3, 10, 4)):
        told(holdings, 9, "worker", worker, count)
    assert holdings.figures(3, 1) == {"missing": 2, "surplus": 3}


def test_the_dispatcher_that_finds_most_counts() -> None:
    holdings = ended()
    told(holdings, 9, "worker", 0, 6)
    told(holdings, 9, "dispatcher", 0, 6, 0)
    told(holdings, 9, "dispatcher", 1, 8, 0)
    assert holdings.figures(1, 2) == {"missing": 2, "surplus": 0}


def test_after_a_while_it_is_given_up() -> None:
    holdings = ended()
    for _ in range(PATIENCE_TICKS):
        assert holdings.figures(1, 1) is None
        holdings.tick()
    assert holdings.figures(1, 1) == {}


def test_the_workers_of_sharded_units_hold_each_posting_once_together() -> None:
    """In whatever parts: the dispatcher does not know who has which."""
    for held, want in (((8, 9), (0, 0)), ((5, 12), (0, 0)), ((8, 8), (1, 0)), ((10, 12), (0, 5))):
        holdings = ended()
        told(holdings, 9, "dispatcher", 0, 5, 7, 5)
        for worker, count in enumerate(held):
            told(holdings, 9, "worker", worker, count)
        assert holdings.figures(2, 1) == dict(zip(("missing", "surplus"), want, strict=True))


def test_a_worker_that_lacks_what_it_has_alone_is_found_beside_sharded_units() -> None:
    holdings = ended()
    told(holdings, 9, "dispatcher", 0, 5, 7, 5)
    told(holdings, 9, "worker", 0, 3)
    told(holdings, 9, "worker", 1, 12)
    assert holdings.figures(2, 1) == {"missing": 2, "surplus": 0}
