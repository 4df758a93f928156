"""`ps2stream publish`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import Any

import click

from ps2stream.commands.output import (
    CommandOutput,
    FiniteRange,
    json_option,
    pass_output,
    server_option,
)
from ps2stream.errors import Ps2StreamError


@click.command()
@click.argument("file")
@click.option(
    "--format",
    "format",
    type=click.Choice(["jsonl", "csv", "parquet"]),
    help="Format of FILE.  [default: by its suffix; jsonl for -]",
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
    rate: float | None,
    limit: int | None,
    batch: int,
    server: str,
) -> None:
    """Publish the posts of FILE: JSON Lines, CSV or Parquet; - reads standard input.

    A post has lat, lon and text, and optionally id and time (Unix milliseconds or ISO 8601);
    latitude, longitude, lng, ts and timestamp are understood too. A bad value ends the command
    with an error that names its file, line and column; what was published before stays
    published.

    Ids are your own and need not be unique: the service itself identifies a post by partition
    and offset. A post without an id gets one that no other run makes, such as 6f1c2a90-17: the
    run, and the number of the post in it, from 0. If you want to publish a file again after an
    error and recognise the repeats by their ids, give ids.

    \b
      ps2stream publish posts.parquet --rate 5000
      echo '{"lat": 51.5, "lon": -0.1, "text": "flood by the river"}' | ps2stream publish -
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    from ps2stream.posts.post import paced
    from ps2stream.posts.readers import format_of, read_posts, read_rows, row_count

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
            posts = _limit_posts(read(file, format, batch, run), limit)
            for part in paced(posts, rate, time.monotonic, time.sleep):
                client.publish(part if parquet else _to_columns(part))
                done += len(part)
                bar.update(task, completed=done)
    except Ps2StreamError:
        before = f"published {_count_objects(done)} before the error" if done else None
        output.emit(_summarize_run(done, began), before)
        raise
    summary = _summarize_run(done, began)
    output.emit(
        summary,
        f"published {_count_objects(done)} in {summary['seconds']:.1f} s "
        f"({summary['objects_per_second']:,.0f}/s)",
    )


def _to_columns(posts: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Returns the columns of posts, which the client sends as a record batch where it can."""
    return {name: [post[name] for post in posts] for name in posts[0]}


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


def _summarize_run(done: int, began: float) -> dict[str, Any]:
    seconds = time.monotonic() - began
    return {
        "published": done,
        "seconds": round(seconds, 3),
        "objects_per_second": round(done / max(seconds, 1e-9), 1),
    }
