"""The checker judges the simulator's clients as the simulator does, which also sees the ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.history.check import check
from tests.sim.run import run

PATIENCE = 100
# A seed that shows each of these bugs of tests/sim/bugs.py to its clients, and as what. Should a
# change of the code shift it, others are tried.
SHOWN_BY = {
    "offsets_used_again": (6, "misplaced"),
    "open_batches_not_replayed": (17, "lost"),
    "withdrawn_publications_are_routed": (0, "twice"),
    "reopened_streams_go_on_where_they_were": (2, "unreported_gap"),
    "visible_before_all_have_applied": (27, "backwards"),
    "tombstones_dropped": (0, "after_delete"),
    "matched_as_of_now": (2, "false"),
}


@pytest.mark.parametrize("seed", [1, 4, 6, 27])
def test_faults_that_the_service_survives_break_no_promise(seed: int, tmp_path: Path) -> None:
    assert not run(seed, history=tmp_path / "history").violations
    verdict = check([tmp_path / "history"])
    assert verdict.held, verdict.to_dict()
    assert verdict.figures["delivered"] > 0
    assert verdict.figures["updates"] > 0


@pytest.mark.takes_turns
@pytest.mark.parametrize("name", SHOWN_BY)
def test_a_deliberate_bug_is_found_from_outside(name: str, tmp_path: Path) -> None:
    seed, kind = SHOWN_BY[name]
    for each in (seed, *range(PATIENCE)):
        if kind in check_run(each, name, tmp_path):
            return
    raise AssertionError(f"no seed shows {name}")


def check_run(seed: int, bug: str, folder: Path) -> set[str]:
    """The kinds of anomalies of a seed with this bug, or without one."""
    run(seed, bug, history=folder / "history")
    return set(check([folder / "history"]).anomalies)
