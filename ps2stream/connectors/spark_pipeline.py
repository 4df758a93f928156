"""A pipeline's run: a session of Spark, the stream, and the counts of its micro-batches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from pyspark.errors import PySparkException

from ps2stream.connectors.counts import ConnectorCounts, CountsReporter
from ps2stream.connectors.pipeline_config import PipelineJob
from ps2stream.connectors.rejected_file import append_lines
from ps2stream.connectors.spark_mapping import open_source
from ps2stream.connectors.spark_streaming import publish_stream
from ps2stream.planner.spark_session import session

COUNTS = ("taken", "done", "bad", "late", "repeats", "batches", "read_rate", "batch_ms")
_FIXED = {
    # How files are divided among partitions must not depend on the cores of this run.
    "spark.sql.files.maxPartitionBytes": str(128 << 20),
    "spark.sql.files.openCostInBytes": str(4 << 20),
    "spark.sql.adaptive.enabled": "false",
    # A cast without a result is null, and so a row that is no post; not the end of the query.
    "spark.sql.ansi.enabled": "false",
}


def choose_settings(job: PipelineJob) -> dict[str, str]:
    """Returns the settings of Spark under which a micro-batch is the same at each try."""
    partitions = str(job.partitions)
    counted = {
        "spark.sql.files.minPartitionNum": partitions,
        "spark.sql.shuffle.partitions": partitions,
    }
    return {**job.spark, **_FIXED, **counted}


class ProgressFollower:
    """Counts what a query reports of its micro-batches. busy_ms: milliseconds that all of them
    took together."""

    def __init__(self, counts: ConnectorCounts) -> None:
        self.busy_ms = 0
        self._counts = counts
        self._seen = -1

    def note_progress(self, reports: list[Mapping[str, Any]]) -> None:
        """Counts the reports that are new, of micro-batches that have ended."""
        for report in reports:
            if int(report["batchId"]) <= self._seen or not report["numInputRows"]:
                continue
            self._seen = int(report["batchId"])
            self._counts.add("batches")
            self._counts.add("taken", int(report["numInputRows"]))
            self._counts.set("read_rate", round(report.get("processedRowsPerSecond") or 0))
            took = report.get("durationMs") or {}
            batch_ms = int(took.get("triggerExecution") or 0)
            self._counts.set("batch_ms", batch_ms)
            self.busy_ms += batch_ms
            for state in report.get("stateOperators") or ():
                self._counts.add("late", int(state.get("numRowsDroppedByWatermark") or 0))
                more = state.get("customMetrics") or {}
                self._counts.add("repeats", int(more.get("numDroppedDuplicateRows") or 0))


def run_pipeline(
    job: PipelineJob,
    server: str,
    access: Mapping[str, str],
    counts: ConnectorCounts,
    teller: CountsReporter,
    stop: threading.Event,
    ready: Callable[[], None],
) -> ProgressFollower:
    """Runs a pipeline until `stop`, or, with the trigger None, until all is published that there
    was at the start; returns what counted its micro-batches. Raises InvalidArgument for a
    declaration that Spark refuses and a row that is no post, FailedPrecondition for Java or a
    package that is missing, and the service's errors."""

    def note(published: int, bad: int, letters: str) -> None:
        if letters and job.dead_letters is not None:
            append_lines(job.dead_letters, [letters])
        counts.add("done", published)
        counts.add("bad", bad)

    policy = "skip" if job.skip_bad else "file" if job.dead_letters is not None else "stop"
    if job.trigger is None:
        trigger: dict[str, Any] = {"availableNow": True}
    else:
        trigger = {"processingTime": f"{round(job.trigger * 1000)} milliseconds"}
    with session(f"ps2stream pipeline {job.name}", choose_settings(job), "") as spark:
        rows = open_source(spark, job)
        query = publish_stream(
            rows,
            server,
            name=job.name,
            checkpoint=job.checkpoint,
            trigger=trigger,
            mapping=job.mapping,
            bad_rows=policy,
            mark=job.compute_mark(),
            noted=note,
            **access,
        )
        follower = ProgressFollower(counts)
        ready()
        try:
            while not stop.is_set():
                has_ended = query.awaitTermination(0.5)
                follower.note_progress(query.recentProgress)
                if has_ended:
                    break
                if teller.due():
                    teller.tell()
        finally:
            _stop_query(query)
    return follower


def _stop_query(query: Any) -> None:
    with suppress(PySparkException):  # it has failed already, and that is what is reported
        query.stop()
