"""A pipeline's run: a session of Spark, the stream, and the counts of its micro-batches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ps2stream.connectors.counts import ConnectorCounts, CountsReporter
from ps2stream.connectors.pipeline_config import PipelineJob
from ps2stream.connectors.pipeline_sender import SenderOptions
from ps2stream.connectors.rejected_file import append_lines
from ps2stream.connectors.spark_files import (
    FileReading,
    FileSender,
    find_job_problem,
    plan_reading,
)
from ps2stream.connectors.spark_mapping import MappedPosts, map_posts, open_source
from ps2stream.connectors.spark_publisher import RowSender, SendBatch, start_publishing
from ps2stream.planner.spark_session import session
from ps2stream.posts.post import bad

COUNTS = ("taken", "done", "bad", "late", "repeats", "batches", "read_rate", "batch_ms")
_FIXED = {
    # How files are divided among partitions must not depend on the cores of this run.
    "spark.sql.files.maxPartitionBytes": str(128 << 20),
    "spark.sql.files.openCostInBytes": str(4 << 20),
    "spark.sql.adaptive.enabled": "false",
    # A cast without a result is null, and so a row that is no post; not the end of the query.
    "spark.sql.ansi.enabled": "false",
}

_WITHOUT_ROWS = {
    # Where no row passes the JVM, its second compiler costs more than what it compiles.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


def choose_settings(job: PipelineJob) -> dict[str, str]:
    """Returns the settings of Spark under which a micro-batch is the same at each try."""
    partitions = str(job.partitions)
    counted = {
        "spark.sql.files.minPartitionNum": partitions,
        "spark.sql.shuffle.partitions": partitions,
    }
    given = {} if find_job_problem(job) else _WITHOUT_ROWS
    return {**given, **job.spark, **_FIXED, **counted}


class ProgressFollower:
    """Counts what a query reports of its micro-batches. busy_ms: milliseconds that all of them
    took together. pop_rows: returns the rows of a micro-batch, where Spark counts files instead."""

    def __init__(
        self, counts: ConnectorCounts, pop_rows: Callable[[int], int] | None = None
    ) -> None:
        self.busy_ms = 0
        self._counts = counts
        self._pop_rows = pop_rows
        self._seen = -1

    def note_progress(self, reports: list[Mapping[str, Any]]) -> None:
        """Counts the reports that are new, of micro-batches that have ended."""
        for report in reports:
            if int(report["batchId"]) <= self._seen or not report["numInputRows"]:
                continue
            self._seen = int(report["batchId"])
            self._counts.add("batches")
            took = report.get("durationMs") or {}
            batch_ms = int(took.get("triggerExecution") or 0)
            rows, rate = int(report["numInputRows"]), report.get("processedRowsPerSecond") or 0
            if self._pop_rows is not None:
                rows = self._pop_rows(self._seen)
                rate = 1000 * rows / batch_ms if batch_ms else 0
            self._counts.add("taken", rows)
            self._counts.set("read_rate", round(rate))
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
    ready: Callable[[str, str], None],
) -> ProgressFollower:
    """Runs a pipeline until `stop`, or, with the trigger None, until all is published that there
    was at the start; returns what counted its micro-batches. ready: told once it runs, with who
    reads the rows, arrow or spark, and why not Arrow. Raises InvalidArgument for a
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
        mapped = map_posts(rows, job.mapping)
        mapped.warn_left_out()
        options = SenderOptions(server, access, mapped.attributes, mapped.spec, policy)
        reading = _choose_reading(spark, job, rows, mapped)
        send: SendBatch
        if is_spark := isinstance(reading, str):
            stream, mark = mapped.posts, job.compute_mark()
            send = RowSender(options, job.mapping.dedupe_s is not None)
        else:
            stream, mark = reading.listing, f"{job.compute_mark()} arrow"
            send = FileSender(options, reading.columns, job.partitions)
        query = start_publishing(
            stream,
            send,
            name=job.name,
            mark=mark,
            checkpoint=job.checkpoint,
            trigger=trigger,
            bad_rows=policy,
            noted=note,
        )
        follower = ProgressFollower(counts, None if is_spark else query.pop_rows)
        ready("spark" if is_spark else "arrow", str(reading) if is_spark else "")
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


def _choose_reading(
    spark: SparkSession, job: PipelineJob, rows: DataFrame, mapped: MappedPosts
) -> FileReading | str:
    found = plan_reading(spark, job, rows, mapped)
    if isinstance(found, str) and job.reader == "arrow":
        raise bad("source.reader", f"arrow cannot read this: {found}; expected auto or spark")
    return found


def _stop_query(query: Any) -> None:
    with suppress(PySparkException):  # it has failed already, and that is what is reported
        query.stop()
