"""The choice among candidates: plans by several algorithms, parameters and grids, of one sample.

What the candidates have in common is sampled once. An engine plans for each of them: in this
process, one after another, or on Spark's executors in parallel (spark_candidates.py), by the same
function. The driver holds one sample, the scores, and the best plan so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ps2stream.errors import PlanError, Ps2StreamError
from ps2stream.planner.job import PlanJob, check_algorithm, open_sampler, plan_of
from ps2stream.planner.load import lower_bound
from ps2stream.planner.refinement import refine
from ps2stream.planner.sample import PlannerSample
from ps2stream.routing.plan import RoutingPlan
from ps2stream.space.grid import Grid

MAX_CANDIDATES = 64


class CandidateScore(NamedTuple):
    """What is predicted for a candidate: its number in the list; the load of its slowest worker by
    cells, microseconds of the sample, and over that of the fastest (None: infinite); its leaves;
    its grid, and the live queries on coarser levels, which no plan places. error: why there is no
    such plan, else ""."""

    number: int
    slowest: float = 0.0
    balance: float | None = None
    leaves: int = 0
    text_leaves: int = 0
    lon_bits: int = 0
    lat_bits: int = 0
    coarse: int = 0
    error: str = ""


class PlanChoice(NamedTuple):
    """The best candidate: its number in the list, its plan and sample; the scores of all."""

    number: int
    plan: RoutingPlan
    sample: PlannerSample
    scores: list[CandidateScore]


Numbered = Mapping[int, PlanJob]
Scorer = Callable[[PlannerSample, Numbered], tuple[list[CandidateScore], RoutingPlan | None]]
"""Returns the scores of jobs on a sample, and the best plan of these, if any."""
_Taker = Callable[[PlanJob, Grid | None], PlannerSample]


def choose_plan(jobs: Sequence[PlanJob]) -> PlanChoice:
    """Plans for each of these, which differ in algorithm, options, grid and refine only. Returns
    the one whose slowest worker has the least load; of equal ones, the first. Its plan is what
    `run` makes of that job. Raises PlanError if none can be made, or for more than MAX_CANDIDATES;
    InvalidArgument as `run`."""
    if not 1 <= len(jobs) <= MAX_CANDIDATES:
        raise PlanError(f"candidates: expected 1 to {MAX_CANDIDATES}, got {len(jobs)}")
    for job in jobs:
        check_algorithm(job)
    scores: dict[int, CandidateScore] = {}
    best: tuple[int, RoutingPlan, PlannerSample] | None = None
    with open_sampler(jobs[0]) as take:
        scorer = _open_scorer(jobs[0])
        for sample, numbers in _take_samples(jobs, take):
            if isinstance(sample, PlanError):
                scores |= {n: CandidateScore(n, error=str(sample)) for n in numbers}
                continue
            jobs[0].options.progress(
                f"planning for {len(numbers)} candidates: {sample.stats.units:,} units"
            )
            found, plan = scorer(sample, {n: jobs[n] for n in numbers})
            scores |= {score.number: score for score in found}
            first = find_best(list(scores.values()))
            if plan is not None and first in numbers:
                best = first, plan, sample
    listed = [scores[n] for n in range(len(jobs))]
    if best is None:
        raise PlanError("; ".join(dict.fromkeys(score.error for score in listed)))
    return PlanChoice(*best, listed)


def find_best(scores: Sequence[CandidateScore]) -> int | None:
    """Returns the number of the candidate with the least load of the slowest worker; of equal ones,
    the first; None if there is none."""
    made = [score for score in scores if not score.error]
    return min(made, key=lambda score: (score.slowest, score.number)).number if made else None


def plan_candidate(
    sample: PlannerSample, job: PlanJob, number: int
) -> tuple[CandidateScore, RoutingPlan | None]:
    """Returns the score of one candidate, and its plan if there is one."""
    try:
        plan = plan_of(sample, job)
    except Ps2StreamError as error:  # what this algorithm needs is not there
        return CandidateScore(number, error=str(error)), None
    found, grid = plan.made["predicted"], plan.grid
    bound = lower_bound(sample.stats, job.workers, job.options.costs)
    score = CandidateScore(
        number,
        found["slowest_over_bound"] * bound,
        found["balance"],
        found["leaves"],
        found["text_leaves"],
        grid.lon_bits,
        grid.lat_bits,
        sample.coarse,
    )
    return score, plan


def score_locally(
    sample: PlannerSample, jobs: Numbered
) -> tuple[list[CandidateScore], RoutingPlan | None]:
    """Is a Scorer that plans in this process, one candidate after another."""
    scores: list[CandidateScore] = []
    best: RoutingPlan | None = None
    for number, job in jobs.items():
        score, plan = plan_candidate(sample, job, number)
        scores.append(score)
        if find_best(scores) == number:
            best = plan
    return scores, best


def _open_scorer(job: PlanJob) -> Scorer:
    if job.engine != "spark":
        return score_locally
    from ps2stream.planner.spark_candidates import score_by_spark

    return score_by_spark


def _take_samples(
    jobs: Sequence[PlanJob], take: _Taker
) -> Iterator[tuple[PlannerSample | PlanError, list[int]]]:
    """Yields each sample, or why there is none, with the numbers of the jobs that plan on it. The
    sample on a grid to begin with is taken once, also where finer ones follow it."""
    firsts: dict[tuple[Grid | None, bool], PlannerSample] = {}

    def take_one(job: PlanJob) -> PlannerSample:
        key = job.grid, job.rows
        first = firsts.pop(key, None) or take(job, job.grid)
        if job.refine:
            return refine(first, job.workers, job.options, lambda grid: take(job, grid))
        if any(other.refine and (other.grid, other.rows) == key for other in jobs):
            firsts[key] = first
        return first

    for grid, is_refined in sorted({(j.grid, j.refine) for j in jobs}, key=_order_grids):
        group = [n for n, j in enumerate(jobs) if (j.grid, j.refine) == (grid, is_refined)]
        by_rows = [n for n in group if jobs[n].rows]
        others = [n for n in group if not jobs[n].rows]
        if by_rows:
            found: PlannerSample | PlanError
            try:
                found = take_one(jobs[by_rows[0]])
            except PlanError as error:
                found = error
            # Below the limit on units, the sample that has rows too is the one without.
            if not isinstance(found, PlanError) and found.stats.units <= jobs[0].max_units:
                by_rows, others = group, []
            yield found, by_rows
        if others:
            yield take_one(jobs[others[0]]), others


def _order_grids(choice: tuple[Grid | None, bool]) -> tuple[Any, ...]:
    """Orders grids, each without finer ones first."""
    grid, is_refined = choice
    return (() if grid is None else tuple(map(repr, grid.to_dict().items())), is_refined)
