"""Every command of the client against a service, with nothing installed but what a client needs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ps2stream.client.client import Client
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from tests.support.bare_environment import (
    FinishedProcess,
    machine_slowness,
    run_cli,
    run_python,
)  # fmt: skip

POST = {"id": "p1", "time": 5, "lon": 1.0, "lat": 1.0, "text": "a flood by the river"}
RING = [[0, 0], [2, 0], [2, 2], [0, 2], [0, 0]]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = tmp_path_factory.mktemp("bare")
    settings = Settings(
        runtime="local",
        port=0,
        hot="off",
        adjust="off",
        workers=2,
        data_dir=data,
        load_period_s=0.5,
    )
    with start(settings) as service:
        with Client(service.targets[0], timeout=90) as client:  # compiles the kernels
            client.insert("first", "flood", {"type": "Polygon", "coordinates": [RING]}, session="x")
            client.publish([POST])
        yield service.targets[0]


def run(target: str, *arguments: str, code: int = 0, stdin: str = "") -> list[Any]:
    """Runs a command with --json; returns the objects that it prints."""
    done = run_cli(*arguments, "--server", target, "--json", "--timeout", "60", stdin=stdin)
    assert done.code == code, done.stderr
    return [json.loads(line) for line in (done.stdout or done.stderr).splitlines()]


@pytest.mark.takes_turns
def test_queries_and_matches(served: str, tmp_path: Path) -> None:
    area, queries, posts = (tmp_path / name for name in ("a.json", "q.jsonl", "p.csv"))
    area.write_text(json.dumps({"type": "Polygon", "coordinates": [RING]}))
    queries.write_text('{"id": "c", "expression": "storm", "region": {"circle": [1, 1, 50]}}\n')
    posts.write_text('id,time,lon,lat,text\np1,5,1,1,"a flood by the river"\np2,6,50,50,storm\n')
    [made] = run(served, "insert", "a", "flood AND river", "--polygon", str(area))
    assert made["area"]["area_km2"] == pytest.approx(49_457, rel=0.01)
    run(served, "insert", "b", "flood", "--rect", "0,0,2,2")
    run(served, "insert", "--file", str(queries))
    listed = {each["id"]: each for each in run(served, "list")}
    assert listed["a"]["region"]["coordinates"] == [RING]
    assert {"a", "b", "c", "first"} <= set(listed)
    assert run(served, "price", "flood")[0]["sampled"] > 0
    explained = run(served, "explain", "--query", "a", "--object", "-", stdin=json.dumps(POST))
    assert explained[0]["matches"]
    assert run(served, "publish", str(posts))[0]["published"] == 2
    found = run(served, "subscribe", "default", "--limit", "2")
    assert {(match["query_id"], match["object_id"]) for match in found} == {
        ("a", "p1"),
        ("b", "p1"),
    }
    [deleted] = run(served, "delete", "c")
    assert deleted["id"] == "c"
    crossed = {"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]]}
    area.write_text(json.dumps(crossed))
    [refused] = run(served, "insert", "d", "flood", "--polygon", str(area), code=2)
    assert "Self-intersection" in refused["error"]["message"]  # the service has found it


def test_the_library(served: str) -> None:
    code = """
import asyncio, sys
from ps2stream import AsyncClient, Circle, Client

with Client(sys.argv[1], timeout=60) as client:
    client.insert("e", "flood", Circle(1, 1, 10), session="lib")
    client.publish([{"lon": 1, "lat": 1, "text": "flood"}])
    client.publish({"lon": [1.0], "lat": [1.0], "text": ["flood"]})
    with client.subscribe("lib") as matches:
        found = [next(iter(matches)).query_id, len(next(matches.batches()))]

async def count():
    async with AsyncClient(sys.argv[1], timeout=60) as client:
        return [query.id async for query in client.list("lib")]

print(found[0], asyncio.run(count()))
"""
    done = run_python(code, served)
    assert done.stdout == "e ['e']\n", done.stderr


@pytest.mark.takes_turns
def test_the_state_of_the_service(served: str, tmp_path: Path) -> None:
    assert run(served, "status")[0]["live_queries"] >= 1
    deadline = time.monotonic() + 30
    while run_cli("status", "--load", "--server", served).code == 7:  # no period has passed yet
        assert time.monotonic() < deadline
    assert run(served, "status", "--load")[0]["plan_version"] >= 1
    assert run(served, "health") == [{"serves": True}]
    assert run_cli("migrations", "--server", served).stdout == "no plan change has ended yet\n"
    assert run(served, "scale", "--workers", "3", "--wait")[-1]["event"] == "done"
    assert run(served, "migrations")[0]["outcome"] == "done"
    with Client(served) as client:
        body = json.loads(client.plan())
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"format": 2, "plan": body}))
    assert run(served, "apply", str(plan))[0]["event"] == "in_force"
    plan.write_text(json.dumps({"format": 2, "plan": body | {"leaves": []}}))
    assert run(served, "apply", str(plan), code=9)[0]["error"]["code"] == "plan"
    [refused] = run(served, "token", "create", "--scope", "publish", code=7)
    assert "does not require tokens" in refused["error"]["message"]
    deadline = time.monotonic() + 30
    while True:  # a period without a plan change must have passed
        done = run_cli("rebalance", "--dry-run", "--server", served, "--json")
        if done.code == 0:
            break
        assert time.monotonic() < deadline, done.stderr
    assert "migrations" in json.loads(done.stdout)


@pytest.mark.takes_turns
@pytest.mark.parametrize("command", ["status", "list", "migrations"])
def test_short_commands_take_little_cpu(served: str, command: str) -> None:
    """With everything installed; the least of three runs, on an idle machine 0.3 s."""

    def measure() -> FinishedProcess:
        done = run_cli(command, "--server", served, bare=False)
        assert done.code == 0, done.stderr
        return done

    assert min(measure().cpu_s for _ in range(3)) < 0.3 * machine_slowness()
