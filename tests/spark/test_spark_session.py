"""The Spark session: one for all, and an error in words where there is no Java."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ps2stream.planner.spark_session import BATCH, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
WITHOUT_JAVA = """
from ps2stream.errors import FailedPrecondition
from ps2stream.planner.spark_session import session
try:
    with session():
        print("it started")
except FailedPrecondition as error:
    print(error)
"""
WITHOUT_PACKAGE = """
import os
from ps2stream.errors import FailedPrecondition
from ps2stream.planner.spark_session import session
try:
    with session(settings={"spark.jars.packages": "none", "spark.jars.ivy": os.getcwd()}):
        print("it started")
except FailedPrecondition as error:
    print(error)
"""
INTERRUPTED = """
import os, signal
from ps2stream.planner.spark_session import session
signal.signal(signal.SIGINT, lambda *_: print("it ends as it wants to"))
with session() as spark:
    os.kill(os.getpid(), signal.SIGINT)
    print(spark.range(3).count())
"""


def test_a_session_that_runs_is_used_and_stays(spark: SparkSession) -> None:
    with session() as found:
        assert found is spark
    assert spark.range(3).count() == 3


def test_batches_are_bounded_and_times_are_utc(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == str(BATCH)
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_what_sql_cannot_resolve_is_told_by_the_error_alone(spark: SparkSession) -> None:
    from pyspark.errors import AnalysisException
    from pyspark.logger import PySparkLogger

    told = logging.StreamHandler(log := io.StringIO())
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    logger.addHandler(told)
    try:
        with session() as found, pytest.raises(AnalysisException, match="nothing"):
            found.range(1).filter("nothing > 0")
    finally:
        logger.removeHandler(told)
    assert not log.getvalue()


def test_without_java_the_error_says_what_to_install(root: Path, tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "JAVA_HOME"}
    environment |= {"JAVA_HOME": str(tmp_path), "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_JAVA],
        capture_output=True, check=True, text=True, env=environment, timeout=300,
    )  # fmt: skip
    assert "it needs Java 17 or newer" in done.stdout
    assert "--engine numpy needs no Java" in done.stdout


def test_a_package_that_cannot_be_had_is_told_and_no_want_of_java(
    root: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PACKAGE],
        capture_output=True, check=True, text=True, timeout=300, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(root)},
    )  # fmt: skip
    assert done.stdout.startswith("Spark did not start: java.lang.IllegalArgumentException: ")
    assert "The coordinate provided is: none" in done.stdout
    assert "Java 17" not in done.stdout


def test_ctrl_c_is_for_the_program_that_handles_it(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        capture_output=True, check=False, text=True, timeout=300,
        env=os.environ | {"PYTHONPATH": str(root)},
    )  # fmt: skip
    assert done.stdout.splitlines() == ["it ends as it wants to", "3"], done.stderr
