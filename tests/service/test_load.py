"""Loads and rebalancing through the public client, over the real machines.

Nothing is replicated, or it would be done before a load period has ended.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.client.client import Client
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import FailedPrecondition
from tests import naive

WORDS = [f"word{i}" for i in range(20)]
HOT = [(-60.2 + x, -30.2 + y) for x in (0.0, 1.0, 2.0, 3.0) for y in (0.0, 1.0, 2.0, 3.0)]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RunningService]:
    settings = Settings(
        runtime="local", port=0, workers=2, data_dir=tmp_path / "data", load_period_s=0.5,
        hot="off", adjust="off",
    )  # fmt: skip
    with start(settings) as running:
        yield running


@pytest.fixture
def client(service: RunningService) -> Iterator[Client]:
    with Client(service.targets[0], timeout=90) as connected:
        yield connected


def heat(client: Client, name: str) -> int:
    """Objects in cells of one worker's half alone; how many."""
    rows = [
        {"id": f"{name}.{i}.{w}", "lon": lon, "lat": lat, "text": f"{word} and more"}
        for i, (lon, lat) in enumerate(HOT)
        for w, word in enumerate(WORDS)
    ]
    client.publish(rows)
    return len(rows)


def measured(client: Client, least: int = 1) -> dict[str, Any]:
    """Keep heating until so many periods are known."""
    deadline = time.monotonic() + 60
    serial = 0
    while (told := client.load())["periods"] < least:
        serial += 1
        heat(client, f"warm{least}.{serial}")
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return told


def insert_all(client: Client) -> None:
    client.insert_many(
        [
            (f"q{i}.{word}", word, [lon - 0.3, lat - 0.3, lon + 0.3, lat + 0.3])
            for i, (lon, lat) in enumerate(HOT)
            for word in WORDS
        ],
        session="s",
    )


def test_before_a_period_has_passed_nothing_is_known(client: Client) -> None:
    told = client.load()
    assert (told["plan_version"], told["following_version"], told["period_s"]) == (1, 0, 0.5)
    assert told["coexisting"] is False
    assert not told["automatic"]
    with pytest.raises(
        FailedPrecondition, match=r"no complete load period \(0\.5 s, load_period_s\)"
    ):
        client.rebalance()


def test_loads_say_who_has_to_do_what_where(client: Client) -> None:
    insert_all(client)
    told = measured(client, 2)
    busy, idle = sorted(told["workers"], key=lambda w: -w["load_us"])
    assert busy["objects"] > 0
    assert busy["checks"] >= busy["objects"] / 2  # each meets a posting of its word
    assert idle["objects"] == idle["load_us"] == 0
    assert told["balance"] is None
    hottest = told["hottest"][0]
    assert hottest["worker"] == busy["worker"]
    inside = [
        hottest["west"] <= lon < hottest["east"] and hottest["south"] <= lat < hottest["north"]
        for lon, lat in HOT
    ]
    assert any(inside)
    plan = json.loads(client.plan())
    rows, columns = 1 << plan["grid"]["lat_bits"], 1 << plan["grid"]["lon_bits"]
    runs = np.array(plan["cells"]).reshape(-1, 2)
    cells = np.repeat(runs[:, 1], runs[:, 0]).reshape(rows, columns)
    hot = {
        int(cells[int((lat + 90) / 180 * rows), int((lon + 180) / 360 * columns)])
        for lon, lat in HOT
    }
    assert {leaf["leaf"] for leaf in told["leaves"]} == hot
    loads = [leaf["load_us"] for leaf in told["leaves"]]
    assert loads == sorted(loads, reverse=True)
    assert sum(loads) == pytest.approx(busy["load_us"])
    assert hottest["postings"] >= len(WORDS)
    assert hottest["bytes"] > 0


@pytest.mark.takes_turns
def test_rebalance_moves_what_it_said_and_loses_no_match(client: Client) -> None:
    insert_all(client)
    measured(client, 2)
    would = client.rebalance(dry_run=True)
    assert would["plan_version"] == 0
    assert client.load()["plan_version"] == 1
    assert would["migrations"]
    assert would["bytes"] == sum(m["bytes"] for m in would["migrations"])
    assert max(would["after_us"]) < max(would["before_us"])
    did = client.rebalance()
    assert did["plan_version"] == 2
    deadline = time.monotonic() + 60
    expected: Counter[tuple[str, str]] = Counter()
    with client.subscribe("s") as stream:
        for serial in range(20):
            heat(client, f"o{serial}")
            expected.update(
                (f"q{i}.{word}", f"o{serial}.{i}.{w}")
                for i in range(len(HOT))
                for w, word in enumerate(WORDS)
            )
            time.sleep(0.02)
        found: Counter[tuple[str, str]] = Counter()
        for match in stream:
            if match.object_id.startswith("o"):
                found[match.query_id, match.object_id] += 1
            if sum(found.values()) == sum(expected.values()):
                break
        assert found == expected
    while client.load()["following_version"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert client.load()["plan_version"] == 2
    told = measured(client, client.load()["periods"] + 3)
    assert all(w["load_us"] > 0 for w in told["workers"])
    assert told["balance"] < 2.0


def test_the_commands_print_loads_and_moves(service: RunningService, client: Client) -> None:
    def run(*args: str) -> Any:
        return CliRunner().invoke(main, [*args, "--server", service.targets[0]])

    early = run("rebalance")
    assert early.exit_code == 7
    insert_all(client)
    measured(client, 2)
    shown = run("status", "--load").output
    assert "without bound" in shown
    assert "place (degrees)" in shown
    told = json.loads(run("status", "--load", "--json").output)
    assert len(told["workers"]) == 2
    would = run("rebalance", "--dry-run", "--algorithm", "dp").output
    assert "predicted" in would
    assert "has begun" not in would
    begun, done = map(json.loads, run("rebalance", "--wait", "--json").output.splitlines())
    assert begun["plan_version"] == 2
    assert done == {"event": "done", "plan_version": 2}


def test_parts_move_by_themselves_where_that_is_wanted(tmp_path: Path) -> None:
    costs = tmp_path / "costs.json"
    costs.write_text('{"c1": 20, "c2": 20, "c3": 1, "c4": 1}', "utf-8")  # of a slow machine
    settings = Settings(
        runtime="local", port=0, workers=2, data_dir=tmp_path / "data", load_period_s=0.5,
        adjust="local", costs=costs, hot="off",
    )  # fmt: skip
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        insert_all(client)
        deadline = time.monotonic() + 120
        serial = 0
        while True:
            serial += 1
            heat(client, f"auto{serial}")
            told = client.load()
            assert told["automatic"]
            if told["plan_version"] > 1 and told["balance"] is not None and told["balance"] < 1.5:
                break
            assert time.monotonic() < deadline, told
            time.sleep(0.02)


PLACE = HOT[5]
MANY = [f"term{i}" for i in range(60)]
AREA: dict[str, Any] = {
    "type": "Rect", "lon_min": PLACE[0] - 0.3, "lat_min": PLACE[1] - 0.3,
    "lon_max": PLACE[0] + 0.3, "lat_max": PLACE[1] + 0.3,
}  # fmt: skip

BESIDE = AREA | {"lon_min": AREA["lon_max"], "lon_max": AREA["lon_max"] + 0.1}


class OneCell:
    """Work in a single cell: objects of three terms each, and for each term four queries, of
    which one is for the place where they are."""

    def __init__(self, client: Client) -> None:
        self.client, self.rng = client, random.Random(7)
        self.queries = [
            naive.Query(f"{term}.{i}", "s", term, BESIDE if i else AREA)
            for term in MANY
            for i in range(4)
        ]
        self.sent: dict[str, naive.Obj] = {}
        client.insert_many([(q.id, q.expression, q.region) for q in self.queries], session="s")

    def publish(self) -> None:
        rows = []
        for _ in range(25):
            text = " ".join(self.rng.sample(MANY, 3))
            self.sent[name := f"o{len(self.sent)}"] = naive.Obj(*PLACE, text)
            rows.append({"id": name, "lon": PLACE[0], "lat": PLACE[1], "text": text})
        self.client.publish(rows)

    def expected(self) -> Counter[tuple[str, str]]:
        by_term = {term: [q for q in self.queries if q.expression == term] for term in MANY}
        near = ((o, q) for o, at in self.sent.items() for w in at.text.split() for q in by_term[w])
        return Counter((q.id, o) for o, q in near if naive.matches(q, self.sent[o]))


@pytest.fixture
def dear(tmp_path: Path) -> dict[str, Any]:
    """Settings of a slow machine, whose work is mostly checks."""
    costs = tmp_path / "costs.json"
    costs.write_text('{"c1": 50, "c2": 10, "c3": 1, "c4": 1}', "utf-8")
    return {
        "runtime": "local", "port": 0, "workers": 2, "data_dir": tmp_path / "data",
        "load_period_s": 0.5, "costs": costs, "hot": "off",
    }  # fmt: skip


@pytest.mark.takes_turns
def test_a_cell_that_is_too_hot_for_one_worker_is_split_by_itself(dear: dict[str, Any]) -> None:
    settings = Settings(**dear, adjust="local")
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        work = OneCell(client)
        deadline = time.monotonic() + 120
        first, told = 0, client.load()
        with client.subscribe("s") as stream:
            while told["plan_version"] == 1 or not told["balance"] or told["balance"] > 1.3:
                work.publish()
                told = client.load()
                first = first or told["periods"]
                assert time.monotonic() < deadline, told
                time.sleep(0.02)
            assert told["periods"] <= first + 3
            for _ in range(20):
                work.publish()
            expected = work.expected()
            found: Counter[tuple[str, str]] = Counter()
            for match in stream:
                found[match.query_id, match.object_id] += 1
                if sum(found.values()) == sum(expected.values()):
                    break
        assert found == expected
        busy = [w for w in told["workers"] if w["load_us"] > 0]
        assert len(busy) == 2
        assert service.status()["controller-0"]["splits"] >= 1


def test_rebalance_says_what_is_split(dear: dict[str, Any]) -> None:
    settings = Settings(**dear, adjust="off")
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        work = OneCell(client)
        while client.load()["periods"] < 2:
            work.publish()
            time.sleep(0.02)
        args = ["rebalance", "--dry-run", "--server", service.targets[0]]
        shown = CliRunner().invoke(main, args).output
        [row] = [line.split() for line in shown.splitlines() if line.strip().startswith("split ")]
        assert 2 <= int(row[row.index("terms") - 1]) <= len(MANY) - 2
        assert "some of its terms migrate" in shown
        [move] = client.rebalance(dry_run=True)["migrations"]
        assert (move["kind"], set(move["terms"]) < set(MANY)) == ("split", True)
