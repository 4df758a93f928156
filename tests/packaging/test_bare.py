"""The wheel, and the package without extras: light, a complete client of a service elsewhere."""

from __future__ import annotations

import json
import tomllib
import zipfile
from pathlib import Path

import pytest

from ps2stream import __version__
from ps2stream.cli import COMMANDS
from ps2stream.extras import COMMAND_EXTRAS
from tests.packaging.environments import Environment, installed_bytes
from tests.support.bare_environment import machine_slowness

pytestmark = pytest.mark.takes_turns(0)

CLIENT_COMMANDS = COMMANDS.keys() - COMMAND_EXTRAS.keys() - {"connect"}
POST = {"id": "first", "lon": -0.1, "lat": 51.5, "text": "Flood by the river!"}
IMPORT = """
import time
begun = time.process_time()
from ps2stream import AsyncClient, Circle, Client
print(time.process_time() - begun)
with open("/proc/self/status") as status:
    print(next(line for line in status if line.startswith("VmRSS")).split()[1])
"""
PROGRAM = """
import asyncio, sys
from ps2stream import AsyncClient, Circle, Client

target = sys.argv[1]

async def main():
    async with AsyncClient(target) as client:
        async with client.subscribe("mine") as matches:
            async for match in matches:
                return match

with Client(target) as client:
    client.insert("coffee", "coffee OR espresso", Circle(8.54, 47.37, 5), session="mine")
    client.publish([{"id": "a", "lon": 8.541, "lat": 47.371, "text": "Best espresso in town"}])
    print(asyncio.run(main()).text)
    client.delete("coffee")
"""


@pytest.mark.every_turn
def test_it_holds_every_module_and_nothing_generic(
    root: Path, wheel: Path, tracked: list[str]
) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    folders = project["tool"]["setuptools"]["package-dir"].values()
    held = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    expected = {
        name if name.startswith("ps2stream/") else f"ps2stream/{name}"
        for name in tracked
        if name.endswith(".py") and name.split("/")[0] in folders
    }
    assert {n for n in held if n.endswith(".py")} == expected
    assert {n.split("/")[0] for n in held} == {"ps2stream"}
    data = {"observability/ps2stream.json", "py.typed", "space/places.arrow"}
    assert {f"ps2stream/{name}" for name in data} <= held
    page = {name for name in tracked if name.startswith("ps2stream/web/static/")}
    assert "ps2stream/web/static/index.html" in page <= held


def test_it_is_small(bare: Environment) -> None:
    assert installed_bytes(bare) <= 60e6


def test_clients_are_imported_fast_and_take_little_memory(bare: Environment) -> None:
    runs = [bare.run("python", "-c", IMPORT) for _ in range(5)]
    assert not any(run.code for run in runs), runs[0]
    assert min(float(run.stdout.split()[0]) for run in runs) < 0.2 * machine_slowness()
    assert min(int(run.stdout.split()[1]) for run in runs) * 1024 < 40e6


def test_help_is_fast(bare: Environment) -> None:
    assert bare.least_cpu_s("ps2stream", "--help") < 0.3 * machine_slowness()
    assert set(COMMANDS) <= set(bare.ps2stream("--help").split())


@pytest.mark.parametrize("command", sorted(CLIENT_COMMANDS))
def test_a_client_command_has_help(bare: Environment, command: str) -> None:
    assert f"Usage: ps2stream {command}" in bare.ps2stream(command, "--help")


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("serve", "server"), ("demo --runtime local", "server"), ("plan --workers 2", "planner"),
        ("experiment f7", "lab"), ("bench engine", "server"), ("map", "local"),
        ("mcp", "mcp"),
        ("connect kafka-source --bootstrap localhost:1 --topic t", "kafka"),
        ("connect mqtt-source --broker mqtt://localhost --topic t", "mqtt"),
        ("connect geojson-source --url http://localhost/", "feeds"),
        ("connect webhook --session s --url http://localhost --secret-file s", "webhook"),
        ("connect slack --session s --url-file u", "webhook"),
        ("connect ntfy --session s --url http://localhost --topic t", "webhook"),
    ],
)  # fmt: skip
def test_a_command_names_the_extra_that_it_lacks(
    bare: Environment, command: str, extra: str
) -> None:
    done = bare.run("ps2stream", *command.split())
    user = command.split(" -", maxsplit=1)[0].removesuffix(" f7").removesuffix(" engine")
    wheel = f"'./ps2stream-{__version__}-py3-none-any.whl[{extra}]'"
    assert done.stderr.startswith(f"ps2stream: ps2stream {user} needs the package "), done
    assert done.stderr.endswith(
        f", which is not installed: pip install {wheel}, or in a checkout: "
        f"pip install '.[{extra}]'\n"
    )
    assert done.code == 7


def test_a_file_that_needs_arrow_names_the_extra(bare: Environment, server: str) -> None:
    (bare.folder / "posts.parquet").write_bytes(b"PAR1")
    done = bare.run("ps2stream", "publish", "posts.parquet", "--server", server)
    assert "needs the package" in done.stderr, done
    assert ".[frames]'" in done.stderr
    assert done.code == 7


def test_its_commands_work_with_a_service(bare: Environment, server: str) -> None:
    to = ("--server", server)
    area = ("--circle", "-0.12,51.5,30")
    bare.ps2stream("insert", "thames", "flood AND (river OR creek)", *area, *to)
    assert "thames  default  flood AND" in bare.ps2stream("list", *to)
    published = bare.ps2stream("publish", "-", *to, stdin=json.dumps(POST))
    assert published.startswith("published 1 object")
    assert "Flood by the river!" in bare.ps2stream("subscribe", "--limit", "1", *to)
    assert "queries    1 live" in bare.ps2stream("status", *to)
    post = bare.folder / "post.jsonl"
    post.write_text(json.dumps(POST))
    explained = bare.ps2stream("explain", "--query", "thames", "--object", post.name, *to)
    assert explained.startswith("it matches")
    assert "matches" in bare.ps2stream("price", "storm OR flood", *area, *to)
    assert "serves" in bare.ps2stream("health", *to)
    bare.ps2stream("migrations", *to)
    assert bare.ps2stream("delete", "thames", *to).startswith("deleted thames")


@pytest.mark.parametrize("command", ["status", "list", "migrations"])
def test_a_question_is_answered_fast(bare: Environment, server: str, command: str) -> None:
    assert bare.least_cpu_s("ps2stream", command, "--server", server) < 0.3 * machine_slowness()


def test_its_clients_work_with_a_service(bare: Environment, server: str) -> None:
    done = bare.run("python", "-c", PROGRAM, server)
    assert (done.code, done.stdout) == (0, "Best espresso in town\n"), done
