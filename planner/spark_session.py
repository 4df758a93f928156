"""A Spark session, started if none is running: one JVM per process, silent unless it fails."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from ps2stream.errors import FailedPrecondition

BATCH = 20_000
_SHUFFLE = "spark.sql.shuffle.partitions"
_DEFAULTS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.log.level": "ERROR",
    _SHUFFLE: "8",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_ALWAYS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH),
    "spark.sql.session.timeZone": "UTC",
}

_REPEATING_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers to which PySpark tells an exception, with the JVM's stack, before it raises it."""

_FAILURE = re.compile('^Exception in thread "main" (?!java.lang.Unsupported)(.*)', re.MULTILINE)
"""What a JVM says that ran Spark and ended, as for a package that cannot be fetched. Of a version
of Java that is too old it says UnsupportedClassVersionError."""


@contextmanager
def session(
    name: str = "ps2stream plan",
    settings: Mapping[str, str] | None = None,
    advice: str = "; --engine numpy needs no Java",
) -> Iterator[SparkSession]:
    """Yields the session of spark-submit, else one of our own, which ends with the block:
    local[*] unless Spark's own settings name a master. settings: of Spark; those of the JVM need a
    session of our own. Raises FailedPrecondition without Java, with `advice`."""
    for logger in _REPEATING_LOGGERS:
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL)
    given = dict(settings or {})
    is_external = (
        "PYSPARK_GATEWAY_PORT" in os.environ or SparkSession.getActiveSession() is not None
    )
    if not is_external:
        gateway = _launch_gateway(tuple(sorted(given.items())), advice)
        interrupted = signal.getsignal(signal.SIGINT)
        SparkContext(appName=name, gateway=gateway)
        if (
            interrupted not in (None, signal.default_int_handler)
            and threading.current_thread() is threading.main_thread()
        ):
            # A context sets a handler that raises, whatever the program wants to do at Ctrl-C.
            signal.signal(signal.SIGINT, interrupted)
    spark = SparkSession.builder.appName(name).getOrCreate()
    for key, value in (_ALWAYS | given).items():
        if spark.conf.isModifiable(key):
            spark.conf.set(key, value)
    context = spark.sparkContext
    if not context.getConf().contains(_SHUFFLE):
        # Shuffled rows are few, so a small number of partitions will do.
        spark.conf.set(_SHUFFLE, str(max(8, 4 * context.defaultParallelism)))
    try:
        yield spark
    finally:
        if not is_external:
            spark.stop()


def find_jvm() -> int:
    """Returns the process id of the JVM that this process has started for Spark, also after the
    session has ended."""
    gateway: Any = SparkContext._gateway
    return int(gateway.proc.pid)


def read_heap() -> int:
    """Returns the bytes that this JVM's heap takes of the system, also after the session."""
    gateway: Any = SparkContext._gateway
    return int(gateway.jvm.java.lang.Runtime.getRuntime().totalMemory())


@cache
def _launch_gateway(settings: tuple[tuple[str, str], ...], advice: str) -> Any:
    """Starts a JVM of our own, once per process; its output is shown only if it fails."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryFile() as output:
        try:
            return launch_gateway(  # type: ignore[no-untyped-call]
                SparkConf(loadDefaults=False).setAll([*_DEFAULTS.items(), *settings]),
                {"stdout": output, "stderr": output},
            )
        except PySparkRuntimeError:
            output.seek(0)
            text = output.read().decode(errors="replace")
            if failure := _FAILURE.search(text):
                raise FailedPrecondition(f"Spark did not start: {failure[1].strip()}") from None
            reason = text.strip().split("\n")[-1]
            raise FailedPrecondition(
                "Spark did not start: it needs Java 17 or newer (Debian: apt-get install "
                f"openjdk-17-jre-headless){advice}. Spark reported: {reason}"
            ) from None
