"""`ps2stream publish`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ps2stream.commands.moments import parse_end
from ps2stream.commands.output import (
    CommandOutput,
    FiniteRange,
    json_option,
    pass_output,
    printable,
    server_option,
)
from ps2stream.errors import Ps2StreamError

if TYPE_CHECKING:
    from ps2stream.posts.members import AttributeChoice

POST = ("id", "time", "lon", "lat", "text")
BESIDE = ("payload", "until")
MOST_COLUMNS = 64
attributes_option = click.option(
    "--attributes",
    metavar="NAME[:TYPE],...",
    help="Members of a record, or columns, that become attributes of its post, each with an "
    "optional type: number, text, boolean or time; none for no attributes.  [default: all that "
    "can]",
)


@click.command()
@click.argument("file")
@click.option(
    "--format",
    "format",
    type=click.Choice(["jsonl", "csv", "geojson", "parquet"]),
    help="Format of FILE.  [default: by its suffix; jsonl for -]",
)
@attributes_option
@click.option(
    "--until",
    metavar="TIME",
    help="End of the validity of posts that have none: a duration from now (90m, 2h, 1d12h), or a "
    "time as ISO 8601.",
)
@click.option(
    "--rate", type=FiniteRange(min=0, min_open=True), help="Objects published per second."
)
@click.option("--limit", type=click.IntRange(min=1), help="Number of objects after which to stop.")
@click.option(
    "--batch",
    type=click.IntRange(1, 10_000),
    default=1000,
    show_default=True,
    help="Objects per request; 1 sends each line of a live pipe at once.",
)
@server_option
@json_option
@pass_output
def publish(
    output: CommandOutput,
    /,
    file: str,
    format: str | None,
    attributes: str | None,
    until: str | None,
    rate: float | None,
    limit: int | None,
    batch: int,
    server: str,
) -> None:
    """Publish the posts of FILE: JSON Lines, CSV, GeoJSON or Parquet; - reads standard input.

    A post has lat, lon and text, and optionally id and time (Unix milliseconds or ISO 8601);
    latitude, longitude, lng, ts and timestamp are understood too. A bad value ends the command
    with an error that names its file, line and column; what was published before stays
    published.

    Whatever else a post has becomes its attributes, which queries compare: numbers, texts and
    booleans as they are, every column of CSV as text; null, NaN of Parquet and empty cells are
    absent. --attributes chooses among them and gives types, such as severity:number,at:time. What
    cannot be an attribute, such as an array, is left out, and named on standard error. payload is
    what subscribers get unread: any JSON, or bytes of Parquet. until is the end of the post's
    validity (as time; --until gives one to posts without): until then a query that is inserted with
    --retro is matched against the post.

    Ids are your own and need not be unique: the service itself identifies a post by partition
    and offset. A post without an id gets one that no other run makes, such as 6f1c2a90-17: the
    run, and the number of the post in it, from 0. If you want to publish a file again after an
    error and recognise the repeats by their ids, give ids.

    \b
      ps2stream publish posts.parquet --rate 5000
      ps2stream publish quakes.csv --attributes mag:number,at:time
      echo '{"lat": 51.5, "lon": -0.1, "text": "flood by the river"}' | ps2stream publish -
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    from ps2stream.posts.members import AttributeChoice
    from ps2stream.posts.post import paced
    from ps2stream.posts.readers import format_of, read_posts, read_rows, row_count

    choice = AttributeChoice(attributes)
    end = None if until is None else parse_end("--until", until)
    total = row_count(file, format)
    if total is not None and limit is not None:
        total = min(total, limit)
    done, began = 0, time.monotonic()
    bar = Progress(
        TextColumn("publishing"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=output.progress_console(),
    )
    try:
        with output.connect(server) as client, bar:
            task = bar.add_task("publish", total=total)
            run = f"{secrets.token_hex(4)}-"
            parquet = format_of(file, format) == "parquet"
            read = read_posts if parquet else read_rows
            posts = _limit_posts(read(file, format, batch, run, choice), limit)
            for part in paced(posts, rate, time.monotonic, time.sleep):
                if end is not None:
                    part = set_ends(part, end)
                client.publish(part if parquet else make_columns(part))
                done += len(part)
                bar.update(task, completed=done)
    except Ps2StreamError:
        before = f"published {_count_objects(done)} before the error" if done else None
        output.emit(_summarize_run(done, began, choice), before)
        raise
    summary = _summarize_run(done, began, choice)
    if not output.json:
        for line in _describe_choice(summary, choice.advice):
            click.echo(f"ps2stream: {printable(line)}", err=True)
    output.emit(
        summary,
        f"published {_count_objects(done)} in {summary['seconds']:.1f} s "
        f"({summary['objects_per_second']:,.0f}/s)",
    )


def make_columns(posts: list[dict[str, Any]]) -> Any:
    """Returns posts as columns, which the client sends as a record batch where it can; as they are
    if attributes have the names of other columns, or are too many for columns."""
    columns = {name: [post[name] for post in posts] for name in POST}
    found = [post.get("attributes", {}) for post in posts]
    names = dict.fromkeys(name for attributes in found for name in attributes)
    if not names.keys().isdisjoint((*POST, *BESIDE, "attributes")) or len(names) > MOST_COLUMNS:
        return posts
    columns |= {name: [attributes.get(name) for attributes in found] for name in names}
    for name in BESIDE:
        if any(name in post for post in posts):
            columns[name] = [post.get(name) for post in posts]
    return columns


def set_ends(part: Any, end: int) -> Any:
    """Returns posts, or a record batch of them, in which those without an end have this one, Unix
    milliseconds."""
    if isinstance(part, list):
        return [{**post, "until": post.get("until", end)} for post in part]
    import pyarrow as pa
    import pyarrow.compute as pc

    if "until" not in part.schema.names:
        return part.append_column("until", pa.repeat(pa.scalar(end, pa.int64()), len(part)))
    column = part.column("until")
    at = part.schema.names.index("until")
    if pa.types.is_timestamp(column.type):  # perhaps finer than a millisecond
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    return part.set_column(at, "until", pc.fill_null(column.cast(pa.int64()), end))


def _limit_posts(parts: Iterator[Any], limit: int | None) -> Iterator[Any]:
    left = limit
    for part in parts:
        if left is None:
            yield part
            continue
        yield part[:left]
        left -= min(left, len(part))
        if not left:
            return


def _count_objects(count: int) -> str:
    return f"{count:,} object{'s' * (count != 1)}"


def _summarize_run(done: int, began: float, choice: AttributeChoice) -> dict[str, Any]:
    seconds = time.monotonic() - began
    notes = {
        "left_out": choice.pop_left_out(),
        "not_found": choice.list_unseen() if done else [],
    }
    return {
        "published": done,
        "seconds": round(seconds, 3),
        "objects_per_second": round(done / max(seconds, 1e-9), 1),
        **{name: found for name, found in notes.items() if found},
    }


def _describe_choice(summary: dict[str, Any], advice: str) -> Iterator[str]:
    """Yields lines that say which members of the posts are no attributes of theirs, or may be of
    another type than was meant."""
    if advice:
        yield f"columns of CSV are published as text; for numbers: --attributes {advice}"
    if found := summary.get("left_out"):
        yield f"left out, as no attributes: {', '.join(found)}"
    if found := summary.get("not_found"):
        yield f"no post has the attributes {', '.join(found)}"
