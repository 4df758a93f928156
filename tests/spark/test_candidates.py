"""Candidates on Spark's executors: the same scores and plan as in one process."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from ps2stream.planner.candidates import choose_plan, score_locally
from ps2stream.planner.job import sample_of
from ps2stream.planner.spark_candidates import score_by_spark
from tests.support.candidates import some_jobs
from tests.support.samples import GRID

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.takes_turns(2)
def test_scores_and_plan_are_those_of_one_process(spark: SparkSession) -> None:
    jobs = [dataclasses.replace(job, grid=GRID, refine=False) for job in some_jobs()[:3]]
    local, remote = (
        choose_plan([dataclasses.replace(job, engine=engine) for job in jobs])
        for engine in ("numpy", "spark")
    )
    assert remote.scores == local.scores
    assert remote.number == local.number
    assert remote.plan.to_dict() == local.plan.to_dict()


def test_an_executor_tells_what_cannot_be_made(spark: SparkSession) -> None:
    """A sample without rows, for the algorithm that needs them."""
    jobs = dict(enumerate(some_jobs()[:2]))
    sample = sample_of(jobs[0])
    for numbers in ((0, 1), (1,)):
        asked = {number: jobs[number] for number in numbers}
        scores, plan = score_by_spark(sample, asked)
        assert [score.number for score in scores] == list(numbers)
        assert "needs the sample row by row" in scores[-1].error
        there = score_locally(sample, asked)[1]
        assert (plan and plan.to_dict()) == (there and there.to_dict())
