"""Options of Spark for tests, whose jobs are short and whose rows are few."""

from __future__ import annotations

SETTINGS = {
    # Code that runs once is not worth compiling.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
}
SHARED = {
    "spark.python.daemon.module": "tests.support.spark_daemon",
    # With it each stage is a job of its own, planned anew. tests/spark/test_submit.py has it.
    "spark.sql.adaptive.enabled": "false",
}
"""Further ones of the session that most tests share."""


def submit_options(settings: dict[str, str]) -> list[str]:
    """Returns the settings as arguments of spark-submit."""
    return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
