"""`ps2stream pipeline`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ps2stream.commands.connecting import FILE, run_connector, running_options
from ps2stream.commands.output import CommandOutput, pass_output
from ps2stream.connectors.counts import HOST
from ps2stream.connectors.pipeline_config import (
    READERS,
    build_job,
    merge_declarations,
    read_declaration,
)
from ps2stream.errors import invalid
from ps2stream.extras import name_missing_extra


def _split_pairs(option: str, values: tuple[str, ...]) -> dict[str, str]:
    """Returns the values of a NAME=VALUE option by name."""
    found: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name.strip():
            raise invalid(option, f"expected NAME=VALUE, got {value!r}")
        found[name.strip()] = text
    return found


def declare_by_options(
    source: str | None,
    option: tuple[str, ...],
    schema: str | None,
    fields: tuple[str, ...],
    attribute: tuple[str, ...],
    spark: tuple[str, ...],
    more: dict[str, Any],
) -> dict[str, Any]:
    """Returns the declaration that options make, in the form of the file. more: values of the top
    level and of posts, None where the option is not there."""
    declared: dict[str, Any] = {}
    if source is not None:
        format, colon, path = source.partition(":")
        declared["source"] = {"format": format} | ({"path": path} if colon else {})
    if schema is not None:
        declared.setdefault("source", {})["schema"] = schema
    if more["reader"] is not None:
        declared.setdefault("source", {})["reader"] = more["reader"]
    if option:
        declared.setdefault("source", {})["options"] = _split_pairs("--option", option)
    posts = _split_pairs("--map", fields)
    posts |= {n: more[n] for n in ("where", "dedupe") if more[n] is not None}
    if posts:
        declared["posts"] = posts
    if attribute:
        declared["attributes"] = _split_pairs("--attribute", attribute)
    elif more["attributes"] is not None:
        declared["attributes"] = more["attributes"]
    if spark:
        declared["spark"] = _split_pairs("--spark", spark)
    for name in ("name", "checkpoint", "trigger", "partitions", "skip_bad", "dead_letters"):
        if more[name] is not None:
            declared[name] = more[name]
    return declared


@click.command()
@click.argument("file", type=FILE, required=False)
@click.option(
    "--from",
    "source",
    metavar="FORMAT[:PATH]",
    help="Source: parquet, orc, json, csv, text or delta with a folder or URL; kafka, socket or "
    "rate with options.",
)
@click.option(
    "--option",
    multiple=True,
    metavar="NAME=VALUE",
    help="Option of Spark's source, such as subscribe=posts; may be given repeatedly.",
)
@click.option(
    "--schema",
    metavar="COLUMNS",
    help="Columns of json and csv, or of the JSON in the values of kafka, socket and text, such as "
    "'lon DOUBLE, lat DOUBLE, text STRING'.",
)
@click.option(
    "--reader",
    type=click.Choice(READERS),
    help="Who reads the rows: Arrow in Spark's tasks, which is faster and can do it for local "
    "Parquet files whose columns are taken as they are, or Spark itself.  [default: auto, Arrow "
    "where it can]",
)
@click.option(
    "--map",
    "fields",
    multiple=True,
    metavar="NAME=EXPRESSION",
    help="Column or SQL expression that is id, time, lon, lat, text, until or payload of the post; "
    "may be given repeatedly. Others have columns of their usual names, as with `publish`.",
)
@click.option(
    "--attribute",
    multiple=True,
    metavar="NAME=EXPRESSION",
    help="Column or SQL expression that is an attribute of the post; may be given repeatedly. "
    "There are no others then.",
)
@click.option(
    "--attributes",
    metavar="NAME[:TYPE],...",
    help="Columns that become attributes, as with `publish`.  [default: all that can]",
)
@click.option("--where", metavar="CONDITION", help="SQL condition of the rows that become posts.")
@click.option(
    "--dedupe",
    metavar="DURATION",
    help="Drop rows of an id that came before, within so long by the times of the rows (1h, 30m).",
)
@click.option(
    "--checkpoint",
    metavar="DIR",
    help="Folder or URL where the pipeline keeps its position, and where it continues.",
)
@click.option("--name", help="Name of the pipeline, by which the service knows its repeats.")
@click.option(
    "--trigger",
    metavar="DURATION|once",
    help="Time from one micro-batch to the next (10s); once: publish what is there now, and end.  "
    "[default: one after the other]",
)
@click.option(
    "--partitions",
    type=int,
    help="Parts of a micro-batch of files that are published side by side, and of the "
    "deduplication.  [default: 8]",
)
@click.option(
    "--dead-letters",
    metavar="FILE",
    help="File to which rows are appended that are no posts, as lines of JSON.",
)
@click.option(
    "--skip-bad",
    is_flag=True,
    default=None,
    help="Count rows that are no posts, and skip them. Without this option and --dead-letters, the "
    "first such row stops the pipeline.",
)
@click.option(
    "--spark",
    multiple=True,
    metavar="NAME=VALUE",
    help="Setting of Spark, such as spark.master=local[4]; may be given repeatedly.",
)
@click.option(
    "--metrics-host",
    default=HOST,
    show_default=True,
    metavar="ADDRESS",
    help="Address at which --metrics-port listens.",
)
@running_options
@pass_output
def pipeline(
    output: CommandOutput,
    /,
    server: str,
    file: Path | None,
    source: str | None,
    option: tuple[str, ...],
    schema: str | None,
    fields: tuple[str, ...],
    attribute: tuple[str, ...],
    spark: tuple[str, ...],
    **how: Any,
) -> None:
    """Publish what Spark reads from files, Kafka and others as posts.

    FILE, in TOML, declares the source, the mapping of its columns and the deduplication; options
    add to it or replace what it says. The pipeline runs until Ctrl-C or SIGTERM, and continues from
    its checkpoint when it is started again. Rows are committed once the service has stored their
    posts durably, and a micro-batch that is repeated is recognised by the service.

    \b
      ps2stream pipeline --from parquet:posts --map lon=x --map lat=y \\
        --map "text=concat(title, ' ', body)" --where "lang = 'en'" --checkpoint position

    Spark runs on this machine unless spark-submit, which runs the same command, or its settings
    name a master.
    """
    declared = read_declaration(file) if file is not None else {}
    given = declare_by_options(source, option, schema, fields, attribute, spark, how)
    job = build_job(merge_declarations(declared, given))
    with name_missing_extra("ps2stream pipeline", "planner"):
        from ps2stream.connectors.spark_pipeline import COUNTS, run_pipeline

    access = output.client_parameters()
    del access["timeout"]
    what = f"{job.format} {job.path}".strip()
    with run_connector(output, "pipeline", COUNTS, how) as run:
        run_pipeline(
            job,
            server,
            access,
            run.counts,
            run.teller,
            run.stop,
            lambda reader, reason: run.ready(
                {
                    "name": job.name,
                    "source": what,
                    "server": server,
                    "checkpoint": job.checkpoint,
                    "reader": reader,
                    "reason": reason,
                },
                f"publishing {what}, read by {reader.capitalize()}"
                f"{f' ({reason})' if reason else ''}, to {server} as {job.name}",
            ),
        )
