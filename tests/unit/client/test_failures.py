"""The pauses of clients between two attempts."""

from __future__ import annotations

import pytest

from ps2stream.client.failures import NO_ANSWER, error_of, pause_before
from ps2stream.errors import NothingDone, ResourceExhausted, Unavailable
from ps2stream.service.status import to_status

CORE = "Internal error from Core"
REFUSED = (
    "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: "
    "Failed to connect to remote host: connect: Connection refused (111)"
)


@pytest.mark.parametrize(
    ("error", "may_be_done"),
    [
        (NothingDone("dispatcher 1 has left"), False),
        (Unavailable("the service is stopping"), True),
        (Unavailable(REFUSED), False),
        (Unavailable("Socket closed"), True),
    ],
)
def test_what_surely_was_not_done_is_known(error: Unavailable, may_be_done: bool) -> None:
    found = error_of("UNAVAILABLE", str(error), to_status(error).SerializeToString())
    assert isinstance(found, Unavailable)
    assert found.may_be_done == may_be_done


def test_who_is_away_is_tried_twice_a_second_and_who_is_full_less_often() -> None:
    away = [pause_before(Unavailable("away"), attempt, True) for attempt in range(12)]
    assert away == [0.05, 0.1, 0.2, 0.4] + 8 * [0.5]
    assert pause_before(Unavailable("away"), 3, False) is None
    unreached = error_of("UNAVAILABLE", REFUSED, None)
    assert [pause_before(unreached, attempt, False) for attempt in (0, 20)] == [0.05, 0.5]
    full = ResourceExhausted("full", 1)
    assert [pause_before(full, attempt, False) for attempt in (0, 5, 20)] == [0.05, 1.6, 2.0]
    assert pause_before(ResourceExhausted("full", 3000), 20, False) == 3.0


def test_a_stream_that_ends_while_a_request_is_written_is_opened_again() -> None:
    found = error_of("INTERNAL", CORE, None)
    assert isinstance(found, Unavailable)
    assert found.may_be_done
    assert pause_before(found, 0, True) is not None
    assert not isinstance(error_of("INTERNAL", f"of a proxy: {CORE}", None), Unavailable)


@pytest.mark.parametrize("message", [NO_ANSWER, f"Stream removed ({NO_ANSWER})"])
def test_a_deadline_of_grpc_is_told_from_one_of_the_service(message: str) -> None:
    assert str(error_of("DEADLINE_EXCEEDED", message, None)) == NO_ANSWER
    assert str(error_of("DEADLINE_EXCEEDED", "the deadline has passed", None)) != NO_ANSWER
