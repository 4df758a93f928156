"""Predicates on attributes through the whole service: equal to brute force, while queries come and
go, and through a restart."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.client.client import Client
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import InvalidArgument
from ps2stream.routing.plan import RoutingPlan
from ps2stream.routing.plan_file import load_plan
from ps2stream.space.regions import Rect

EVERYWHERE = Rect(-180.0, -90.0, 180.0, 90.0)
Attributes = dict[str, Any]
Test = Callable[[set[str], Attributes], bool]
VALUES = [0, 1, 2, 2.5, -1, 2**60, "a", "b", "B", "é", "", True, False]
WORDS = ["flood", "river", "test", "calm"]
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
}


def kind_of(value: Any) -> str:
    return (
        "number"
        if isinstance(value, int | float) and not isinstance(value, bool)
        else str(type(value))
    )


def write(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def draw_predicate(rng: random.Random) -> tuple[str, Test]:
    """A predicate, and what it means."""
    name, op = rng.choice("xyz"), rng.choice([*OPERATORS, "in", "exists"])
    if op == "exists":
        return f"{name} EXISTS", lambda _, attributes: name in attributes
    values = rng.sample(VALUES, 3 if op == "in" else 1)
    compare = OPERATORS["=" if op == "in" else op]

    def holds(_: set[str], attributes: Attributes) -> bool:
        mine = attributes.get(name)
        return name in attributes and any(
            kind_of(mine) == kind_of(value)
            and compare(*((v.encode() if isinstance(v, str) else v) for v in (mine, value)))
            for value in values
        )

    written = ", ".join(map(write, values))
    return f"{name} in ({written})" if op == "in" else f"{name} {op} {written}", holds


def draw_expression(rng: random.Random, depth: int = 0) -> tuple[str, Test]:
    """An expression, and what it means."""
    kind = rng.random()
    if depth == 3 or kind < 0.3:
        if rng.random() < 0.3:
            word = rng.choice(WORDS)
            return word, lambda words, _: word in words
        return draw_predicate(rng)
    if kind < 0.45:
        text, inner = draw_expression(rng, depth + 1)
        return f"NOT ({text})", lambda *given: not inner(*given)
    parts = [draw_expression(rng, depth + 1) for _ in range(2)]
    is_and = rng.random() < 0.6
    text = (" AND " if is_and else " OR ").join(f"({text})" for text, _ in parts)
    choose = all if is_and else any
    return text, lambda *given: choose(test(*given) for _, test in parts)


def insert(client: Client, id: str, text: str) -> bool:
    """Inserts a query; returns whether it could match anything."""
    try:
        client.insert(id, text, EVERYWHERE, session="s")
    except InvalidArgument as error:
        if "can match nothing" in str(error):
            return False
        raise
    return True


def make_plan(target: str, path: Path) -> RoutingPlan:
    """Makes a plan from the recent objects and the queries of a service."""
    run("plan", "--from-service", target, "--engine", "numpy", "-o", str(path))
    return load_plan(path)


def run(*arguments: str) -> None:
    result = CliRunner().invoke(main, [*arguments, "--json"])
    assert result.exit_code == 0, result.output


def test_queries_are_posted_under_what_is_rarest_in_the_sample(tmp_path: Path) -> None:
    settings = Settings(runtime="local", port=0, workers=2, data_dir=tmp_path / "data")
    posts = [
        {"lon": i % 9, "lat": 0.0, "text": "flood" if i % 2 else "flood creek", "id": str(i)}
        | {"attributes": {"source": "usgs" if i % 50 == 0 else "noaa", "type": "quake"}}
        | ({"attributes": {"type": "fire", "mag": i % 9}} if i % 8 == 0 else {})
        | ({"attributes": {"a": i % 10, "b": i // 10 % 10}} if i % 2 else {})
        for i in range(400)
    ]
    rarest = {
        'flood AND source = "usgs"': 'source = "usgs"',
        'flood AND source = "noaa"': 'source = "noaa"',
        'creek AND type = "quake"': 'type = "quake"',
        "a = 3 AND b = 4 AND flood": "(a = 3 AND b = 4)",
        "a in (3, 5) AND b = 4": "b = 4",  # as two pairs are no eighth of it
        "a = 3 AND NOT b = 4": "a = 3",
        'type = "fire" AND mag > 6': "mag > 6",
        'type = "quake" AND mag > 6': "mag > 6",
        'source = "none" AND creek': 'source = "none"',
        "creek AND depth = 3": "creek",
    }
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        client.insert("early", 'flood AND source = "usgs"', EVERYWHERE, session="s")
        client.publish(posts)
        plan = make_plan(service.targets[0], tmp_path / "plan.json")
        run("apply", str(tmp_path / "plan.json"), "--wait", "--server", service.targets[0])
        assert plan.frequencies["flood"] == 400
        assert plan.frequencies["mag EXISTS"] == 50
        for number, expression in enumerate(rarest):
            client.insert(f"q{number}", expression, EVERYWHERE, session="s")
        terms = [
            {unit["term"] for unit in client.explain(f"q{number}", posts[0])["units"]}
            for number in range(len(rarest))
        ]
        assert terms == [{unit} for unit in rarest.values()]
        early = client.explain("early", posts[0])["units"]
        assert {unit["term"] for unit in early} == {"flood"}, "as it was at its insertion"
        checks = [client.price(x, EVERYWHERE)["checks_per_second"] for x in [*rarest][:2]]
        assert 0 < checks[0] < checks[1] / 10


@pytest.mark.takes_turns
@pytest.mark.parametrize("index", ["gi2-radix", "gi2-flat"])
def test_matches_are_those_of_brute_force(index: str, tmp_path: Path) -> None:
    rng = random.Random(f"{index} 1")
    live, expected, found = dict[str, Test](), set[tuple[str, str]](), set[tuple[str, str]]()
    published = dict[str, Attributes]()
    serial = 0
    settings = Settings(runtime="local", port=0, workers=2, data_dir=tmp_path / "data", index=index)
    plan = tmp_path / "plan.json"
    for path in (None, plan):  # the second after a restart, with statistics
        with (
            start(settings.model_copy(update={"plan": path})) as service,
            Client(service.targets[0], timeout=90) as client,
        ):
            for _ in range(12):
                for _ in range(rng.randrange(1, 8)):
                    serial += 1
                    text, means = draw_expression(rng)
                    if insert(client, f"q{serial}", text):
                        live[f"q{serial}"] = means
                for id in rng.sample(sorted(live), len(live) // 4):
                    client.delete(id)
                    del live[id]
                rows = []
                for _ in range(rng.choice([1, 3, 40])):
                    serial += 1
                    attributes = {x: rng.choice(VALUES) for x in "xyzw" if rng.random() < 0.6}
                    words = rng.sample(WORDS, 2)
                    rows.append(
                        {"id": f"o{serial}", "lon": 0.0, "lat": 0.0, "text": " ".join(words)}
                        | ({"attributes": attributes} if attributes else {})
                    )
                    published[f"o{serial}"] = attributes
                    expected |= {
                        (id, f"o{serial}")
                        for id, means in live.items()
                        if means({*words}, attributes)
                    }
                client.publish(rows)
            seen = list[tuple[str, str]]()
            with client.subscribe("s", attributes=True) as matches:
                while len(found) < len(expected):
                    match = matches.next(timeout=60)
                    seen.append((match.query_id, match.object_id))
                    found.add(seen[-1])
                    assert match.attributes == published[match.object_id]
            assert found == expected
            assert len({*seen}) == len(seen)
            make_plan(service.targets[0], plan)
    assert len(found) > 1000
