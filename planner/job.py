"""The planning job: from files of objects and queries to a plan (`ps2stream plan`).

It runs the same under `spark-submit`. The engine `numpy` works without Spark, in one process.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ps2stream.errors import PlanError
from ps2stream.extras import name_missing_extra
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.planner import sample as twin
from ps2stream.planner.algorithms import ALGORITHMS, BY_ROWS
from ps2stream.planner.archived_terms import count_archive
from ps2stream.planner.counting import object_terms
from ps2stream.planner.files import read_updates
from ps2stream.planner.load import bound_error
from ps2stream.planner.objects import read_objects
from ps2stream.planner.partition import Partition, PartitionOptions, predicted, to_plan
from ps2stream.planner.refinement import explain_imbalance, refine
from ps2stream.planner.rest import MAX_UNITS
from ps2stream.planner.sample import PlannerSample
from ps2stream.planner.statistics import MAX_SIGNATURES
from ps2stream.posts.members import AttributeChoice
from ps2stream.posts.post import bad
from ps2stream.posts.readers import format_of
from ps2stream.routing.costs import Costs
from ps2stream.routing.plan import RoutingPlan, Space
from ps2stream.space.grid import Grid
from ps2stream.space.kdt_tree import tree_to_dict

MAX_COST = 1e6
Engine = Literal["spark", "numpy"]


@dataclasses.dataclass(frozen=True)
class PlanJob:
    """The input and the settings of a plan.

    objects, queries: files (Spark: also directories and URLs). posts, updates: further batches of
    objects.OBJECTS and updates.UPDATES. attributes: which members and columns of the files of
    objects are attributes, as `publish` takes it; None: all that can. grid: by default the one for
    the queries' median box; refine: begin with it and try finer ones until no cell holds too much
    of the load. max_units: units that are held one by one, the others are summed by cell
    (planner/rest.py); an algorithm that needs rows has all. max_signatures: objects that are kept
    as sets of units, or one per cell. salt: the one that the plan is
    predicted under; a service hashes with its own.
    """

    objects: Sequence[str] = ()
    queries: Sequence[str] = ()
    posts: Sequence[Any] = ()
    updates: Sequence[Any] = ()
    attributes: str | None = None
    workers: int = 8
    algorithm: str = "hybrid"
    options: PartitionOptions = dataclasses.field(default_factory=PartitionOptions)
    stemmer: str | None = None
    stop_words: str | None = None
    fold: tuple[str, ...] = ()
    salt: int = 0
    grid: Grid | None = None
    refine: bool = False
    max_units: int = MAX_UNITS
    max_signatures: int = MAX_SIGNATURES
    engine: Engine = "spark"

    @property
    def analysis(self) -> Analysis:
        """The text analysis of objects and queries."""
        return Analysis(self.salt, self.stemmer, self.stop_words, fold=self.fold)

    @property
    def rows(self) -> bool:
        """True if the algorithm needs the sample row by row."""
        return self.algorithm in BY_ROWS


def run(job: PlanJob) -> RoutingPlan:
    """Reads, counts and partitions. Raises InvalidArgument for bad input, PlanError for a sample
    or options that no plan can be made of."""
    return plan_of(sample_of(job), job)


def sample_of(job: PlanJob) -> PlannerSample:
    """Reads and counts."""
    check_algorithm(job)
    with open_sampler(job) as take:
        sample = take(job, job.grid)
        if not job.refine:
            return sample
        return refine(sample, job.workers, job.options, lambda grid: take(job, grid))


def check_algorithm(job: PlanJob) -> None:
    """Raises PlanError for an algorithm that does not exist."""
    if job.algorithm not in ALGORITHMS:
        names = ", ".join(ALGORITHMS)
        raise PlanError(f"algorithm: expected one of {names}, got {job.algorithm!r}")


@contextmanager
def open_sampler(job: PlanJob) -> Iterator[Callable[[PlanJob, Grid | None], PlannerSample]]:
    """Yields what samples jobs of this job's engine on a grid, None: the one for the queries'
    median box. With Spark its session runs meanwhile."""
    if job.engine != "spark":
        yield _sample_by_numpy
        return
    with name_missing_extra("Planning with the engine spark (not with --engine numpy)"):
        from ps2stream.planner import spark
        from ps2stream.planner.spark_session import session

    job.options.progress("starting Spark")
    with session() as running:

        def take(one: PlanJob, grid: Grid | None) -> PlannerSample:
            files = spark.SampleFiles(
                one.objects, one.queries, one.posts, one.updates, one.attributes
            )
            return spark.take(
                running, files, one.analysis, grid, one.options.progress, one.rows, one.max_units,
                one.max_signatures,
            )  # fmt: skip

        yield take


def plan_of(sample: PlannerSample, job: PlanJob) -> RoutingPlan:
    """Returns the plan for a sample; its `made` says how it was made."""
    options = job.options
    options.progress(f"partitioning by {job.algorithm}: {sample.stats.units:,} units")
    partition = ALGORITHMS[job.algorithm](sample.stats, job.workers, options)
    plan = to_plan(partition, sample.stats, job.workers, job.analysis, sample.frequencies)
    found = predicted(partition, sample.stats, job.workers, options, Analyzer(job.analysis))
    warnings = found.pop("warnings")
    warnings += _list_warnings(sample, found["balance"], job, any("sigma" in w for w in warnings))
    if found["balance"] == float("inf"):
        found["balance"] = None  # JSON has no infinity
    made = {
        "algorithm": job.algorithm,
        "options": {
            name: getattr(options, name) for name in ("load", "delta", "eps", "sigma", "seed")
        }
        | {"theta": options.leaves(job.workers)},
        "salt": job.analysis.salt_mark(),
        "sample": {
            name: getattr(sample, name)
            for name in ("objects", "live", "inserts", "deletes", "coarse")
        }
        | {"cells": sample.stats.cells, "units": sample.stats.units},
        "predicted": found,
        "warnings": warnings,
    }
    if sample.rest:
        made["sample"]["rest"] = _describe_rest(sample, partition, options.costs)
    if sample.refinement:
        made["refinement"] = dict(sample.refinement)
    if partition.phases:
        made["phases"] = dict(partition.phases)
    if partition.tree is not None:
        made["tree"] = tree_to_dict(partition.tree)
    # Through JSON and back, so that a plan equals itself when it is read from its file.
    return dataclasses.replace(plan, made=json.loads(json.dumps(made)))


def _describe_rest(sample: PlannerSample, partition: Partition, costs: Costs) -> dict[str, Any]:
    """Returns how many units are summed by cell, and by how much the load of a worker may differ
    from the predicted one therefore, microseconds."""
    by_terms = [not isinstance(leaf, Space) for leaf in partition.leaves]
    divided = np.flatnonzero(np.array(by_terms)[partition.cells])
    return {"units": sample.rest, "error": bound_error(sample.stats, divided, costs)}


def _list_warnings(
    sample: PlannerSample, balance: float, job: PlanJob, unmet: bool
) -> Iterator[str]:
    """Yields the warnings on a plan. unmet: the algorithm has already explained why sigma is not
    met."""
    if not sample.live + sample.inserts:
        yield "no queries: there is no load to balance"
    elif not sample.stats.o.any():
        yield "no object has a term that a query is posted under in its cell"
    if balance == float("inf") and not unmet:
        yield f"a worker has no load, so that sigma = {job.options.sigma:g} is not met"
    elif balance > job.options.sigma and not unmet:
        yield (
            f"the slowest worker has {balance:.2f} times the load of the fastest; "
            f"sigma is {job.options.sigma:g}"
        )
    if balance > job.options.sigma and (
        cause := explain_imbalance(sample, job.workers, job.options.costs)
    ):
        yield cause
    if sample.coarse:
        yield (
            f"{sample.coarse:,} of {sample.live:,} queries touch more than "
            f"{sample.stats.grid.max_cells} cells: a hash sends them to all workers, whatever the "
            "plan"
        )


def _sample_by_numpy(job: PlanJob, grid: Grid | None) -> PlannerSample:
    def objects() -> Iterator[Any]:
        yield from job.posts
        for path in job.objects:
            yield from read_objects(path, job.attributes)

    def terms() -> Iterator[Any]:
        analyzer, choice = Analyzer(job.analysis), AttributeChoice(job.attributes)
        for path in job.objects:
            if format_of(path) == "archive":
                yield from count_archive(path, job.analysis, choice)
            else:
                yield from (object_terms(b, analyzer) for b in read_objects(path, job.attributes))
        yield from (object_terms(batch, analyzer) for batch in job.posts)

    updates = [*job.updates, *(batch for path in job.queries for batch in read_updates(path))]
    return twin.take(
        objects,
        updates,
        job.analysis,
        grid,
        job.options.progress,
        job.rows,
        job.max_units,
        job.max_signatures,
        terms,
    )


def read_costs(path: str) -> Costs:
    """Reads c1 to c4 from a file that `ps2stream calibrate` wrote. Raises InvalidArgument."""
    names = [field.name for field in dataclasses.fields(Costs)]
    expected = (
        f"expected a JSON object with numbers from 0 to {MAX_COST:g} (microseconds) for "
        f"{', '.join(names)}"
    )
    try:
        found = json.loads(Path(path).read_text("utf-8"))
        values = [found[name] for name in names]
    except OSError as error:
        raise bad(path, f"cannot read it: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise bad(path, f"{expected}: {error}") from None
    if not all(type(v) in (int, float) and 0 <= v <= MAX_COST for v in values):
        raise bad(path, f"{expected}, got {values}")
    return Costs(*(float(v) for v in values))
