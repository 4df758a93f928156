"""Censuses of statuses: ages, restarts, rates, and what makes a service unhealthy."""

from __future__ import annotations

from typing import Any

import pytest

from ps2stream.observability.census import (
    RECENT_S,
    STALE_S,
    CensusTaker,
    ServiceCensus,
    find_problems,
)

NOW_MS = 1_700_000_000_000


def statuses(epoch: int = 1, objects: int = 0, cpu: float = 0.0, **merger: int) -> dict[str, Any]:
    return {
        "sequencer-0": {"up": 1, "epoch": 1, "disk": 1000, "disk_free": 400, "inserts": 7},
        "dispatcher-0": {"up": 1, "epoch": 1, "objects": objects},
        "dispatcher-1": {"up": 1, "epoch": 1, "objects": 2 * objects},
        "worker-0": {"up": 1, "epoch": epoch, "cpu_seconds": cpu, "resident_bytes": 99},
        "merger-0": {"up": 1, "epoch": 1, **merger},
        "replanning-0": {"failure": "", "replans": 3},
    }


def taken(*rounds: dict[str, Any], every_s: float = 2.0) -> ServiceCensus:
    taker = CensusTaker()
    for i, found in enumerate(rounds):
        census = taker.take(found, 100.0 + every_s * i, NOW_MS)
    return census


def worker(census: ServiceCensus) -> Any:
    (found,) = [actor for actor in census.actors if actor.role == "worker"]
    return found


def test_rates_and_cpu_are_of_the_last_period() -> None:
    first = taken(statuses())
    assert (first.objects_per_second, worker(first).cpu) == (0.0, 0.0)
    census = taken(statuses(), statuses(objects=100, cpu=0.5), statuses(objects=160, cpu=1.5))
    assert census.objects_per_second == pytest.approx((60 + 120) / 2)
    assert worker(census).cpu == pytest.approx(0.5)
    assert worker(census).age_s == pytest.approx(4.0)
    assert census.updates_per_second == 0.0
    fallen = taken(statuses(objects=100), statuses(objects=3))  # a dispatcher was replaced
    assert fallen.objects_per_second == 0.0
    names = [(a.role, a.index) for a in census.actors]
    assert names == sorted(names)
    assert len(names) == 5  # planning anew is no actor


def test_hot_units_are_those_that_the_controller_reports() -> None:
    told = {"replicated": 3, "sharded": 1, "hot_changes": 2, "hot_balance": 1.5}
    hot = {"controller-0": {"up": 1, **told}}
    census = taken(statuses() | hot)
    assert (census.replicated_units, census.hot_changes, census.hot_balance) == (3, 2, 1.5)
    assert census.sharded_units == 1
    census = taken(statuses())
    assert (census.replicated_units, census.hot_changes, census.hot_balance) == (0, 0, 0.0)


def test_a_replaced_actor_is_young_counted_and_for_a_while_a_problem() -> None:
    census = taken(statuses(), statuses(), statuses(epoch=4), statuses(epoch=4), statuses(epoch=5))
    assert (worker(census).restarts, worker(census).age_s) == (2, 0.0)
    assert find_problems(census, NOW_MS) == [
        "worker-0 was replaced 0 s ago, 2 times since the service started"
    ]
    later = taken(statuses(), statuses(epoch=4), statuses(epoch=4), every_s=RECENT_S)
    assert (worker(later).restarts, find_problems(later, NOW_MS)) == (1, [])


def test_an_actor_that_does_not_answer_is_a_problem_and_no_restart() -> None:
    silent = statuses() | {"worker-0": {"failure": "Traceback\n  ...\nValueError: no\n"}}
    census = taken(statuses(epoch=3), silent)
    assert find_problems(census, NOW_MS) == ["worker-0 does not work: ValueError: no"]
    assert worker(census).restarts == 0
    assert find_problems(taken(statuses(epoch=3), silent, statuses(epoch=3)), NOW_MS) == []


def test_disk_lag_and_silence_are_problems() -> None:
    well = taken(statuses(sessions=2, lag=5, lag_most=3, lag_ms=1500, backlog_bytes=10))
    assert find_problems(well, NOW_MS) == []
    assert (well.sessions, well.backlog_matches) == (2, 5)
    assert (well.largest_backlog_matches, well.backlog_age_s) == (3, 1.5)
    full = well._replace(disk_free_bytes=99)
    nearly_full = "the disk of the data directory is nearly full: 9.9% is free"
    assert find_problems(full, NOW_MS) == [nearly_full]
    assert find_problems(well._replace(disk_free_bytes=100), NOW_MS) == []
    large = well._replace(disk_bytes=10**12)
    assert find_problems(large._replace(disk_free_bytes=20 * 10**9), NOW_MS) == []
    assert find_problems(large._replace(disk_free_bytes=19 * 10**9), NOW_MS) == [
        "the disk of the data directory is nearly full: 1.9% is free"
    ]
    statuses_of_full = statuses() | {"merger-0": {"up": 1, "log_problem": "there is no space"}}
    assert find_problems(taken(statuses_of_full), NOW_MS) == [
        "merger-0 cannot write its log: there is no space"
    ]
    statuses_of_full["sequencer-0"]["log_problem"] = "the disk of /data is full"
    statuses_of_full["dispatcher-1"]["log_problem"] = "it was removed"
    assert find_problems(taken(statuses_of_full), NOW_MS) == [
        "sequencer-0 cannot write its ledger: the disk of /data is full",
        "dispatcher-1 cannot write its log: it was removed",
        "merger-0 cannot write its log: there is no space",
    ]
    behind = well._replace(largest_backlog_matches=100_001, backlog_age_s=70.0)
    assert find_problems(behind, NOW_MS) == [
        "a session has 100,001 unacknowledged matches, the oldest found 70 s ago"
    ]
    late_ms = NOW_MS + int(1000 * STALE_S)
    assert find_problems(well, late_ms) == []
    (stale,) = find_problems(full, late_ms + 1000)
    assert "has not checked the actors for 31 s" in stale
    assert find_problems(None, NOW_MS) == []


def test_the_archive_is_that_of_all_dispatchers_and_its_problems_are_problems() -> None:
    def archived(objects: int, problem: str = "") -> dict[str, Any]:
        return {
            "up": 1,
            "archived_objects": objects,
            "archive_bytes": 10 * objects,
            "archive_lag_bytes": 2,
            "archive_lost_objects": 1,
            "archive_problem": problem,
        }

    assert taken(statuses()).archive is None
    both = {"dispatcher-0": archived(3), "dispatcher-1": archived(4)}
    well = taken(statuses() | both)
    assert well.archive == (7, 70, 4, 2, ())
    assert find_problems(well, NOW_MS) == []
    ill = {"dispatcher-1": archived(4, "the disk is full")}
    problem = "the archive is not written by dispatcher-1: the disk is full"
    assert find_problems(taken(statuses() | both | ill), NOW_MS) == [problem]
    silent = {"dispatcher-0": {"failure": "gone"}}  # tells nothing of its archive
    ill_and_silent = taken(statuses() | both | ill | silent)
    assert ill_and_silent.archive == (4, 40, 2, 1, ("dispatcher-1: the disk is full",))
    assert find_problems(ill_and_silent, NOW_MS) == ["dispatcher-0 does not work: gone", problem]
