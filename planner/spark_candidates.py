"""Candidates of a plan on Spark: the sample is broadcast, each candidate is planned for in a task,
and the scores and the best plan reach the driver."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from ps2stream.planner.candidates import (
    CandidateScore,
    Numbered,
    find_best,
    plan_candidate,
)
from ps2stream.planner.job import PlanJob
from ps2stream.planner.sample import PlannerSample
from ps2stream.planner.spark import describe_error
from ps2stream.planner.spark_rest import map_rows
from ps2stream.planner.spark_session import session
from ps2stream.posts.post import bad
from ps2stream.routing.plan import RoutingPlan

SCORES = pa.schema(
    [
        ("number", pa.int64()),
        ("slowest", pa.float64()),
        ("balance", pa.float64()),
        *(
            (name, pa.int64())
            for name in ("leaves", "text_leaves", "lon_bits", "lat_bits", "coarse")
        ),
        ("error", pa.string()),
    ]
)
"""CandidateScore."""
PLANS = pa.schema([*SCORES, ("plan", pa.string())])
"""The same with the plan, as its file has it."""


def score_by_spark(
    sample: PlannerSample, jobs: Numbered
) -> tuple[list[CandidateScore], RoutingPlan | None]:
    """Is a Scorer that plans on the executors of the running session. Raises InvalidArgument for
    what Spark refuses."""
    with session() as spark:
        bare = {number: _strip_job(job) for number, job in jobs.items()}
        shared = spark.sparkContext.broadcast((dataclasses.replace(sample, collected={}), bare))
        numbers = list(jobs)
        each = spark.range(0, len(numbers), 1, len(numbers))
        rows = map_rows(each, partial(plan_candidates, shared, numbers), PLANS).persist()
        try:
            table = rows.select(*SCORES.names).toArrow().cast(SCORES)
            scores = [CandidateScore(**row) for row in table.to_pylist()]
            best = find_best(scores)
            if best is None:
                return scores, None
            found = rows.where(F.col("number") == best).select("plan").toArrow()
            text = found["plan"].to_pylist()[0]
        except (PySparkException, Py4JJavaError) as error:
            raise bad("spark", describe_error(error)) from error
        finally:
            rows.unpersist()
            shared.destroy()
    return scores, RoutingPlan.from_dict(json.loads(text), jobs[best].analysis)


def plan_candidates(shared: Any, numbers: list[int], parts: Iterator[Any]) -> Iterator[Any]:
    """Yields PLANS of rows whose column id says which of `numbers`. shared: a broadcast of the
    sample and the jobs by number. For Spark's executors."""
    sample, jobs = shared.value
    for part in parts:
        for at in part.column("id").to_pylist():
            score, plan = plan_candidate(sample, jobs[numbers[at]], numbers[at])
            text = None if plan is None else json.dumps(plan.to_dict())
            yield pa.RecordBatch.from_pylist([score._asdict() | {"plan": text}], PLANS)


def _strip_job(job: PlanJob) -> PlanJob:
    """Returns the job without its input, which is in the sample, and without the caller's code."""
    options = dataclasses.replace(job.options, progress=_report_nothing)
    return dataclasses.replace(job, objects=(), queries=(), posts=(), updates=(), options=options)


def _report_nothing(what: str) -> None:
    pass
