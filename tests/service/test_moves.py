"""Moves of a running service between plans: the calls, the commands, a restart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.client.client import Client
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import FailedPrecondition, InvalidArgument
from ps2stream.limits import PLAN_BYTES
from ps2stream.routing.plan_file import load_plan
from tests.support.moving import World, lines, run, settled, swapped


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        runtime="local",
        port=0,
        hot="off",
        adjust="off",
        workers=2,
        dispatchers=2,
        data_dir=tmp_path / "data",
    )


@pytest.fixture
def service(settings: Settings) -> Iterator[RunningService]:
    with start(settings) as running:
        yield running


@pytest.fixture
def client(service: RunningService) -> Iterator[Client]:
    with Client(service.targets[0], timeout=90) as found:
        yield found


@pytest.mark.takes_turns
def test_every_plan_delivers_what_brute_force_finds(
    service: RunningService, client: Client
) -> None:
    world = World(client)
    for step in ("swap", 5, 3, 1, 2):
        world.insert(20)
        world.publish(20)
        before = client.migrations().plan_version
        if step == "swap":
            lsn, version = client.apply_plan(swapped(client))
        else:
            lsn, version = client.scale(int(step))
        assert version == before + 1
        world.insert(5)
        world.publish(20)
        found = settled(client)
        move = found.migrations[-1]
        assert (found.plan_version, move.from_version) == (version, before)
        assert (move.began_lsn, move.outcome) == (lsn, "done")
        assert move.began_lsn < move.switched_lsn < move.ended_lsn
        assert move.queries is not None
        assert move.bytes is not None
        assert move.bytes > 8 * move.queries > 0
        assert client.status()["plan_version"] == str(version)
        if step != "swap":
            assert found.workers == step
            running = [name for name in service.status() if name.startswith("worker")]
            assert len(running) >= int(step)
    world.publish(10)
    world.check()


def test_a_restart_goes_on_with_the_plan_that_was_in_force(settings: Settings) -> None:
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        world = World(client)
        world.insert(30)
        client.scale(3)
        before = settled(client)
        plan = client.plan()
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        assert client.plan() == plan
        found = client.migrations()
        assert (found.workers, found.migrations) == (3, before.migrations)
        world.client = client
        world.publish(60)
        world.check()
        again = [name for name in service.status() if name.startswith("worker")]
        assert len(again) == 3


def test_what_is_no_plan_is_refused(client: Client) -> None:
    good = json.loads(swapped(client))
    for bad, why in (
        (b"{", "is not a plan in JSON"),
        (b"\xff", "is not a plan in JSON"),
        (b"[]", "plan: "),
        (json.dumps(good | {"workers": 0}).encode(), "expected 1 to 1024 workers, got 0"),
        (json.dumps(good | {"cells": [[1, 0]]}).encode(), "the runs of cells must add up"),
        (json.dumps(good | {"grid": {"lon_bits": 15}}).encode(), "is not an integer"),
        (json.dumps(good | {"sells": 1}).encode(), "unknown field 'sells'"),
        (b" " * PLAN_BYTES + b" " * 20, "over the limit plan_bytes"),
        (b" " * 3 * PLAN_BYTES, "over the limit plan_bytes"),
    ):
        with pytest.raises(InvalidArgument, match=why):
            client.apply_plan(bad)
    with pytest.raises(InvalidArgument, match="1 to 1024 workers, got 0"):
        client.scale(0)
    assert client.migrations().migrations == ()


def test_what_cannot_follow_is_refused_with_the_reason(client: Client) -> None:
    plan = json.loads(swapped(client))
    for change, why in (
        (
            {"grid": {"lon_bits": 14, "lat_bits": 14, "max_cells": 64}, "cells": [[1 << 28, 0]]},
            "its grid, 16384 x 16384 .* is not that of the service, 512 x 256 .* --regrid",
        ),
        ({"base_version": 0}, "derived from version 0; the current one is 1"),
        ({"leaves": json.loads(client.plan())["leaves"]}, "nothing would migrate"),
    ):
        with pytest.raises(FailedPrecondition, match=why):
            client.apply_plan(json.dumps(plan | change).encode())
    _, version = client.apply_plan(json.dumps(plan).encode())
    assert client.apply_plan(json.dumps(plan).encode())[1] == version
    assert settled(client).plan_version == version
    assert client.apply_plan(json.dumps(plan).encode())[1] == version
    assert client.scale(2)[1] == version
    assert len(client.migrations().migrations) == 1
    assert client.abort_migration()[1] == version


def test_the_number_of_workers_is_not_there_yet_that_another_plan_brings(client: Client) -> None:
    now = json.loads(client.plan())
    more = json.dumps(now | {"workers": 3, "version": 2, "base_version": 1}).encode()
    lsn, _ = client.apply_plan(more, coexist=True)
    with pytest.raises(FailedPrecondition, match="version 2 coexists with version 1"):
        client.scale(2)
    assert client.scale(3) == (lsn, 2)


def test_the_commands(service: RunningService, client: Client, tmp_path: Path) -> None:
    world = World(client)
    world.insert(40)
    now, following = str(tmp_path / "now.json"), str(tmp_path / "next.json")
    assert "plan version 1 for 2 workers" in run(service, "plan", "current", "-o", now).output
    assert json.loads(client.plan()) == load_plan(now).to_dict()
    posts = tmp_path / "posts.jsonl"
    posts.write_text('{"text": "river", "lon": 3.5, "lat": 4.4}\n' * 9)
    queries = tmp_path / "queries.jsonl"
    queries.write_text(run(service, "list", "--json").stdout)
    files = ["--objects", str(posts), "--queries", str(queries), "-o", following]
    made = CliRunner().invoke(main, ["plan", "--engine", "numpy", "--base", now, *files])
    assert made.exit_code == 0, made.output
    plan = load_plan(following)
    assert (plan.version, plan.base_version, plan.workers) == (2, 1, 2)
    done = run(service, "apply", following, "--wait", "--json")
    assert done.exit_code == 0, done.output
    told = lines(done)
    assert (told[0]["event"], told[0]["plan_version"]) == ("began", 2)
    assert (told[-1]["event"], told[-1]["outcome"], told[-1]["to_version"]) == ("done", "done", 2)
    again = run(service, "apply", following, "--wait", "--json")
    assert lines(again) == [{"event": "in_force", "plan_version": 2}]
    late = run(service, "apply", now)
    assert late.exit_code == 7
    assert "derived from version 0; the current one is 2" in late.output
    scaled = run(service, "scale", "--workers", "3", "--wait")
    assert scaled.exit_code == 0
    assert "2 -> 3  done" in scaled.output
    listed = lines(run(service, "migrations", "--json"))
    assert [(m["from_version"], m["to_version"]) for m in listed] == [(1, 2), (2, 3)]
    assert {"seconds", "transfer_seconds", "queries", "bytes", "delayed", "collapsed"} <= set(
        listed[1]
    )
    shown = run(service, "migrations").output.splitlines()
    head = "plans outcome began took transferred objects delayed >1 s collapsed missing surplus"
    assert shown[0].split() == head.split()
    assert [line[:16] for line in shown[1:]] == ["1 -> 2  done    ", "2 -> 3  done    "]
    assert [line.split()[-2:] for line in shown[1:]] == [["0", "0"], ["0", "0"]]
    assert (listed[0]["missing"], listed[0]["surplus"]) == (0, 0)
    [kept] = lines(run(service, "apply", "--abort", "--json"))
    assert (kept["event"], kept["plan_version"]) == ("aborted", 3)
    assert kept["lsn"] >= listed[1]["ended_lsn"]
    assert run(service, "apply").exit_code == 2
    assert run(service, "apply", now, "--abort").exit_code == 2


def test_base_settles_grid_and_analysis(service: RunningService, tmp_path: Path) -> None:
    now = str(tmp_path / "now.json")
    run(service, "plan", "current", "-o", now)
    for option in (["--grid-bits", "4", "4"], ["--stemmer", "english"], ["--stop-words", "en"]):
        got = CliRunner().invoke(main, ["plan", "--base", now, "--objects", now, *option])
        assert got.exit_code == 2
        assert "is fixed by --base" in got.output


def test_a_plan_may_bring_other_frequencies_alone(settings: Settings) -> None:
    """One worker has all units, whatever the plan; new queries are posted by the frequencies that
    it brings, and a restart keeps them."""
    region = {"type": "Circle", "lon": 1.0, "lat": 1.0, "radius_km": 5.0}
    post = {"lon": 1.0, "lat": 1.0, "text": "w", "attributes": {"kind": "quake", "net": "us"}}
    both = 'kind = "quake" AND net = "us"'
    counts = {"kind EXISTS": 900, "net EXISTS": 900, 'kind = "quake"': 50, 'net = "us"': 60}
    alone = settings.model_copy(update={"workers": 1})

    def list_terms(client: Client, name: str) -> set[str]:
        client.insert(name, both, region)
        units = client.explain(name, post)["units"]
        return {unit["term"] for unit in units if unit["posted"]}

    with start(alone) as running, Client(running.targets[0], timeout=90) as client:
        assert list_terms(client, "before") == {'kind = "quake"'}
        now = json.loads(client.plan())
        plan = now | {"version": 2, "base_version": 1, "frequencies": counts | {"w": 1000}}
        client.apply_plan(json.dumps(plan).encode())
        found = settled(client)
        assert (found.plan_version, found.migrations[-1].outcome) == (2, "done")
        assert list_terms(client, "after") == {f"({both})"}
        client.publish([post])
        with client.subscribe() as stream:
            got = {match.query_id for _, match in zip(range(2), stream, strict=False)}
        assert got == {"before", "after"}
    with start(alone) as running, Client(running.targets[0], timeout=90) as client:
        assert list_terms(client, "again") == {f"({both})"}
