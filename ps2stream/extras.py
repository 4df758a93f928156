"""Packages that only an extra installs, and the error that names it where one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ps2stream import __version__
from ps2stream.errors import FailedPrecondition

_PACKAGES = {
    "frames": "numpy pyarrow",
    "local": (
        "aiohttp apsw grpc_reflection grpc_status llvmlite numba prometheus_client pydantic regex "
        "shapely Stemmer stopwordsiso zmq"
    ),
    "server": "ray",
    "planner": "pandas py4j pyspark",
    "postgres": "psycopg",
    "kafka": "confluent_kafka",
    "mqtt": "paho",
    "feeds": "defusedxml",
    "notebook": "folium",
    "otel": "opentelemetry",
    "lab": "matplotlib pymetis rtree",
}
EXTRAS = {package: extra for extra, names in _PACKAGES.items() for package in names.split()}
"""The smallest extra that installs each package that the bare distribution lacks."""
_SHARED = ("frames", "local")
"""Extras that others include."""
_COMMANDS = {
    "server": "serve cluster demo doctor backup restore calibrate config dashboards bench",
    "local": "map match",
    "planner": "plan replan pipeline",
    "lab": "experiment",
}
COMMAND_EXTRAS = {command: extra for extra, names in _COMMANDS.items() for command in names.split()}
"""The extra that a command is used with, so that its packages need not be installed one by one."""


def explain_missing_package(
    error: ModuleNotFoundError, user: str, extra: str | None = None
) -> FailedPrecondition | None:
    """Returns the error that says which install brings the package, or None for a module that no
    extra brings. user: what needs it; extra: the one to name for a package of several extras."""
    package = (error.name or "").split(".")[0]
    found = EXTRAS.get(package)
    if found is None or find_spec(package) is not None:
        return None
    if found in _SHARED and extra is not None:
        found = extra
    return FailedPrecondition(
        f"{user} needs the package {package}, which is not installed: {describe_install(found)}"
    )


def describe_install(extra: str) -> str:
    """Returns the commands that install an extra. They name the wheel or the checkout: in an
    index, the package's name might be somebody else's."""
    wheel = f"./ps2stream-{__version__}-py3-none-any.whl[{extra}]"
    return f"pip install '{wheel}', or in a checkout: pip install '.[{extra}]'"


def import_optional(module: str, user: str) -> Any:
    """Imports a module. Raises FailedPrecondition where its package is missing."""
    with name_missing_extra(user):
        return import_module(module)


@contextmanager
def name_missing_extra(user: str, extra: str | None = None) -> Iterator[None]:
    """Raises FailedPrecondition for a package that is missing within the block, as
    explain_missing_package has it. A module that no extra brings is a bug: its error remains."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (explained := explain_missing_package(error, user, extra)) is None:
            raise
        raise explained from error
