"""`ps2stream insert`, `delete`, `list`, `query`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from ps2stream.commands.moments import format_end, parse_end, read_end
from ps2stream.commands.output import (
    FAILED,
    CommandOutput,
    json_option,
    pass_output,
    printable,
    server_option,
)
from ps2stream.commands.regions import (
    format_region,
    interpretation_lines,
    parse_region,
    region_options,
)
from ps2stream.errors import InvalidArgument, NotFound, invalid

if TYPE_CHECKING:
    from ps2stream.client.answers import RefusedRow
    from ps2stream.client.client import Client
    from ps2stream.client.requests import Query

BATCH = 1000
_OPERATOR = re.compile(r"[()]|(?<=\s)(AND|OR)(?=\s)")
"""A sign that an id was meant as an expression."""


@click.command()
@click.argument("id", required=False)
@click.argument("expression", required=False)
@region_options
@click.option(
    "--session", default="default", show_default=True, help="Session that receives the matches."
)
@click.option(
    "--file",
    metavar="FILE",
    help="JSON Lines file of queries to insert, one per line; - reads standard input.",
)
@click.option(
    "--until",
    metavar="TIME",
    help="End of the query: a duration from now (90m, 2h, 1d12h), or a time as ISO 8601.",
)
@click.option(
    "--retro",
    is_flag=True,
    help="Matching of the query also against the objects accepted before that are still valid.",
)
@click.option(
    "--replace", is_flag=True, help="Replacement of live queries of the same ids and session."
)
@server_option
@json_option
@pass_output
def insert(
    output: CommandOutput,
    /,
    id: str | None,
    expression: str | None,
    rect: str | None,
    circle: str | None,
    polygon: str | None,
    session: str,
    file: str | None,
    until: str | None,
    retro: bool,
    replace: bool,
    server: str,
) -> None:
    """Insert the query ID, or every query of a file.

    EXPRESSION consists of keywords, "phrases" and prefixes* with AND, OR, NOT and parentheses;
    words side by side mean AND, and -word means NOT word (put -- before an EXPRESSION that
    begins with a minus). The area is one of --rect, --circle and --polygon. Without an area
    the query covers the whole world; without an expression any text in the area matches.

    \b
      ps2stream insert thames 'flood AND (river OR creek)' --circle -0.12,51.5,30
      ps2stream insert quays '"rising water" OR flood* -test' --circle -0.12,51.5,30
      ps2stream insert calm --rect 8,47,9,48
      ps2stream insert road 'road AND closed' --circle 8.54,47.37,20 --until 2h
      ps2stream insert --file queries.jsonl

    With --until, the query is deleted when that time has come, by the clock of the service. With
    --retro, it is matched at once against the posts that were published with an end (until) and
    are still valid; the matches come as any others.

    A line of the file is {"id": ..., "expression": ..., "region": ..., "session": ...,
    "until": ...} with a region of {"rect": [lon_min, lat_min, lon_max, lat_max]}, {"circle":
    [lon, lat, km]} or GeoJSON, and an end in Unix milliseconds or as ISO 8601; the output of
    `list --json` can be inserted again. Valid lines are inserted, refused ones are reported
    (exit code 1). Repeating an insert is harmless; another query under an id that is taken is
    refused.

    With --replace, a live query of the same id and session is replaced instead: every post is
    matched against exactly one of the two. Of several lines with one id the last stays.

    The answer for a single query shows how the service interpreted it: the expression in
    canonical form, the size of the area, and the city nearest to its centre. Coordinates that
    look as if longitude and latitude were swapped cause a warning; the query is inserted all the
    same.
    """
    if file is not None:
        if any(value is not None for value in (id, rect, circle, polygon, until)):
            raise invalid(
                "--file",
                "cannot be combined with an ID, an EXPRESSION, an area or an end; put them into "
                "the file",
            )
        _insert_file(output, file, session, replace, retro, server)
        return
    if id is None:
        raise invalid("id", "give an ID and an EXPRESSION, or --file")
    region = parse_region(rect, circle, polygon)
    if expression is None and (region is None or _OPERATOR.search(id)):
        quoted = shlex.quote(printable(id))
        raise invalid("id", f"is missing; put an id first: ps2stream insert ID {quoted}")
    end = None if until is None else parse_end("--until", until)
    with output.connect(server) as client:
        inserted = client.insert(
            id, expression or "", region, session=session, replace=replace, until=end, retro=retro
        )
    body = {
        "id": id,
        "lsn": int(inserted),
        "expression": inserted.expression,
        "area": inserted.area,
        "warnings": list(inserted.warnings),
        "until": end,
    }
    lines = [f"inserted {id} (LSN {int(inserted)})", *interpretation_lines(inserted)]
    if end is not None:
        lines.append(f"  valid {format_end(end)}")
    output.emit(body, "\n".join(map(printable, lines)))
    for warning in inserted.warnings:
        output.print_line(f"warning: {printable(warning)}")


def _insert_file(
    output: CommandOutput, file: str, session: str, replace: bool, retro: bool, server: str
) -> None:
    from ps2stream.posts.readers import read_queries

    done, found = 0, list[tuple[str, str]]()  # places and errors of refused queries
    places: list[str] = []  # where the queries come from that are read and not yet sent
    broken: list[InvalidArgument] = []  # the error that ended the reading

    def good() -> Iterator[Query]:
        try:
            for where, record in read_queries(file):
                try:
                    query = _parse_record(where, record)
                except InvalidArgument as error:
                    found.append((where, str(error)))
                    continue
                places.append(where)
                yield query
        except InvalidArgument as error:
            broken.append(error)

    rows = good()
    with output.connect(server) as client:
        while batch := list(islice(rows, BATCH)):
            refused: list[RefusedRow] = []
            client.insert_many(
                batch, session=session, refused=refused, replace=replace, retro=retro
            )
            done += len(batch) - len(refused)
            found += [(places[r.row], _place_error(places[r.row], r)) for r in refused]
            places.clear()
    found.sort(key=lambda each: int(each[0].rpartition(":")[2]))
    bad = [error for _, error in found]
    output.emit(
        {"inserted": done, "refused": bad},
        f"inserted {done:,} {'query' if done == 1 else 'queries'}",
    )
    for line in bad:
        output.print_line(printable(line))
    if broken:
        raise broken[0]
    if bad:
        raise SystemExit(FAILED)


def _place_error(where: str, refused: RefusedRow) -> str:
    """Returns an error with the line of the file in place of the row of a batch: rows do not count
    lines that are blank or refused before."""
    text = str(refused.error).removeprefix(f"queries[{refused.row}]")
    return f"{where} {text[1:]}" if text.startswith(".") else f"{where}{text}"


def _parse_record(where: str, record: dict[str, Any]) -> Query:
    from ps2stream.client.requests import Query
    from ps2stream.posts.readers import check_query
    from ps2stream.space.geojson import region_of

    check_query(where, record)
    given = record.get("region")
    region = None if given is None else region_of(where, given)
    end = record.get("until")
    until = None if end is None else read_end(f"{where} until", end)
    names = record["id"], record.get("expression") or ""
    return Query(*names, region, record.get("session") or "", until=until)


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@server_option
@json_option
@pass_output
def delete(output: CommandOutput, /, ids: tuple[str, ...], server: str) -> None:
    """Delete queries. Objects published from then on no longer match them.

    All IDs are processed; exit code 3 if one of them was not live.
    """
    missing: NotFound | None = None
    with output.connect(server) as client:
        for id in ids:
            try:
                lsn = client.delete(id)
            except NotFound as error:
                missing = error
                continue
            output.emit({"id": id, "lsn": lsn}, f"deleted {id} (LSN {lsn})")
    if missing is not None:
        raise missing


def _says_the_same(query: Query) -> bool:
    """Returns whether the words of a query were understood as they were typed."""
    from ps2stream.language.lexemes import split_lexemes

    understood, typed = (
        {lexeme.text.casefold() for lexeme in split_lexemes(text)}
        for text in (query.canonical, query.expression)
    )
    return understood <= typed | {"and", "or", "not", "(", ")"}


@click.command("list")
@click.argument("ids", nargs=-1, metavar="[ID...]")
@click.option("--session", help="Session whose queries are listed.  [default: all]")
@click.option("--limit", type=click.IntRange(min=1), help="Largest number of queries to list.")
@server_option
@json_option
@pass_output
def list_queries(
    output: CommandOutput,
    /,
    ids: tuple[str, ...],
    session: str | None,
    limit: int | None,
    server: str,
) -> None:
    """List live queries in the order in which they were inserted, or only those named.

    What the service understood is shown where it is not what was typed. Exit code 3 if one of the
    IDs is not live; the others are listed.
    """
    if ids and (session is not None or limit is not None):
        raise click.UsageError("--session and --limit choose among all queries; leave the IDs out")
    with output.connect(server) as client:
        found = _get_live(client, ids) if ids else islice(client.list(session), limit)
        for each in found:
            _emit_query(output, each)


def _get_live(client: Client, ids: Sequence[str]) -> Iterator[Query]:
    """Yields those of some queries that are live. Raises NotFound behind them unless all are."""
    missing: NotFound | None = None
    for id in ids:
        try:
            yield client.get(id)
        except NotFound as error:
            missing = error
    if missing is not None:
        raise missing


@click.group()
def query() -> None:
    """Show single queries."""


@query.command("show")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@server_option
@json_option
@pass_output
def show_queries(output: CommandOutput, /, ids: tuple[str, ...], server: str) -> None:
    """Show live queries as they were typed and as the service understands them.

    `text` is the expression in canonical form, with the words that its keywords consist of. Exit
    code 3 if one of the IDs is not live; the others are shown.

      ps2stream query show thames
    """
    with output.connect(server) as client:
        for found in _get_live(client, ids):
            lines = [
                f"{found.id} (LSN {found.lsn}, session {found.session})",
                f"  typed  {found.expression or '(any text)'}",
                f"  text   {found.canonical or '(any text)'}",
                f"  area   {format_region(found.region)}",
            ]
            if found.until is not None:
                lines.append(f"  valid  {format_end(found.until)}")
            output.emit(_make_body(found), "\n".join(map(printable, lines)))


def _make_body(query: Query) -> dict[str, Any]:
    """Returns a query as JSON, as `insert --file` reads it."""
    return {
        "id": query.id,
        "session": query.session,
        "expression": query.expression,
        "region": query.region.to_json() if query.region is not None else None,
        "canonical": query.canonical,
        "until": query.until,
    }


def _emit_query(output: CommandOutput, query: Query) -> None:
    words = query.expression or "(any text)"
    if not _says_the_same(query):
        words += f" (understood as {query.canonical})"
    parts = [query.id, query.session, words, format_region(query.region)]
    if query.until is not None:
        parts.append(format_end(query.until))
    output.emit(_make_body(query), printable("  ".join(parts)))
