"""Options of Spark for tests, whose jobs are short and whose rows are few."""

from __future__ import annotations

SETTINGS = {
    # Code that runs once is not worth compiling.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
}
DAEMON = {"spark.python.daemon.module": "tests.support.spark_daemon"}


def submit_options(settings: dict[str, str]) -> list[str]:
    """Returns the settings as arguments of spark-submit."""
    return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
