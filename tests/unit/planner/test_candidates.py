"""The choice among candidates is the one that planning for each of them by itself would make."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ps2stream.errors import PlanError
from ps2stream.language.analyzer import Analyzer
from ps2stream.planner.candidates import MAX_CANDIDATES, CandidateScore, choose_plan, find_best
from ps2stream.planner.job import PlanJob, open_sampler, run, sample_of
from ps2stream.planner.load import worker_loads
from ps2stream.planner.partition import plan_holders
from ps2stream.planner.sample import PlannerSample
from ps2stream.space.grid import Grid
from tests.support.candidates import COARSE, some_jobs
from tests.support.samples import GRID


def find_slowest(job: PlanJob) -> float:
    """The load of the slowest worker by cells, of the plan that is made for this job alone."""
    plan, sample = run(job), sample_of(job)
    owner, _ = plan_holders(plan, sample.stats, Analyzer(job.analysis))
    return float(worker_loads(sample.stats, owner, job.workers, job.options.costs).max())


@pytest.mark.takes_turns
@pytest.mark.parametrize("max_units", [10**6, 50])
def test_the_choice_is_the_best_of_all_made_one_by_one(max_units: int) -> None:
    """Also where the sample is summed by cell for all candidates but the one that needs rows."""
    jobs = some_jobs(max_units=max_units)
    found = choose_plan(jobs)
    alone = [find_slowest(job) for job in jobs]
    assert [score.slowest for score in found.scores] == pytest.approx(alone)
    assert found.number == alone.index(min(alone))
    assert found.plan.to_dict() == run(jobs[found.number]).to_dict()
    assert (found.sample.rest > 0) == (max_units == 50)
    for score, job in zip(found.scores, jobs, strict=True):
        plan = run(job)
        assert (score.lon_bits, score.lat_bits) == (plan.grid.lon_bits, plan.grid.lat_bits)
        assert score.balance == plan.made["predicted"]["balance"]
        assert score.leaves == len(plan.leaves)


def test_what_candidates_have_in_common_is_sampled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grid with and without finer ones, and rows that suffice for the others too."""
    jobs = some_jobs()
    grids: list[Any] = []

    @contextmanager
    def note(job: PlanJob) -> Iterator[Any]:
        with open_sampler(job) as take:

            def noted(one: PlanJob, grid: Grid | None) -> PlannerSample:
                grids.append(grid)
                return take(one, grid)

            yield noted

    monkeypatch.setattr("ps2stream.planner.candidates.open_sampler", note)
    choose_plan(jobs)
    tried = sample_of(jobs[-1]).refinement["tried"]
    assert len(tried) > 1
    assert (grids.count(GRID), grids.count(COARSE)) == (1, 1)
    assert len(grids) == 2 + len(tried) - 1


def test_of_equal_candidates_the_first_is_taken() -> None:
    job = some_jobs()[0]
    assert choose_plan([job, job]).number == 0
    equal = [CandidateScore(n, slowest) for n, slowest in ((2, 1.0), (1, 1.0), (0, 2.0))]
    assert find_best(equal) == 1


def test_a_candidate_that_cannot_be_made_is_told_and_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By its sample here, which has more rows than are kept."""
    jobs = some_jobs()
    monkeypatch.setattr("ps2stream.planner.sample_rows.MAX_ROWS", 10)
    found = choose_plan(jobs)
    assert "at most 10 objects" in found.scores[1].error
    assert not any(score.error for n, score in enumerate(found.scores) if n != 1)
    with pytest.raises(PlanError, match="at most 10 objects"):
        choose_plan([jobs[1], jobs[1]])


def test_wrong_candidates_are_refused_before_anything_is_read() -> None:
    job = PlanJob(["/none.csv"], engine="numpy")
    for number in (0, MAX_CANDIDATES + 1):
        with pytest.raises(PlanError, match=f"expected 1 to 64, got {number}"):
            choose_plan([job] * number)
    with pytest.raises(PlanError, match="algorithm: expected one of"):
        choose_plan([job, dataclasses.replace(job, algorithm="best")])
