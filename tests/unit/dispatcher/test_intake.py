"""The intake: small publications that come while others are under way leave together."""

from __future__ import annotations

from ps2stream.dispatcher.intake import EAGER, ROWS, TEXT_BYTES, PublicationIntake
from tests.support.desk import rows


def sizes(intake: PublicationIntake, in_flight: int) -> list[int]:
    return [len(waiting.rows) for waiting in intake.take(in_flight)]


def test_a_batch_alone_leaves_at_once_and_one_among_others_waits() -> None:
    intake = PublicationIntake()
    intake.add(rows(3))
    assert sizes(intake, EAGER) == []
    assert sizes(intake, EAGER - 1) == [3]
    assert len(intake) == 0


def test_those_that_waited_leave_together_up_to_the_bounds() -> None:
    intake = PublicationIntake()
    for n in (ROWS // 2, ROWS // 2, 1):
        intake.add(rows(n))
    assert sizes(intake, 100) == [ROWS // 2, ROWS // 2]
    assert sizes(intake, 100) == []
    intake.add(rows(2, "x" * (TEXT_BYTES // 2)))
    assert sizes(intake, 100) == [1, 2]


def test_enough_rows_or_text_leave_among_others_and_what_has_left_counts_no_more() -> None:
    intake = PublicationIntake()
    intake.add(rows(ROWS))
    assert sizes(intake, 100) == [ROWS]
    for _ in range(2):
        intake.add(rows(1, "x" * TEXT_BYTES))
    assert sizes(intake, 100) == [1]
    assert sizes(intake, 100) == [1]
    intake.add(rows(3))
    assert sizes(intake, 100) == []


def test_what_was_cancelled_does_not_leave() -> None:
    intake = PublicationIntake()
    intake.add(rows(1)).cancel()
    kept = intake.add(rows(2))
    assert sizes(intake, 0) == [2]
    assert not kept.cancel()
