"""The windows of all dispatchers: which of them count, and what a checkpoint may say of them."""

from __future__ import annotations

from ps2stream.merger.dedup import DedupWindow
from ps2stream.merger.windows import DispatcherWindows
from ps2stream.protocol.messages.objects import WatermarkNotice
from ps2stream.protocol.producer_map import ProducerMap


def notice(dispatcher: int, watermark: int, dispatchers: int = 0) -> WatermarkNotice:
    return WatermarkNotice(dispatcher, watermark, dispatchers=dispatchers)


def test_the_lowest_watermark_is_that_of_all_who_count() -> None:
    windows = DispatcherWindows(2, {})
    windows.note(notice(0, 9))
    assert windows.watermark == 0
    windows.note(notice(1, 4))
    assert windows.watermark == 4


def test_a_new_dispatcher_counts_before_the_watermark_can_pass_it() -> None:
    windows = DispatcherWindows(1, {})
    windows.note(notice(0, 5))
    windows.note(notice(0, 9, dispatchers=2))
    assert windows.watermark == 5, "the new one has the lowest watermark of before"
    windows.note(notice(1, 7, dispatchers=2))
    assert windows.watermark == 7
    windows.note(notice(0, 12))  # an old message
    assert windows.watermark == 7


def test_who_does_not_count_yet_changes_nothing() -> None:
    windows = DispatcherWindows(1, {})
    windows.note(notice(0, 5, dispatchers=1))
    assert windows.find_sender(notice(1, 3, dispatchers=1)) is None
    assert windows.watermark == 5


def test_what_a_log_had_of_a_dispatcher_that_came_later_is_there_when_it_counts() -> None:
    recovered = {1: DedupWindow()}
    recovered[1].finish(10, 20)
    windows = DispatcherWindows(1, dict(recovered))
    before = windows.can_be_described
    windows.note(notice(0, 0, dispatchers=2))
    assert windows[1].done.covers(10, 20)
    assert (before, windows.can_be_described) == (False, True), "nobody had said that it counts"
    assert (1, 10, 20) in windows.done()


def test_a_window_of_nothing_is_kept_too() -> None:
    """It is empty, and still the window that was recovered."""
    recovered = DedupWindow()
    assert DispatcherWindows(1, {0: recovered})[0] is recovered


SHRUNK = ProducerMap.first(2).changed(1, 8)
GROWN = SHRUNK.finished().changed(2, 11)


def test_one_that_has_left_holds_the_watermark_no_more() -> None:
    windows = DispatcherWindows(2, {})
    windows.note(notice(0, 9, SHRUNK.mark))
    windows.note(notice(1, 4, SHRUNK.mark))
    assert windows.watermark == 4
    windows.note(notice(0, 10, SHRUNK.finished().mark))
    assert windows.watermark == 10
    assert windows.find_sender(notice(1, 4, SHRUNK.mark)) is None, "this was said before"
    assert windows.watermark == 10


def test_what_one_had_done_before_it_left_is_known_when_it_is_there_again() -> None:
    windows = DispatcherWindows(2, {})
    windows[1].finish(10, 20)
    windows.note(notice(0, 10, SHRUNK.finished().mark))
    windows.note(notice(0, 15, GROWN.mark))
    assert windows[1].done.covers(10, 20)
    assert windows.watermark == 10
    windows.note(notice(0, 15, SHRUNK.finished().mark))
    assert windows.find_sender(notice(1, 4, GROWN.mark)) is windows[1], "an old mark is ignored"
