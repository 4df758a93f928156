"""The seeded simulator: a seed plays alike every time, and deliberate bugs are found."""

from __future__ import annotations

import pytest

from tests.sim.bugs import BUGS
from tests.sim.run import run
from tests.sim.scenario import GROWN, SCALED, SHRUNK, UNCONTROLLED
from tests.support.shortening import choose_first

PATIENCE = 200
# A seed that finds each; should a change of the code shift it, others are tried.
FOUND_BY = {
    "offsets_used_again": 6,
    "open_batches_not_replayed": 17,
    "restarts_forget_what_was_published": UNCONTROLLED,
    "trimming_forgets_what_was_published": UNCONTROLLED + 28,
    "every_dispatcher_remembers_alone": UNCONTROLLED + 1,
    "repeats_under_way_are_published": UNCONTROLLED,
    "contents_of_repeats_are_not_compared": UNCONTROLLED + 1,
    "old_numbers_are_published": UNCONTROLLED + 1,
    "repeatable_batches_are_routed_at_once": UNCONTROLLED + 40,
    "progress_runs_ahead": 2,
    "watermark_rises_too_early": 0,
    "serves_before_it_has_caught_up": 17,
    "every_suspect_is_blamed": 13,
    "one_answer_less": 1,
    "complete_before_it_is_kept": 6,
    "releases_are_sent_once": 0,
    "a_late_part_is_called_whole": 0,
    "nothing_is_repeated": 0,
    "a_lost_delivery_is_passed_over": 1,
    "withdrawn_publications_are_routed": 0,
    "waiting_publications_are_forgotten": 28,
    "credits_are_counted_twice": 1,
    "credits_are_lost": 0,
    "reopened_streams_go_on_where_they_were": 2,
    "reopened_streams_get_no_epoch": 5,
    "estimates_leave_out_the_newest": UNCONTROLLED + 6,
    "queries_are_explained_by_one_posting": UNCONTROLLED + 7,
    "repeats_are_done_again": 0,
    "answers_are_not_durable": 17,
    "delete_requests_are_not_durable": 71,
    "a_replacement_takes_two_lsns": UNCONTROLLED,
    "replacements_are_done_again": UNCONTROLLED + 1,
    "conditions_of_replacements_are_passed_over": UNCONTROLLED + 2,
    "conditions_of_replacements_never_hold": UNCONTROLLED + 8,
    "half_a_replacement_is_taken_for_all": UNCONTROLLED + 65,
    "who_lags_goes_on_with_a_log_that_was_compacted": 671,
    "compaction_goes_beyond_the_watermark": 512,
    "half_a_pass_of_compaction_is_taken_for_damage": 754,
    "session_numbers_are_given_again": 0,
    "ids_are_compared_by_hash_alone": 0,
    "visible_before_all_have_applied": 27,
    "states_lack_the_dying": 9,
    "purged_too_early": 2,
    "tombstones_dropped": 0,
    "matched_as_of_now": 2,
    "gaps_are_passed_over": 0,
    "half_a_state_is_used": 1,
    "snapshots_claim_more_than_they_hold": 6,
    "completed_before_the_sync": 75,
    "delivered_before_the_sync": 8,
    "done_batches_are_done_again": 3,
    "told_again_after_a_restart": 8,
    "a_part_is_the_whole": 0,
    "finished_before_the_watermark": 21,
    "updates_go_to_the_present_owner_alone": 0,
    "objects_go_to_one_shard": 18,
    "every_shard_is_loaded_whole": 18,
    "the_dying_are_not_loaded": 638,
    "a_move_is_forgotten_by_a_new_incarnation": 0,
    "part_of_what_moves_is_not_loaded": 14,
    "old_owners_keep_what_they_had": 1,
    "names_forgotten_too_early": 2,
    "unacknowledged_pairs_are_not_sent_again": 1,
    "gaps_are_not_announced": 12,
    "a_torn_tail_is_taken_for_records": 576,
    "cursors_lost": 5,
    "failed_syncs_are_ignored": 6,
    "objects_are_not_searched_again": 0,
    "objects_are_searched_again_for_the_last_insert_alone": 0,
    "literals_end_with_the_delete": 158,
    "pairs_are_marked_for_the_first_query_alone": 103,
    "halves_have_the_values_of_the_first": UNCONTROLLED + 108,
    "values_are_not_taken_by_the_rows_of_a_share": 103,
    "values_stay_behind_in_the_log": 154,
    "ends_are_forgotten_by_a_restart": UNCONTROLLED + 69,
    "queries_end_too_early": UNCONTROLLED + 2,
    "ends_that_cannot_be_committed_are_lost": UNCONTROLLED + 29,
    "new_queries_meet_what_came_after_them_twice": UNCONTROLLED + 26,
    "objects_are_valid_by_the_clock_of_the_dispatcher": UNCONTROLLED,
    "valid_objects_are_forgotten_by_a_restart": UNCONTROLLED,
    "valid_objects_do_not_hold_the_log": UNCONTROLLED + 120,
    "restarts_do_not_go_on_with_new_queries": UNCONTROLLED,
    "parts_are_released_before_all_are_durable": UNCONTROLLED + 10,
    "dropped_objects_are_not_announced": UNCONTROLLED + 7,
    "new_queries_do_not_hold_the_watermark": UNCONTROLLED,
    "other_dispatchers_are_not_told_of_withdrawals": UNCONTROLLED + 10,
    "withdrawals_are_forgotten_by_a_restart": UNCONTROLLED + 1,
    "withdrawals_take_what_came_behind_them": UNCONTROLLED + 22,
    "withdrawals_leave_what_is_in_memory": UNCONTROLLED + 1,
    "withdrawals_concern_what_is_yet_to_come": UNCONTROLLED + 1,
    "objects_wait_for_no_update": 0,
    "plan_changes_concern_nobody": 1,
    "notices_skip_what_concerns_the_receiver": 0,
    "pairs_go_by_the_present_table": SCALED + 4,
    "sessions_are_given_away_too_early": SCALED + 2,
    "batches_do_not_wait_for_numbers": SCALED + 4,
    "records_of_sessions_that_come_are_not_fetched": SCALED + 4,
    "requests_for_sessions_are_not_repeated": SCALED + 33,
    "states_lack_the_tables_of_sessions": SCALED + 2,
    "guessed_tables_are_taken_for_the_first": SCALED + 71,
    "what_was_complete_is_replayed_after_a_move": SCALED + 24,
    "streams_are_opened_before_all_records_are_there": SCALED + 1,
    "producers_come_without_their_windows": GROWN,
    "windows_leave_before_publications_are_over": GROWN + 3,
    "receivers_do_not_count_new_dispatchers": GROWN + 11,
    "nobody_waits_for_new_dispatchers": GROWN + 129,
    "dispatchers_leave_before_their_batches_are_complete": SHRUNK + 30,
    "a_change_ends_before_windows_are_held": SHRUNK + 1,
    "nobody_hears_of_the_objects_of_those_that_left": SHRUNK + 32,
    "a_state_that_was_taken_is_sent_again": 320_595,
    "reports_of_unknown_mergers_are_taken": 310_299,
}


@pytest.mark.takes_turns
@pytest.mark.parametrize("seed", choose_first((107, UNCONTROLLED + 1, 4, 21), 2))
def test_a_seed_plays_alike_every_time(seed: int) -> None:
    assert run(seed) == run(seed)


@pytest.mark.takes_turns
@pytest.mark.parametrize("name", FOUND_BY)
def test_a_deliberate_bug_is_found(name: str) -> None:
    assert name in BUGS
    seeds = [FOUND_BY[name], *range(PATIENCE)]
    assert any(run(seed, name).violations for seed in seeds)
