"""A dispatcher that leaves: what it refuses, what it waits for, and what it reports."""

from __future__ import annotations

import numpy as np

from ps2stream.dispatcher.departure import ARCHIVE_TICKS, DispatcherDeparture
from ps2stream.dispatcher.instructions import Instruction, SyncLog
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.protocol.addresses import SEQUENCER, Send
from ps2stream.protocol.messages.publications import DispatcherEmptied
from ps2stream.protocol.producer_map import ProducerMap
from ps2stream.protocol.ticks import REPEAT_TICKS
from tests.support.desk import Router
from tests.support.ends import ANALYZER
from tests.support.memory_log import MemoryLog
from tests.support.valid_objects import objects

POSTS = objects([("a", "flood", 0), ("b", "flood", 70), ("c", "flood", 90)])
SHRUNK = ProducerMap.first(2).changed(1, 9)


class Place:
    """Dispatcher 1, its log, and what it says."""

    def __init__(self, log: MemoryLog | None = None) -> None:
        self.log = log or MemoryLog()
        self.archived = 1 << 40  # the archive has what is before
        self.objects = ObjectLog(self.log, 1, lambda end: end <= self.archived)
        self.valid = self.objects.recover_objects(1 << 20, ANALYZER)
        self.router = Router()
        self.router.index = 1
        self.router.producers = ProducerMap.first(2)
        self.is_idle = False
        self.ended: list[Exception] = []
        self.out: list[Instruction] = []
        self.departure = DispatcherDeparture(
            self.router, self.objects, lambda: self.is_idle, self.ended.append, self.out
        )

    def follow(self, producers: ProducerMap) -> None:
        self.router.producers = producers
        self.departure.follow()

    def tick(self, ticks: int = 1) -> None:
        for _ in range(ticks):
            self.departure.tick()

    def reports(self) -> list[DispatcherEmptied]:
        found = [each for each in self.out if isinstance(each, Send)]
        self.out.clear()
        assert all(send.to == SEQUENCER for send in found)
        return [send.frame for send in found if isinstance(send.frame, DispatcherEmptied)]


def test_calls_are_refused_and_streams_end_once_it_leaves() -> None:
    place = Place()
    place.departure.follow()
    assert place.departure.find_problem() is None
    place.follow(SHRUNK)
    place.departure.follow()
    assert len(place.ended) == 1
    assert "dispatcher 1 has left the service, or is about to" in str(place.ended[0])
    assert str(place.departure.find_problem()) == str(place.ended[0])
    place.follow(SHRUNK.finished())
    assert place.departure.find_problem() is not None
    assert len(place.ended) == 1
    place.follow(SHRUNK.finished().changed(2, 12))
    assert place.departure.find_problem() is None


def test_one_that_stays_goes_on() -> None:
    place = Place()
    place.router.index = 0
    place.is_idle = True
    place.follow(SHRUNK)
    place.tick(REPEAT_TICKS)
    place.departure.synced(place.log.sync())
    assert (place.departure.find_problem(), place.ended, place.out) == (None, [], [])


def test_it_reports_once_what_it_notes_is_durable() -> None:
    place = Place()
    place.router.oldest = 7
    place.follow(SHRUNK)
    place.tick(REPEAT_TICKS)
    assert place.log.end == 0, "something is under way"
    place.is_idle = True
    place.tick()
    assert any(isinstance(each, SyncLog) for each in place.out)
    place.departure.synced(0)
    assert place.reports() == []
    place.departure.synced(place.log.sync())
    [report] = place.reports()
    assert (report.dispatcher, report.lsn, report.left_out) == (1, 9, 0)
    place.departure.synced(place.log.end)
    assert place.reports() == []
    place.tick(REPEAT_TICKS)
    assert len(place.reports()) == 1, "the first one may be lost"
    place.follow(SHRUNK.finished())
    place.tick(REPEAT_TICKS)
    assert place.reports() == []


def test_it_reports_once_the_archive_has_all_of_its_log() -> None:
    for patience, ticks in ((True, ARCHIVE_TICKS - 1), (False, ARCHIVE_TICKS)):
        place = Place()
        place.archived, place.is_idle = 0, True
        place.follow(SHRUNK)
        place.tick()
        place.departure.synced(place.log.sync())
        place.tick(ticks)
        assert len(place.reports()) == (not patience)
        if patience:
            place.archived = place.log.end
            place.tick()
            assert len(place.reports()) == 1
        place.tick(REPEAT_TICKS)
        assert len(place.reports()) == 1


def test_a_full_disk_puts_it_off() -> None:
    place = Place()
    place.is_idle = place.log.full = True
    place.follow(SHRUNK)
    place.tick(2)
    place.log.full = False
    place.departure.synced(place.log.sync())
    assert place.reports() == []
    place.tick()
    place.departure.synced(place.log.sync())
    assert len(place.reports()) == 1


def test_valid_objects_are_given_up_for_good() -> None:
    place = Place()
    place.objects.append(0, 3, POSTS)
    place.valid.add(POSTS, np.arange(3), np.full(3, 3))
    place.router.oldest = 3
    place.is_idle = True
    place.follow(SHRUNK)
    place.tick()
    assert len(place.valid) == 0
    place.departure.synced(place.log.sync())
    [report] = place.reports()
    assert report.left_out == 90
    again = Place(place.log)
    assert len(again.valid) == 0
    assert again.objects.validity.latest_end == 90, "for a start with fewer"
    assert again.objects.recover() == []
    again.valid.add(objects([("d", "flood", 80)]), np.array([5]), np.array([12]))
    assert len(again.valid) == 1, "what it accepts when it is there again is kept"
