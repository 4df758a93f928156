"""How many requests a stream of the client has unanswered."""

from __future__ import annotations

from ps2stream.client.window import SMALL_BYTES, SMALL_WINDOW, WINDOW, SendWindow


def fill(window: SendWindow, size_bytes: int) -> int:
    """Sends requests until the window is full, and returns how many."""
    count = 0
    while not window.is_full:
        window.note_sent(size_bytes)
        count += 1
    return count


def test_large_requests_are_few_and_small_ones_many() -> None:
    assert fill(SendWindow(), SMALL_BYTES) == WINDOW
    assert fill(SendWindow(), 1) == SMALL_WINDOW
    assert fill(SendWindow(), SMALL_BYTES // 20) == 21  # as many as fill the bytes


def test_what_the_caller_asks_for_counts_whatever_the_size() -> None:
    assert fill(SendWindow(3), 1) == fill(SendWindow(3), SMALL_BYTES) == 3
    assert fill(SendWindow(0), 1) == 1  # none would never end


def test_an_answer_makes_room() -> None:
    window = SendWindow()
    fill(window, SMALL_BYTES)
    window.note_answered()
    assert not window.is_full
    assert len(window) == WINDOW - 1
    for _ in range(WINDOW - 1):
        window.note_answered()
    assert fill(window, 1) == SMALL_WINDOW
