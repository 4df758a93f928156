"""Which workers are silent, and since when."""

from __future__ import annotations

from ps2stream.dispatcher.silence import SILENT_TICKS, SilentWorkers
from tests.support.routers import answer


def test_a_worker_that_owes_an_answer_for_long_is_silent_until_it_answers() -> None:
    workers = SilentWorkers()
    for _ in range(SILENT_TICKS - 1):
        workers.tick([{0, 1}, {1}])
        assert workers.silent == set()
    workers.tick([{0, 1}, {1}])
    assert workers.silent == {0, 1}
    workers.note_answer(answer(1, 7))
    assert workers.silent == {0}
    workers.tick([{1}])
    assert workers.silent == set(), "one owes nothing, the other has just answered"


def test_a_worker_that_answers_something_is_not_silent() -> None:
    workers = SilentWorkers()
    for _ in range(5 * SILENT_TICKS):
        workers.note_answer(answer(0, 7))
        workers.tick([{0, 1}])
        assert 0 not in workers.silent
    assert workers.silent == {1}
    for _ in range(SILENT_TICKS - 1):
        workers.tick([{0, 1}])
    assert workers.silent == {0, 1}


def test_a_worker_that_seems_to_have_died_is_silent_at_once_and_until_it_answers() -> None:
    workers = SilentWorkers()
    workers.note_answer(answer(0, 7))
    workers.suspect(0)
    assert workers.silent == {0}
    for _ in range(2):
        workers.tick([])
        assert workers.silent == {0}, "it owes nothing, and is heard no more than before"
    workers.note_answer(answer(0, 8))
    assert workers.silent == set()
    workers.tick([{0}])
    assert workers.silent == set()


def test_what_waited_at_a_worker_is_described_as_it_last_reported() -> None:
    workers = SilentWorkers()
    assert workers.describe(0) == ""
    workers.note_answer(answer(0, 7, backlog=3))
    assert workers.describe(0) == " (at its last answer 3 batches waited there)"
    assert workers.describe(1) == ""
    workers.note_answer(answer(0, 8))
    assert workers.describe(0) == ""
