"""`ps2stream explain`, `price`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import click

from ps2stream.commands.loads import box, table
from ps2stream.commands.output import (
    Output,
    json_option,
    pass_output,
    printable,
    server_option,
)
from ps2stream.commands.regions import parse_region, region_options

Told = Mapping[str, Any]


@click.command()
@click.option("--query", "query_id", required=True, metavar="ID", help="A live query.")
@click.option(
    "--object", "file", required=True, metavar="FILE",
    help="Posts as `publish` takes them; - is standard input.",
)  # fmt: skip
@click.option(
    "--format",
    "format",
    type=click.Choice(["jsonl", "csv", "parquet"]),
    help="Of FILE; by default its suffix tells, and - is jsonl.",
)
@server_option
@json_option
@pass_output
def explain(
    output: Output, /, query_id: str, file: str, format: str | None, server: str
) -> None:  # fmt: skip
    """Say why posts would match a query, or would not.

    For each post of FILE: which clause, region, cell, term, worker and plan version decide.
    Nothing is published.

    \b
      ps2stream explain --query thames --object posts.jsonl
      echo '{"lat": 51.5, "lon": -0.1, "text": "dry"}' | ps2stream explain --query thames --object -
    """
    from ps2stream.posts.post import bad
    from ps2stream.posts.readers import read_posts

    posts = (post for part in read_posts(file, format, 1) for post in part.to_pylist())
    if (first := next(posts, None)) is None:
        raise bad(file, "holds no post")
    with output.connect(server) as client:
        for post in chain([first], posts):
            told = client.explain(query_id, post)
            output.emit(told, explained(told))


@click.command()
@click.argument("expression", required=False)
@region_options
@server_option
@json_option
@pass_output
def price(
    output: Output,
    /,
    expression: str | None,
    rect: str | None,
    circle: str | None,
    polygon: str | None,
    server: str,
) -> None:
    """Estimate what a query would bring and cost, before it is inserted.

    The matches a second that it would have, and the share of a worker's time that it would
    take, were there no other query, by a sample of the posts that the dispatcher accepted
    lately. EXPRESSION and area are those of `insert`. Exit code 7 where no post was accepted yet.

    \b
      ps2stream price 'flood AND (river OR creek)' --circle -0.12,51.5,30
    """
    region = parse_region(rect, circle, polygon)
    with output.connect(server) as client:
        told = client.price(expression or "", region)
    output.emit(told, priced(told))


def explained(told: Told) -> str:
    """What Client.explain says."""
    lines = [told["reason"], "", f"terms      {' '.join(told['terms']) or '(none)'}"]
    if told["text"] is not None:
        lines.append("text")
        lines += [f"  {line}" for line in _clauses(told["text"], 0)]
    else:
        lines.append("text       any")
    region = told["region"]
    sent = ", ".join(map(str, told["sent_to"]))
    lives = f"level {told['level']} of the grid, {told['cells']} cells, {told['postings']} postings"
    lines += [
        f"region     {_yes(region['inside']):3}  {region['detail']}",
        f"query      since LSN {told['query_lsn']}, {lives}",
        f"plan       version {told['plan_version']}",
        f"sent to    {f'worker {sent}' if sent else 'no worker'}",
    ]
    units = [
        (
            str(u["cell"]), box(u), u["term"] or "(any)", _yes(u["posted"]),
            _yes(u["in_object"]), str(u["worker"]) if u["posted"] else "-",
            "here" if u["decides"] and told["matches"] else "",
        )
        for u in told["units"]
    ]  # fmt: skip
    head = ("cell", "place (degrees)", "term", "query posted", "in object", "worker", "found")
    return "\n".join(map(printable, [*lines, "", *table(head, units), ""]))


def priced(told: Told) -> str:
    """What Client.price says."""
    likely = f"{told['matches_low']:,.3g} to {told['matches_high']:,.3g} at 95%"
    counted = f"{told['matched']:,} of {told['sampled']:,} sampled posts"
    cells = f"{told['cells']:,} cells of level {told['level']}"
    share = f"{told['load_share']:.2%} of a worker's time"
    work = f"{told['load_us_per_second']:,.3g} us a second, {share}"
    alone = f"{told['copies_per_second']:,.3g} posts sent to workers"
    lines = [
        f"matches    {told['matches_per_second']:,.3g} a second ({likely}); {counted}",
        f"traffic    {told['objects_per_second']:,.4g} a second, over {told['window_s']:,.0f} s",
        f"index      {told['postings']:,} postings in {cells}",
        f"work       {work}: {told['checks_per_second']:,.3g} checks, {alone}",
    ]
    workers = [
        (
            str(w["worker"]), f"{w['postings']:,}", f"{w['load_us_per_second']:,.3g} us",
            f"{w['load_share']:.2%}",
        )
        for w in told["workers"]
    ]  # fmt: skip
    head = ("worker", "postings", "work a second", "of its time")
    return "\n".join([*lines, "", *table(head, workers)])


def _clauses(clause: Told, depth: int) -> Iterator[str]:
    yield f"{_yes(clause['holds']):3}  {'  ' * depth}{clause['text']}"
    for part in clause["parts"]:
        yield from _clauses(part, depth + 1)


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"
