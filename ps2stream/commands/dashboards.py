"""`ps2stream dashboards`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ps2stream.commands.output import Output, json_option, pass_output
from ps2stream.errors import InvalidArgument, Violation

PORT = 9404


@click.command()
@click.option(
    "-o",
    "--output",
    "folder",
    metavar="DIR",
    default="ps2stream-dashboards",
    show_default=True,
    help="Where to write; what is there of these names is written over.",
)
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="HOST:PORT",
    help="Where metrics are told (metrics_port); several may be given.  "
    f"[default: 127.0.0.1:{PORT}]",
)
@click.option(
    "--ray-discovery",
    "discovery",
    multiple=True,
    metavar="FILE",
    help="File in which a Ray cluster with a dashboard writes the addresses of its nodes: "
    "/tmp/ray/session_latest/prom_metrics_service_discovery.json.",
)
@json_option
@pass_output
def dashboards(
    output: Output, /, folder: str, targets: tuple[str, ...], discovery: tuple[str, ...]
) -> None:
    """Write files for Prometheus and Grafana.

    prometheus.yml scrapes the service, ps2stream.rules.yml has alerts with what to do about
    each, ps2stream.json is a dashboard for Grafana. docs/metrics.md says more.
    """
    from ps2stream.dashboards.alerts import rules
    from ps2stream.dashboards.grafana import dashboard
    from ps2stream.dashboards.scrape import RULES, configuration

    for target in targets:
        host, _, port = target.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
            problem = f"{target!r} is not of the form HOST:PORT"
            raise InvalidArgument([Violation("target", problem)])
    if not targets and not discovery:
        targets = (f"127.0.0.1:{PORT}",)
    found = {
        "prometheus.yml": configuration(targets, discovery),
        RULES: rules(),
        "ps2stream.json": json.dumps(dashboard(), indent=1) + "\n",
    }
    into = Path(folder)
    try:
        into.mkdir(parents=True, exist_ok=True)
        for name, text in found.items():
            (into / name).write_text(text, "utf-8")
    except OSError as error:
        problem = f"cannot write to {folder}: {error.strerror}"
        raise InvalidArgument([Violation("--output", problem)]) from None
    paths = [str(into / name) for name in found]
    output.emit({"written": paths}, "written: " + ", ".join(paths))
