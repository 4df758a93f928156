"""`ps2stream explain`, `price`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from ps2stream.commands.loads import format_box, format_table, list_workers
from ps2stream.commands.output import (
    CommandOutput,
    json_option,
    pass_output,
    printable,
    server_option,
)
from ps2stream.commands.publish import attributes_option
from ps2stream.commands.regions import parse_region, region_options
from ps2stream.errors import invalid

if TYPE_CHECKING:
    from ps2stream.space.regions import Region

Answer = Mapping[str, Any]


@click.command()
@click.argument("expression", required=False)
@click.option(
    "--query", "query_id", metavar="ID", help="Id of a live query, instead of EXPRESSION and area."
)
@region_options
@click.option(
    "--object", "file", required=True, metavar="FILE",
    help="File of posts, as `publish` takes them; - reads standard input.",
)  # fmt: skip
@click.option(
    "--format",
    "format",
    type=click.Choice(["jsonl", "csv", "geojson", "parquet"]),
    help="Format of FILE.  [default: by its suffix; jsonl for -]",
)
@attributes_option
@server_option
@json_option
@pass_output
def explain(
    output: CommandOutput,
    /,
    expression: str | None,
    query_id: str | None,
    rect: str | None,
    circle: str | None,
    polygon: str | None,
    file: str,
    format: str | None,
    attributes: str | None,
    server: str,
) -> None:
    """Explain why posts would match a query, or would not.

    Shows for each post of FILE which clause, region, cell, term, worker and plan version
    decide. The query is a live one, by its id, or one that is not inserted, whose EXPRESSION
    and area are those of `insert`. Nothing is inserted or published.

    \b
      ps2stream explain --query thames --object posts.jsonl
      ps2stream explain 'flood AND river' --circle -0.12,51.5,30 --object posts.jsonl
      echo '{"lat": 51.5, "lon": -0.1, "text": "dry"}' | ps2stream explain --query thames --object -
    """
    from ps2stream.posts.members import AttributeChoice
    from ps2stream.posts.post import bad
    from ps2stream.posts.readers import read_rows

    query = _choose_query(query_id, expression, parse_region(rect, circle, polygon))
    posts = chain.from_iterable(read_rows(file, format, 1, choice=AttributeChoice(attributes)))
    if (first := next(posts, None)) is None:
        raise bad(file, "contains no posts")
    with output.connect(server) as client:
        for post in chain([first], posts):
            answer = client.explain(query, post)
            output.emit(answer, format_explanation(answer))


@click.command()
@click.argument("expression", required=False)
@region_options
@server_option
@json_option
@pass_output
def price(
    output: CommandOutput,
    /,
    expression: str | None,
    rect: str | None,
    circle: str | None,
    polygon: str | None,
    server: str,
) -> None:
    """Estimate the matches and the cost of a query, before it is inserted.

    Shows the matches per second that the query would have, and the share of a worker's time
    that it would take if there were no other query. The estimate uses a sample of the posts
    that the dispatcher accepted recently. EXPRESSION and area are those of `insert`. Exit code
    7 if no post was accepted yet.

    \b
      ps2stream price 'flood AND (river OR creek)' --circle -0.12,51.5,30
    """
    region = parse_region(rect, circle, polygon)
    with output.connect(server) as client:
        answer = client.price(expression or "", region)
    output.emit(answer, format_price(answer))


def _choose_query(
    query_id: str | None, expression: str | None, region: Region | None
) -> str | tuple[str, str, Region | None]:
    """Returns the id of a live query, or a query that is not inserted. Raises InvalidArgument
    unless one of them is given."""
    is_new = expression is not None or region is not None
    if query_id is not None and is_new:
        raise invalid("--query", "cannot be combined with EXPRESSION or an area; give one of them")
    if query_id is not None:
        return query_id
    if not expression and region is None:
        raise invalid("--query", "give the id of a live query, or EXPRESSION or an area")
    return "", expression or "", region


def format_explanation(answer: Answer) -> str:
    """Formats the answer of Client.explain."""
    lines = [answer["reason"], "", f"terms      {' '.join(answer['terms']) or '(none)'}"]
    if answer["text"] is not None:
        lines.append("text")
        lines += [f"  {line}" for line in _format_clauses(answer["text"], 0)]
    else:
        lines.append("text       any")
    region = answer["region"]
    cells = f"level {answer['level']} of the grid, {answer['cells']} cells"
    since = f"since LSN {answer['query_lsn']}" if answer["query_lsn"] else "not inserted"
    lines += [
        f"region     {_yes_or_no(region['inside']):3}  {region['detail']}",
        f"query      {since}, {cells}, {answer['postings']} postings",
        f"plan       version {answer['plan_version']}",
        f"sent to    {_format_receivers(answer)}",
    ]
    units = [
        (
            str(u["cell"]), format_box(u), u["term"] or "(any)", _yes_or_no(u["posted"]),
            _yes_or_no(u["in_object"]), _format_owners(u),
            "here" if u["decides"] and answer["matches"] else "",
        )
        for u in answer["units"]
    ]  # fmt: skip
    head = ("cell", "place (degrees)", "term", "query posted", "in object", "worker", "found")
    return "\n".join(map(printable, [*lines, "", *format_table(head, units), ""]))


def format_price(answer: Answer) -> str:
    """Formats the answer of Client.price."""
    likely = f"{answer['matches_low']:,.3g} to {answer['matches_high']:,.3g} at 95%"
    counted = f"{answer['matched']:,} of {answer['sampled']:,} sampled posts"
    cells = f"{answer['cells']:,} cells of level {answer['level']}"
    share = f"{answer['load_share']:.2%} of a worker's time"
    work = f"{answer['load_us_per_second']:,.3g} us a second, {share}"
    traffic = f"{answer['objects_per_second']:,.4g} a second, over {answer['window_s']:,.0f} s"
    alone = f"{answer['copies_per_second']:,.3g} posts sent to workers"
    lines = [
        f"matches    {answer['matches_per_second']:,.3g} a second ({likely}); {counted}",
        f"traffic    {traffic}",
        f"index      {answer['postings']:,} postings in {cells}",
        f"work       {work}: {answer['checks_per_second']:,.3g} checks, {alone}",
    ]
    workers = [
        (
            str(w["worker"]), f"{w['postings']:,}", f"{w['load_us_per_second']:,.3g} us",
            f"{w['load_share']:.2%}",
        )
        for w in answer["workers"]
    ]  # fmt: skip
    head = ("worker", "postings", "work a second", "of its time")
    return "\n".join([*lines, "", *format_table(head, workers)])


def _format_receivers(answer: Answer) -> str:
    """Formats the workers that the object would be sent to."""
    certain = ", ".join(map(str, answer["sent_to"]))
    groups = [
        f"one of workers {list_workers(group['workers'])} (replicated)"
        for group in answer["sent_to_one_of"]
    ]
    return ", and ".join([*([f"worker {certain}"] if certain else []), *groups]) or "no worker"


def _format_owners(unit: Answer) -> str:
    """Formats the workers that own a unit."""
    if not unit["posted"]:
        return "-"
    if unit["sharded"]:
        return f"{unit['worker']} (sharded: {list_workers(unit['sharded'])})"
    return f"one of {list_workers(unit['workers'])}" if unit["workers"] else str(unit["worker"])


def _format_clauses(clause: Answer, depth: int) -> Iterator[str]:
    why = f"  ({clause['detail']})" if clause["detail"] else ""
    yield f"{_yes_or_no(clause['holds']):3}  {'  ' * depth}{clause['text']}{why}"
    for part in clause["parts"]:
        yield from _format_clauses(part, depth + 1)


def _yes_or_no(holds: bool) -> str:
    return "yes" if holds else "no"
