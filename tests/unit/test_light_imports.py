"""The client, the regions, the parser and the client's commands need little, and start quickly."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from ps2stream.cli import COMMANDS, SUMMARIES, main
from tests.support.bare_environment import (
    ALLOWED,
    CLI,
    FinishedProcess,
    machine_slowness,
    run_cli,
    run_python,
)  # fmt: skip

CLIENT_COMMANDS = (
    "insert", "delete", "list", "query", "explain", "price", "publish", "subscribe", "status",
    "health", "rebalance", "token", "apply", "scale", "migrations",
)  # fmt: skip
COMPLETE = "_PS2STREAM_COMPLETE"
IMPORTS = "from ps2stream import AsyncClient, Circle, Client, Polygon, Rect, World\n"
LOADED = """
import sys
print(*sorted({name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names))
"""
MEASURED = """
import re, time
print(time.process_time())
print(re.search(r"VmRSS:\\s*(\\d+) kB", open("/proc/self/status").read())[1])
"""


def loaded_by(code: str) -> set[str]:
    """The packages that are loaded after this code, of all that are installed."""
    done = run_python(code + LOADED, bare=False)
    assert done.code == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def own_packages(names: set[str]) -> set[str]:
    """Without what the interpreter's start and Cython add."""
    return {name for name in names if not name.startswith(("_", "cython_runtime", "sitecustomize"))}


def least_cpu_s(*arguments: str) -> float:
    """The least CPU of three runs of the command."""
    return min(run_cli(*arguments, bare=False).cpu_s for _ in range(3))


def complete(words: str, at: int) -> FinishedProcess:
    """Completes word number `at` as bash has it done."""
    environ = {"COMP_WORDS": words, "COMP_CWORD": str(at), COMPLETE: "bash_complete"}
    return run_python(CLI, bare=False, environ=environ)


def completed(words: str, at: int) -> list[str]:
    done = complete(words, at)
    assert not done.stderr
    return [line.removeprefix("plain,") for line in done.stdout.splitlines()]


def test_the_client_is_imported_with_little() -> None:
    by_grpc = {"grpc_reflection"}  # where it is installed
    assert own_packages(loaded_by(IMPORTS)) - by_grpc <= {*ALLOWED} - {"click", "rich"}
    found = [run_python(IMPORTS + MEASURED).stdout.split() for _ in range(3)]
    assert min(float(seconds) for seconds, _ in found) < 0.2 * machine_slowness()
    assert min(int(kilobytes) for _, kilobytes in found) < 40 * 1024


def test_help_and_completion_import_no_command() -> None:
    run = "from click.testing import CliRunner; from ps2stream.cli import main\n"
    run += "assert CliRunner().invoke(main, ['--help']).exit_code == 0\n"
    assert own_packages(loaded_by(run)) == {"click", "ps2stream"}
    assert least_cpu_s("--help") < 0.3 * machine_slowness()
    assert min(complete("ps2stream sta", 1).cpu_s for _ in range(3)) < 0.3 * machine_slowness()


def test_a_shell_completes_commands_and_options() -> None:
    assert completed("ps2stream mi", 1) == ["migrations"]
    assert completed("ps2stream ", 1) == list(COMMANDS)
    assert completed("ps2stream --js", 1) == ["--json"]
    assert completed("ps2stream status --lo", 2) == ["--load"]
    assert completed("ps2stream token rev", 2) == ["revoke"]
    script = run_python(CLI, environ={COMPLETE: "zsh_source"}).stdout
    assert script.startswith("#compdef ps2stream")


def test_summaries_are_the_first_sentences_of_the_commands() -> None:
    context = click.Context(main)
    commands = {name: main.get_command(context, name) for name in COMMANDS}
    assert {
        name: command.get_short_help_str(1000) for name, command in commands.items() if command
    } == SUMMARIES


@pytest.mark.takes_turns
@pytest.mark.parametrize("command", CLIENT_COMMANDS)
def test_client_commands_load_with_little(command: str) -> None:
    done = run_cli(command, "--help")
    assert done.code == 0, done.stderr
    module = f"import ps2stream.commands.{COMMANDS[command][0]}"
    assert own_packages(loaded_by(module)) == {"click", "ps2stream"}
    assert least_cpu_s(command, "--help") < 0.3 * machine_slowness()


def test_actors_do_without_the_settings() -> None:
    code = "import ps2stream.cluster.actor_shells, ps2stream.cluster.dispatcher_shell"
    assert "numba" in (found := loaded_by(code))
    assert not {"pydantic", "ray", "rich", "scipy"} & found


def test_regions_are_checked_and_compared_without_libraries() -> None:
    code = """
from ps2stream import Circle, Polygon, Rect, World
from ps2stream.errors import InvalidArgument
from ps2stream.space import geojson

assert Rect(170, 0, -170, 1).contains(-175, 1) and not Rect(1, 2, 3, 4).contains(0, 3)
assert Circle(0, 0, 112).contains(0, 1) and not Circle(0, 0, 111).contains(0, 1)
ring = [[0, 0], [0, 2], [2, 2], [2, 0], [0, 0]]
square = Polygon({"type": "Polygon", "coordinates": [ring]})
assert square == geojson.from_json({"type": "Polygon", "coordinates": [ring[::-1]]})
print(square.to_json()["coordinates"])
print(square.bounds, hash(square) == hash(Polygon(square.to_json())))
for make in (
    lambda: Rect(0, 2, 1, 1),
    lambda: Polygon({"type": "Polygon", "coordinates": [ring[:-1]]}),
    lambda: Polygon({"type": "Polygon", "coordinates": [[[0, 0], [91, 95], [0, 1], [0, 0]]]}),
    lambda: Polygon(3),
):
    try:
        make()
    except InvalidArgument as error:
        print(error)
print(Polygon({"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]]}).multi)
"""
    done = run_python(code)
    assert done.stdout.splitlines() == [
        "[[[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0], [0.0, 0.0]]]",
        "(0.0, 0.0, 2.0, 2.0) True",
        "region.lat_min: 2.0 is above lat_max 1.0",
        "region.coordinates[0]: the ring is not closed: its first and last positions differ",
        "region.coordinates: latitude 95.0 is not in [-90, 90]",
        "region.coordinates: expected a Polygon or MultiPolygon, got int",
        "False",  # whether its edges cross is for the service to say
    ], done.stderr


def test_expressions_are_parsed_without_libraries() -> None:
    code = """
from ps2stream.language.boolean import canonical
from ps2stream.language.parser import ExpressionError, parse

class Words:
    keyword = plain_words = staticmethod(str.split)

print(canonical(parse("b AND (a OR c) OR b", Words)))
try:
    parse("a AND ~b", Words)
except ExpressionError as error:
    print(error)
"""
    done = run_python(code)
    assert done.stdout.splitlines() == ["b", "column 7: ~ is reserved"], done.stderr


def test_posts_of_text_files_are_read_without_libraries(tmp_path: Path) -> None:
    post = {"id": "a", "time": 5, "lon": 8.5, "lat": 47.0, "text": "flood, river"}
    lines, table = tmp_path / "x.jsonl", tmp_path / "x.csv"
    lines.write_text(json.dumps(post) + "\n")
    table.write_text('id,time,lon,lat,text\na,5,8.5,47,"flood, river"\n')
    code = """
import json, sys
from ps2stream.posts.readers import read_queries, read_records, read_rows
for path in sys.argv[1:]:
    print(json.dumps([post for part in read_rows(path) for post in part]))
    assert len(list(read_records(path, []))) == 1
assert len(list(read_queries(sys.argv[1]))) == 1
"""
    done = run_python(code, str(lines), str(table))
    assert list(map(json.loads, done.stdout.splitlines())) == [[post]] * 2, done.stderr
