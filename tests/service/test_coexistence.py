"""Two plans that coexist: by hand, until the old one's queries are few, over a restart."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ps2stream.client.client import Client
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.commands.recent import recent
from ps2stream.config import Settings
from ps2stream.errors import FailedPrecondition
from ps2stream.routing.plan import RoutingPlan
from ps2stream.routing.plan_file import load_plan, save_plan
from tests.support.moving import World, by_text, lines, run, settled, swapped


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        runtime="local", port=0, workers=2, dispatchers=2, data_dir=tmp_path / "data",
        load_period_s=0.5, hot="off", adjust="off",
    )  # fmt: skip


@pytest.fixture
def service(settings: Settings) -> Iterator[RunningService]:
    with start(settings) as running:
        yield running


@pytest.fixture
def client(service: RunningService) -> Iterator[Client]:
    with Client(service.targets[0], timeout=90) as found:
        yield found


@pytest.mark.takes_turns
def test_the_old_plan_goes_by_itself_once_few_queries_are_its_own(client: Client) -> None:
    world = World(client)
    world.insert(40)
    world.publish(20)
    lsn, version = client.apply_plan(swapped(client), coexist=True)
    world.publish(20)
    world.insert(20)
    world.publish(20)
    found = client.migrations()
    assert (found.state, found.plan_version, found.following_version) == ("coexisting", 1, version)
    assert (found.coexisting_lsn, found.old_queries, found.live_queries) == (lsn, 40, 60)
    world.delete(38)
    world.publish(20)
    world.insert(2)
    time.sleep(1.5)
    found = client.migrations()
    assert (found.old_queries, found.live_queries, found.began_lsn) == (2, 24, 0)
    world.insert(16)  # 2 of 40 are 5 %
    world.publish(20)
    found = settled(client)
    [move] = found.migrations
    assert (found.plan_version, move.coexisting_lsn, move.outcome) == (version, lsn, "done")
    assert lsn < move.began_lsn < move.switched_lsn < move.ended_lsn
    assert move.coexisting_ms is not None
    assert move.began_ms is not None
    assert move.coexisting_ms <= move.began_ms
    world.publish(20)
    world.check()


def test_an_explanation_names_the_plan_and_the_worker_of_the_query(client: Client) -> None:
    post = {"lon": 1.0, "lat": 1.0, "text": "flood"}

    def owner(id: str) -> tuple[int, int]:
        told = client.explain(id, post)
        assert told["worker"] in told["sent_to"]
        assert f"by plan version {told['plan_version']}" in told["reason"]
        return told["plan_version"], told["worker"]

    client.insert("old", "flood", (0, 0, 2, 2))
    before = owner("old")
    assert before[0] == 1
    client.apply_plan(swapped(client), coexist=True)
    client.insert("young", "flood", (0, 0, 2, 2))
    assert owner("old") == before
    after = (2, 1 - before[1])
    assert owner("young") == after
    client.unite_plans()
    settled(client)
    assert owner("old") == owner("young") == after


def test_the_commands(service: RunningService, client: Client, tmp_path: Path) -> None:
    world = World(client)
    world.insert(10)
    body = json.loads(swapped(client))
    following, third = str(tmp_path / "next.json"), str(tmp_path / "third.json")
    save_plan(RoutingPlan.from_dict(body), following)
    save_plan(RoutingPlan.from_dict(body | {"version": 3, "base_version": 2}), third)
    early = run(service, "apply", "--unite")
    assert early.exit_code == 7
    assert "no two plans coexist" in early.output
    [begun] = lines(run(service, "apply", following, "--coexist", "--json"))
    assert (begun["event"], begun["plan_version"]) == ("coexists", 2)
    load = client.load()
    assert (load["plan_version"], load["following_version"], load["coexisting"]) == (1, 2, True)
    assert "version 1; version 2 coexists, for new" in run(service, "status", "--load").output
    world.insert(30)
    world.publish(20)
    told = {"following_version": 2, "coexisting_lsn": begun["lsn"], "live_queries": 40}
    told |= {"old_queries": 10, "old_share": 0.25}
    for command in (["migrations"], ["status"], ["plan", "current", "-o", str(tmp_path / "now")]):
        [found] = lines(run(service, *command, "--json"))
        assert told.items() <= {"following_version": found.get("to_version"), **found}.items()
        assert found["coexisting_ms"] > 0
    for command in (["migrations"], ["plan", "current", "-o", str(tmp_path / "now")]):
        shown = run(service, *command).output
        assert "of 40 queries 10 (25.0%) belong to the old plan" in shown
    for given in ([], ["--coexist"]):
        late = run(service, "apply", third, *given)
        assert late.exit_code == 7
        assert "plan version 2 coexists with version 1" in late.output
    kept = run(service, "apply", "--abort")
    assert kept.exit_code == 7
    assert "new queries already belong to the new plan" in kept.output
    again = run(service, "apply", following)
    assert again.exit_code == 7
    assert "plan version 2 already coexists" in again.output
    with pytest.raises(FailedPrecondition, match=r"both plans coexist|no complete load period"):
        client.rebalance()
    united = lines(run(service, "apply", "--unite", "--wait", "--json"))
    assert united[-1]["outcome"] == "done"
    assert client.migrations().plan_version == 2
    world.publish(20)
    world.check()
    assert "following_version" not in lines(run(service, "status", "--json"))[0]
    for wrong in (["--unite", "--abort"], [following, "--unite"], ["--coexist"]):
        assert run(service, "apply", *wrong).exit_code == 2


@pytest.mark.takes_turns
def test_a_better_plan_is_found_and_takes_over_bit_by_bit(
    settings: Settings, tmp_path: Path
) -> None:
    with start(settings, by_text()) as service, Client(service.targets[0], timeout=90) as client:
        targets = [word for target in service.targets for word in ("--from-service", target)]
        words = ("replan", "--engine", "numpy", *targets, "--json")
        assert lines(run(service, *words))[0]["sample"] is None
        world = World(client)
        world.insert(60)
        for _ in range(5):
            world.publish(60)
        path = str(tmp_path / "next.json")
        [said] = lines(run(service, *words, "--dry-run", "-o", path))
        assert (said["reason"], said["plan_version"], said["following_version"]) == ("load", 1, 2)
        assert said["sample"]["objects"] == 300
        now, planned = sum(said["now"]), sum(said["planned"])
        assert said["falls"] == pytest.approx(1 - planned / now)
        assert said["falls"] > 0.1
        assert load_plan(path).base_version == 1
        [kept] = lines(run(service, *words, "--fall", "0.9"))
        assert kept["reason"] is None
        assert client.migrations().following_version == 0
        shown = run(service, *words[:-1], "--dry-run").output
        assert "decision  change the plan: the total load falls" in shown
        decided, begun = lines(run(service, *words))
        assert decided["reason"] == "load"
        assert (begun["event"], begun["plan_version"]) == ("coexists", 2)
        [again] = lines(run(service, *words))
        assert again == {"event": "under_way", "following_version": 2}
        world.publish(20)
        world.insert(20)
        world.publish(20)
        world.delete(59)
        world.publish(20)
        found = settled(client)
        assert (found.plan_version, found.migrations[-1].outcome) == (2, "done")
        world.publish(20)
        world.check()
        [good] = lines(run(service, *words))
        assert (good["event"], good["reason"]) == ("decided", None)


def test_a_plan_that_changes_meanwhile_is_what_the_new_one_follows(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:

    with start(settings, by_text()) as service, Client(service.targets[0], timeout=90) as client:

        def slowly(*args: Any) -> Any:
            found = recent(*args)
            client.apply_plan(swapped(client))
            assert settled(client).plan_version == 2
            return found

        monkeypatch.setattr("ps2stream.commands.replan.recent", slowly)
        world = World(client)
        world.insert(60)
        for _ in range(3):
            world.publish(60)
        decided, begun = lines(
            run(
                service,
                "replan",
                "--engine",
                "numpy",
                "--json",
                "--from-service",
                service.targets[0],
            )
        )
        assert (decided["plan_version"], decided["following_version"]) == (2, 3)
        assert (begun["event"], begun["plan_version"]) == ("coexists", 3)
        world.publish(20)
        world.check()


def test_a_restart_goes_on_with_the_new_plan(settings: Settings) -> None:
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        world = World(client)
        world.insert(30)
        client.apply_plan(swapped(client), coexist=True)
        world.insert(10)
        world.publish(20)
        wanted = json.loads(swapped(client))["leaves"]
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        found = client.migrations()
        assert (found.plan_version, found.following_version, found.coexisting_lsn) == (2, 0, 0)
        assert json.loads(client.plan())["leaves"] == wanted
        world.client = client
        world.publish(40)
        world.check()
