"""The seeded simulator: a thousand seeds without a violation, and deliberate bugs found."""

from __future__ import annotations

import os

import pytest

from tests.sim.bugs import BUGS
from tests.sim.many import play_all
from tests.sim.run import run
from tests.sim.scenario import UNCONTROLLED

HALF = int(os.environ.get("PS2STREAM_SIM_SEEDS", "1000")) // 2
SEEDS = range(UNCONTROLLED - HALF, UNCONTROLLED + HALF)
"""Half of them have no controller."""
PATIENCE = 200
# A seed that finds each; should a change of the code shift it, others are tried.
FOUND_BY = {
    "offsets_used_again": 6,
    "open_batches_not_replayed": 17,
    "progress_runs_ahead": 0,
    "watermark_rises_too_early": 0,
    "serves_before_it_has_caught_up": 17,
    "every_suspect_is_blamed": 13,
    "nothing_is_repeated": 0,
    "a_lost_delivery_is_passed_over": 0,
    "repeats_are_done_again": 0,
    "answers_are_not_durable": 17,
    "delete_requests_are_not_durable": 150,
    "session_numbers_are_given_again": 0,
    "visible_before_all_have_applied": 27,
    "states_lack_the_dying": 0,
    "purged_too_early": 0,
    "tombstones_dropped": 0,
    "matched_as_of_now": 0,
    "gaps_are_passed_over": 0,
    "half_a_state_is_used": 0,
    "snapshots_claim_more_than_they_hold": 2,
    "completed_before_the_sync": 41,
    "delivered_before_the_sync": 8,
    "done_batches_are_done_again": 3,
    "attempts_are_mixed": 62,
    "one_answer_less": 0,
    "told_again_after_a_restart": 0,
    "a_part_is_the_whole": 0,
    "finished_before_the_watermark": 0,
    "updates_go_to_the_present_owner_alone": 0,
    "the_dying_are_not_loaded": 21,
    "a_move_is_forgotten_by_a_new_incarnation": 0,
    "part_of_what_moves_is_not_loaded": 14,
    "old_owners_keep_what_they_had": 1,
    "names_forgotten_too_early": 2,
    "unacknowledged_pairs_are_not_sent_again": 0,
    "gaps_are_not_announced": 12,
    "a_torn_tail_is_taken_for_records": 28,
    "cursors_lost": 5,
    "failed_syncs_are_ignored": 6,
}


def test_no_seed_violates_the_contract() -> None:
    failed = {r.seed: r.violations[:3] for r in play_all(SEEDS, 2) if r.violations}
    assert failed == {}


@pytest.mark.parametrize("seed", [4, 21, 107])
def test_a_seed_plays_alike_every_time(seed: int) -> None:
    assert run(seed) == run(seed)


@pytest.mark.parametrize("name", FOUND_BY)
def test_a_deliberate_bug_is_found(name: str) -> None:
    assert name in BUGS
    seeds = [FOUND_BY[name], *range(PATIENCE)]
    assert any(run(seed, name).violations for seed in seeds)
