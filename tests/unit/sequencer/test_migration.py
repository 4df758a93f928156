"""The protocol of a move: what is due when, what is refused."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest

from ps2stream.errors import Unavailable
from ps2stream.protocol.addresses import ROLES
from ps2stream.protocol.frame import U8
from ps2stream.protocol.messages.plan import PostingCounts
from ps2stream.routing.plan import RoutingPlan, Space
from ps2stream.routing.plan_changes import TRANSITIONS, step_of, step_record
from ps2stream.routing.plan_states import ChangeState, InvalidTransition, PlanSignal, PlanStep
from ps2stream.sequencer.holdings import PATIENCE_TICKS
from ps2stream.sequencer.migration import ASKED_TICKS, DUE, REPORTED, PlanMigration
from ps2stream.space.grid import Grid
from tests.sim.hostile import ANALYSIS


def plan(owner: int, workers: int = 2, version: int = 1, base: int = 0) -> RoutingPlan:
    cells = np.zeros(16, np.uint32)
    return RoutingPlan(
        workers, ANALYSIS, Grid(2, 2), (Space(owner),), cells, version=version, base_version=base
    )


def json_of(plan: RoutingPlan) -> U8:
    return np.frombuffer(json.dumps(plan.to_dict()).encode(), np.uint8)


NEXT = plan(1, workers=3, version=2, base=1)


def begun(lsn: int = 10, dispatchers: int = 1) -> PlanMigration:
    migration = PlanMigration(plan(0), dispatchers)
    migration.run(3)
    record, problem = migration.begin(json_of(NEXT))
    assert record is not None
    assert not problem
    migration.apply(record, lsn)
    return migration


def step(migration: PlanMigration, lsn: int) -> PlanStep | None:
    """Write what is due."""
    record = migration.due()
    if record is None:
        return None
    migration.apply(record, lsn)
    return step_of(record)


def test_a_move_goes_on_as_everyone_says_so() -> None:
    migration = begun(10, dispatchers=2)
    assert migration.state == "TRANSFERRING"
    migration.mark(0, 50)
    for worker in (0, 1, 1):
        migration.hot(worker, 10)
        assert step(migration, 11) is None
    migration.hot(2, 9)  # of another move
    assert step(migration, 11) is None
    migration.hot(2, 10)
    assert migration.state == "READY"
    assert step(migration, 60) == PlanStep.SWITCH
    assert migration.state == "RETIRING"
    migration.mark(0, 60)
    migration.mark(1, 59)
    assert step(migration, 61) is None
    migration.mark(1, 60)
    assert step(migration, 61) == PlanStep.FINISH
    assert migration.state == "NONE"
    assert migration.strategy.plan.route == NEXT.route
    assert step(migration, 62) is None
    [move] = migration.moves
    assert (move["begun"], move["switched"], move["ended"]) == (10, 60, 61)
    assert (move["from"], move["to"], move["outcome"]) == (1, 2, "done")


def test_a_move_is_given_up_before_objects_are_routed_by_it_and_not_after() -> None:
    migration = begun(10)
    record, problem = migration.abort()
    assert record is not None
    assert not problem
    migration.apply(record, 11)
    assert migration.strategy.plan.version == 1
    assert migration.moves[0]["outcome"] == "aborted"
    assert migration.abort() == (None, "")
    migration = begun(20)
    for worker in range(3):
        migration.hot(worker, 20)
    assert step(migration, 21) == PlanStep.SWITCH
    assert "will be completed" in migration.abort()[1]


def test_the_same_request_again_changes_nothing() -> None:
    migration = begun()
    assert migration.begin(json_of(NEXT)) == (None, "")
    for worker in range(3):
        migration.hot(worker, 10)
    step(migration, 11)
    migration.mark(0, 11)
    step(migration, 12)
    assert migration.begin(json_of(NEXT)) == (None, "")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            dataclasses.replace(NEXT, base_version=0),
            "derived from version 0; the current one is 1.*plan --from-service.*--base now.json",
        ),
        (
            dataclasses.replace(NEXT, grid=Grid(4, 0)),
            "its grid, .*, is not .* 4 x 4 cells",
        ),
        (plan(0, version=2, base=1), "nothing would migrate"),
    ],
)
def test_a_plan_that_cannot_follow_is_refused(given: RoutingPlan, why: str) -> None:
    record, problem = PlanMigration(plan(0)).begin(json_of(given))
    assert record is None
    assert re.search(why, problem)


def test_one_move_at_a_time_and_no_nonsense() -> None:
    other = plan(1, workers=4, version=2, base=1)
    assert "a plan change to version 2 is under way" in begun().begin(json_of(other))[1]
    assert "not JSON" in PlanMigration(plan(0)).begin(np.frombuffer(b"{", np.uint8))[1]
    assert "missing" in PlanMigration(plan(0)).begin(np.frombuffer(b"{}", np.uint8))[1]


def test_a_plan_with_more_workers_waits_for_them() -> None:
    migration = PlanMigration(plan(0))
    with pytest.raises(
        Unavailable, match="3 workers are needed; 2 are running, and the others are being started"
    ):
        migration.begin(json_of(NEXT))
    assert (migration.running, migration.wanted) == (2, 3)
    migration.run(3)
    record, _ = migration.begin(json_of(NEXT))
    assert record is not None
    migration.apply(record, 5)
    assert migration.wanted == 3


def test_who_asked_for_workers_and_went_away_is_forgotten() -> None:
    migration = PlanMigration(plan(0))
    with pytest.raises(Unavailable):
        migration.begin(json_of(NEXT))
    for _ in range(ASKED_TICKS):
        assert migration.wanted == 3
        migration.tick(0)
    assert migration.wanted == 2


def test_what_was_measured_of_a_move_is_in_its_records() -> None:
    migration = PlanMigration(plan(0))
    migration.run(3)
    migration.hear(0, 8, (60, 0, 0, 0))
    migration.tick(1_000)
    log: list[U8] = []

    def write(record: U8 | None) -> None:
        assert record is not None
        log.append(record)
        migration.apply(record, 9 + len(log))

    write(migration.begin(json_of(NEXT))[0])
    migration.hear(0, 9, (90, 0, 0, 0))  # said before it knew of the move
    migration.hear(0, 10, (100, 7, 1, 0))
    migration.tick(1_300)
    for worker, loaded in enumerate([(0, 0), (3, 50), (4, 60)]):
        migration.hot(worker, 10, *loaded)
    write(migration.due())
    migration.hear(0, 11, (140, 9, 1, 0))
    migration.hear(0, 11, (5, 1, 0, 2))  # its successor
    migration.tick(1_500)
    migration.mark(0, 11)
    write(migration.due())
    told = {
        "begun_ms": 1_000, "switched_ms": 1_300, "ended_ms": 1_500, "queries": 7, "bytes": 110,
        "objects": 45, "delayed": 3, "stalled": 0, "collapsed": 2,
    }  # fmt: skip
    [move] = migration.moves
    assert told.items() <= move.items()
    again = PlanMigration(plan(0, version=7))
    for lsn, record in enumerate(log, 10):
        again.apply(record, lsn)
    assert again.moves == [move]


@pytest.mark.parametrize("finish", [True, False])
def test_what_workers_hold_at_the_end_is_told_behind_it(finish: bool) -> None:
    migration = begun(10)
    if finish:
        for worker in range(3):
            migration.hot(worker, 10)
        assert step(migration, 11) == PlanStep.SWITCH
        migration.mark(0, 11)
        assert step(migration, 12) == PlanStep.FINISH
    else:
        record, _ = migration.abort()
        assert record is not None
        migration.apply(record, 12)
    workers = migration.strategy.workers
    counts = np.append(np.full(workers, 5), 0)  # and none of sharded units
    migration.posted(PostingCounts(ROLES.index("dispatcher"), 0, 12, counts))
    for worker in range(workers):
        assert step(migration, 13) is None
        migration.posted(PostingCounts(ROLES.index("worker"), worker, 12, np.array([5 + worker])))
    before = migration.strategy
    assert step(migration, 13) == PlanStep.CHECKED
    assert migration.strategy == dataclasses.replace(before, state=ChangeState.NONE)
    assert step(migration, 14) is None
    [move] = migration.moves
    assert (move["ended"], move["missing"]) == (12, 0)
    assert move["surplus"] == sum(range(workers))


def test_who_is_not_heard_is_not_waited_for_long() -> None:
    migration = begun(10)
    record, _ = migration.abort()
    assert record is not None
    migration.apply(record, 12)
    for _ in range(PATIENCE_TICKS):
        assert migration.due() is None
        migration.tick(0)
    assert step(migration, 13) == PlanStep.CHECKED
    assert "missing" not in migration.moves[0]
    assert migration.due() is None


def test_a_move_knows_nothing_of_the_one_before() -> None:
    migration = PlanMigration(plan(0))
    for number, (base, begun_ms) in enumerate(((1, 1_000), (2, 4_000)), 1):
        migration.tick(begun_ms)
        record, _ = migration.begin(json_of(plan(number % 2, version=base + 1, base=base)))
        assert record is not None
        migration.apply(record, 100 * number)
        assert migration.state == "TRANSFERRING"  # that all were hot once is nothing to go by
        for worker in range(2):
            assert step(migration, 0) is None
            migration.hot(worker, 100 * number, 1, 8)
        assert step(migration, 100 * number + 1) == PlanStep.SWITCH
        migration.mark(0, 100 * number + 1)
        assert step(migration, 100 * number + 2) == PlanStep.FINISH
    assert [move["begun_ms"] for move in migration.moves] == [1_000, 4_000]
    assert [move["queries"] for move in migration.moves] == [2, 2]


def test_nothing_is_told_that_was_not_measured() -> None:
    """The sequencer was replaced during the move, and has no clock."""
    first = begun(10)
    again = PlanMigration(plan(0))
    again.apply(first.strategy.record(), 10)
    again.hear(0, 11, (9, 9, 9, 9))
    record, _ = again.abort()
    assert record is not None
    again.apply(record, 12)
    assert set(again.moves[0]) == {
        "from", "to", "apart", "begun", "switched", "ended", "outcome",
    }  # fmt: skip


def apart() -> PlanMigration:
    migration = PlanMigration(plan(0))
    migration.run(3)
    record, problem = migration.begin(json_of(NEXT), apart=True)
    assert record is not None
    assert not problem
    migration.apply(record, 10)
    return migration


def test_no_third_plan_before_the_sunset() -> None:
    migration = apart()
    assert migration.state == "COEXISTING"
    third = json_of(plan(2, workers=3, version=3, base=2))
    for beside in (False, True):
        record, problem = migration.begin(third, apart=beside)
        assert record is None
        assert "version 2 coexists with version" in problem
    assert "unite the plans instead" in migration.abort()[1]
    assert migration.begin(json_of(NEXT), apart=True) == (None, "")
    assert "version 2 already coexists" in migration.begin(json_of(NEXT))[1]
    record, _ = migration.unite()
    assert record is not None
    migration.apply(record, 11)
    assert migration.state == "TRANSFERRING"
    assert migration.unite() == (None, "")
    assert "no two plans" in PlanMigration(plan(0)).unite()[1]


def test_since_when_two_plans_coexist_is_known_after_a_restart() -> None:
    first = PlanMigration(plan(0))
    first.run(3)
    first.tick(5_000)
    record, _ = first.begin(json_of(NEXT), apart=True)
    assert record is not None
    again = PlanMigration(plan(0))
    assert "apart_ms" not in again.describe()
    again.apply(record, 10)
    described = again.describe()
    assert (described["apart_ms"], described["apart_for"]) == (5_000, 0)  # no clock yet
    again.tick(9_000)
    assert again.describe()["apart_for"] == 4_000


def test_an_age_that_nobody_wrote_down_counts_from_when_it_is_seen() -> None:
    migration = apart()
    assert "apart_for" not in migration.describe()
    migration.tick(9_000)
    migration.tick(9_500)
    assert migration.describe()["apart_for"] == 500


def test_all_states_have_a_name_in_replies_and_due_steps_are_allowed() -> None:
    assert set(REPORTED) == set(ChangeState)
    assert all((state, step) in TRANSITIONS for state, step in DUE.items())


def test_an_error_tells_the_story_of_the_plan_change() -> None:
    migration = begun(10)
    for worker in range(3):
        migration.hot(worker, 10)
    with pytest.raises(InvalidTransition) as caught:
        migration.apply(step_record(PlanStep.FINISH), 11)
    assert caught.value.state is ChangeState.READY
    assert [(taken.event, taken.lsn) for taken in caught.value.story] == [
        (PlanStep.BEGIN, 10),
        (PlanSignal.ALL_HOLD, 10),
    ]
    assert migration.state == "READY"
    assert step(migration, 11) == PlanStep.SWITCH


def test_a_plan_that_only_brings_other_frequencies_can_follow() -> None:
    """New queries are posted by the frequencies of the plan in force, also where one worker has
    all units."""
    first = plan(0, workers=1)
    follow = dataclasses.replace(
        first, version=2, base_version=1, frequencies={"flood": 3, 'kind = "quake"': 2}
    )
    migration = PlanMigration(first)
    record, problem = migration.begin(json_of(follow), apart=True)
    assert record is None
    assert "only the frequencies differ" in problem
    record, problem = migration.begin(json_of(follow))
    assert record is not None
    migration.apply(record, 10)
    migration.hot(0, 10)
    assert step(migration, 11) == PlanStep.SWITCH
    migration.mark(0, 11)
    assert step(migration, 12) == PlanStep.FINISH
    assert migration.strategy.plan.frequencies == follow.frequencies
    assert migration.begin(json_of(follow)) == (None, "")
    again = dataclasses.replace(follow, version=3, base_version=2)
    assert "nothing would migrate" in migration.begin(json_of(again))[1]
