"""The intake: small publications that come while others are under way leave together."""

from __future__ import annotations

from ps2stream.dispatcher.gateway import PublicationIdentity
from ps2stream.dispatcher.intake import (
    EAGER,
    ROWS,
    TEXT_BYTES,
    PublicationIntake,
    WaitingPublication,
)
from tests.support.desk import rows


def added(intake: PublicationIntake, n: int, text: str = "flood", **rest: float) -> object:
    """Adds a publication of n rows, and returns its call."""
    call = object()
    assert intake.add(WaitingPublication(call, rows(n, text), **rest))  # type: ignore[arg-type]
    return call


def sizes(intake: PublicationIntake, in_flight: int) -> list[int]:
    return [len(waiting.rows) for waiting in intake.take(in_flight)]


def test_a_batch_alone_leaves_at_once_and_one_among_others_waits() -> None:
    intake = PublicationIntake(100)
    added(intake, 3)
    assert sizes(intake, EAGER) == []
    assert sizes(intake, EAGER - 1) == [3]
    assert len(intake) == 0


def test_those_that_waited_leave_together_up_to_the_bounds() -> None:
    intake = PublicationIntake(100)
    for n in (ROWS // 2, ROWS // 2, 1):
        added(intake, n)
    assert sizes(intake, 100) == [ROWS // 2, ROWS // 2]
    assert sizes(intake, 100) == []
    added(intake, 2, "x" * (TEXT_BYTES // 2))
    assert sizes(intake, 100) == [1, 2]


def test_enough_rows_or_text_leave_among_others_and_what_has_left_counts_no_more() -> None:
    intake = PublicationIntake(100)
    added(intake, ROWS)
    assert sizes(intake, 100) == [ROWS]
    for _ in range(2):
        added(intake, 1, "x" * TEXT_BYTES)
    assert sizes(intake, 100) == [1]
    assert sizes(intake, 100) == [1]
    added(intake, 3)
    assert sizes(intake, 100) == []


def test_what_was_withdrawn_does_not_leave() -> None:
    intake = PublicationIntake(100)
    withdrawn = added(intake, 1)
    kept = added(intake, 2)
    assert intake.withdraw(withdrawn)
    assert not intake.withdraw(withdrawn)
    assert sizes(intake, 0) == [2]
    assert not intake.withdraw(kept), "it has left"


def test_what_waits_for_room_gets_it_in_order_or_gives_up_in_time() -> None:
    intake = PublicationIntake(2)
    for n in (1, 2):
        added(intake, n)
    assert not intake.add(WaitingPublication(object(), rows(3)))
    late = added(intake, 3, until=1.0)
    added(intake, 4, until=5.0)
    gone = added(intake, 5, until=5.0)
    assert len(intake) == 2
    assert intake.take_expired(0.5) == []
    assert [waiting.call for waiting in intake.take_expired(1.0)] == [late]
    assert intake.withdraw(gone)
    assert sizes(intake, 0) == [1, 2]
    assert intake.take_expired(9.0) == [], "what has room waits for its turn alone"
    assert sizes(intake, 0) == [4]


def test_what_is_withdrawn_makes_room() -> None:
    intake = PublicationIntake(1)
    first = added(intake, ROWS)
    added(intake, 2, until=1.0)
    assert intake.withdraw(first)
    assert (len(intake), sizes(intake, 100), sizes(intake, 0)) == (1, [], [2])


def test_those_with_an_identity_leave_apart_and_nobody_is_overtaken_within_a_kind() -> None:
    intake = PublicationIntake(100)
    identity = PublicationIdentity("p", 1, bytes(16))
    for n, named in ((1, False), (2, True), (3, False), (4, True), (5, False)):
        found = WaitingPublication(object(), rows(n), identity=identity if named else None)
        assert intake.add(found)
    assert [sizes(intake, 0) for _ in range(3)] == [[1, 3, 5], [2, 4], []]
    added(intake, ROWS)
    assert sizes(intake, 100) == [ROWS], "what has left is counted no more"


def test_a_refusal_names_the_limit() -> None:
    assert "7 batches are waiting, the limit (max_in_flight)" in str(
        PublicationIntake(7).make_refusal()
    )
