"""Queries with phrases, prefixes, NOT and predicates that come and go while real posts flow: each
post meets exactly the queries that are live as of its LSN, by brute force."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.client.client import Client
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.dispatcher.literal_table import LiteralTable
from ps2stream.errors import InvalidArgument
from ps2stream.language.literals import LiteralView
from ps2stream.language.object_terms import search_near
from ps2stream.language.search_again_kernels import search_again
from ps2stream.service.tenant_gateway import TenantGateway
from tests import naive
from tests.naive_predicates import Scalar
from tests.support.real_posts import Reader, posts, quiet

POSTS = 2_400
QUERIES = 50  # live at a time, about
# As they are written in queries, and as posts have them.
VALUES: Mapping[str, Sequence[str]] = {
    "kind": (*(f'"k{i}"' for i in range(10)), '"é"', '"e\u0301"'),
    "net": (*map(str, range(10)), "3.0", "true"),
    "mag": ("0", "-0.0", "2.5", "3", '"3"', "true"),
    "big": ("9007199254740992", "9007199254740993", "9007199254740992.0", "1e308"),
    "code": (*map(str, range(60)),),
}
ATTRIBUTES: Mapping[str, Sequence[Scalar]] = {
    "kind": (*(f"k{i}" for i in range(10)), "é", "e\u0301"),
    "net": (*range(10), 3.0, True),
    "mag": (0, -0.0, 2.5, 3, 3.0, 7.1, "3", True),
    "big": (2**53, 2**53 + 1, float(2**53), 2**63 - 1, 1e308),
    "code": range(60),
}
SPOTS = [(180.0, 0.0), (-180.0, 0.0), (179.5, 1.0), (0.0, 90.0), (100.0, -90.0)]
EDGES = [(175.0, -5.0, -175.0, 5.0), (-180.0, -5.0, -175.0, 5.0), (-10.0, 80.0, 10.0, 90.0)]
Region = dict[str, Any] | None


@dataclass
class Meeting:
    """What was inserted and published by which LSN, from several threads."""

    real: list[tuple[str, float, float]]
    lock: threading.Lock = field(default_factory=threading.Lock)
    # By handle: id, expression, region, and the LSN of the delete.
    queries: dict[int, tuple[str, str, Region, float]] = field(default_factory=dict)
    published: list[tuple[int, dict[str, Any]]] = field(default_factory=list)

    def end_query(self, handle: int, lsn: float) -> None:
        self.queries[handle] = (*self.queries[handle][:3], lsn)

    def expect(self) -> set[tuple[str, str]]:
        return {
            (id, post["id"])
            for handle, (id, expression, region, end) in self.queries.items()
            for lsn, post in self.published
            if handle <= lsn < end
            and naive.inside(region, post["lon"], post["lat"])
            and naive.satisfied(expression, post["text"], post.get("attributes", {}))
        }


def draw_predicate(rng: random.Random) -> str:
    name = rng.choice(list(VALUES))
    if rng.random() < 0.1:
        return f"{name} EXISTS"
    op = rng.choice(["=", "=", "=", "!=", "<", "<=", ">", ">=", "in"])
    if op == "in":
        return f"{name} in ({', '.join(rng.sample(VALUES[name], 2))})"
    return f"{name} {op} {rng.choice(VALUES[name])}"


def draw_words(rng: random.Random, real: list[tuple[str, float, float]]) -> str:
    """A keyword, a phrase or a prefix of some post."""
    words = [word for word in naive.words(rng.choice(real)[0])[0] if word.isalnum()] or ["the"]
    at, kind = rng.randrange(len(words)), rng.random()
    if kind < 0.4:
        return f'"{" ".join(words[at : at + rng.randint(2, 4)])}"'
    word = words[at]
    is_long = len(word) > 1 and word.isascii()
    return f"{word[: rng.randint(2, 12)]}*" if kind < 0.7 and is_long else word


def draw_expression(
    rng: random.Random, real: list[tuple[str, float, float]], predicates: float
) -> str:
    """predicates: the share of literals that are predicates."""

    def draw_literal() -> str:
        return draw_predicate(rng) if rng.random() < predicates else draw_words(rng, real)

    kind = rng.random()
    if kind < 0.35:
        return draw_literal()
    if kind < 0.5:
        return f"{draw_literal()} AND NOT {draw_literal()}"
    if kind < 0.8 and predicates:  # a pair of equalities
        return f'kind = "k{rng.randrange(10)}" AND net = {rng.randrange(10)}'
    if kind < 0.55:
        return f"NOT {draw_literal()}"
    joint = rng.choice([" AND ", " OR "])
    return f"({draw_literal()}{joint}{draw_literal()}) OR {draw_literal()}"


def draw_region(rng: random.Random, real: list[tuple[str, float, float]]) -> Region:
    _, lon, lat = rng.choice(real)
    kind, side = rng.random(), rng.choice([0.1, 1.0, 4.0])
    if kind < 0.3:
        return None
    if kind < 0.6:
        return {"type": "Circle", "lon": lon, "lat": lat, "radius_km": side * 111}
    names = ("lon_min", "lat_min", "lon_max", "lat_max")
    box = (lon - side, lat - side, lon + side, lat + side) if kind < 0.8 else rng.choice(EDGES)
    return {"type": "Rect", **dict(zip(names, box, strict=True))}


def draw_post(rng: random.Random, meeting: Meeting, number: int, share: float) -> dict[str, Any]:
    """share: how many have attributes."""
    text, lon, lat = meeting.real[number]
    if rng.random() < 0.1:
        lon, lat = rng.choice(SPOTS)
    if rng.random() < 0.1:
        text += " ไทย 東京"  # letters that are not simple
    post = {"id": f"o{number}", "lon": lon, "lat": lat, "text": text}
    if rng.random() < share:
        post["attributes"] = {n: rng.choice(v) for n, v in ATTRIBUTES.items() if rng.random() < 0.8}
    return post


class OldViews:
    """Literals as publications see them that waited, some of them for long."""

    def __init__(self, table: Any, rng: random.Random) -> None:
        self._table, self._rng = table, rng
        self._views: list[LiteralView] = []

    @property
    def view(self) -> LiteralView:
        self._views.append(self._table.view)
        return self._rng.choice(self._views[-20:] if self._rng.random() < 0.8 else self._views)


def insert_and_delete(
    meeting: Meeting, client: Client, rng: random.Random, name: str, live: dict[str, int]
) -> None:
    """Inserts some queries, replaces one now and then, and deletes some. live: handles by id."""
    predicates = rng.choice([0.0, 0.5, 0.5])
    for _ in range(rng.choice([1, 2, 12])):
        is_new = not live or rng.random() < 0.8
        id = f"{name}{rng.getrandbits(60)}" if is_new else rng.choice(sorted(live))
        expression = draw_expression(rng, meeting.real, predicates)
        region = draw_region(rng, meeting.real)
        try:
            lsn = int(client.insert(id, expression, region, session="s", replace=not is_new))
        except InvalidArgument as error:
            if "can match nothing" in str(error):
                continue
            raise
        with meeting.lock:
            if id in live and live[id] != lsn:
                meeting.end_query(live[id], lsn)
            meeting.queries[lsn] = id, expression, region, math.inf
        live[id] = lsn
    for id in rng.sample(sorted(live), max(len(live) - QUERIES // 2, 0)):
        lsn = client.delete(id)
        with meeting.lock:
            meeting.end_query(live.pop(id), lsn)


def publish(meeting: Meeting, client: Client, rng: random.Random, rows: range) -> None:
    at = rows.start
    while at < rows.stop:
        size = min(rng.choice([1, 3, 10, 40]), rows.stop - at)
        share = rng.choice([0.0, 0.7])
        made = [draw_post(rng, meeting, at + i, share) for i in range(size)]
        inserted = len(meeting.queries)
        receipt = client.publish(made)
        with meeting.lock:
            meeting.published.extend((receipt.lsn, post) for post in made)
        at += size
        for _ in range(40):  # so that queries come between publications, and some beside them
            if len(meeting.queries) <= inserted:
                time.sleep(0.005)


def play(meeting: Meeting, target: str, seed: str) -> None:
    """Publishes from two threads, while two others insert and delete."""
    over = threading.Event()

    def change(name: str) -> None:
        rng, live = random.Random(f"{seed} {name}"), dict[str, int]()
        with Client(target, timeout=120) as client:
            while not over.is_set():
                insert_and_delete(meeting, client, rng, name, live)

    def send(rows: range) -> None:
        with Client(target, timeout=120) as client:
            publish(meeting, client, random.Random(f"{seed} {rows}"), rows)

    half = POSTS // 2
    with ThreadPoolExecutor(4) as pool:
        try:
            changes = [pool.submit(change, name) for name in "ab"]
            while len(meeting.queries) < QUERIES // 2 and not any(c.done() for c in changes):
                time.sleep(0.01)
            for sent in [pool.submit(send, r) for r in (range(half), range(half, POSTS))]:
                sent.result()
        finally:
            over.set()
        for changed in changes:
            changed.result()


def make_plan(meeting: Meeting, settings: Settings, path: Path) -> Path:
    """Makes a plan that knows how rare words and equalities are, so that pairs are postings."""
    rng = random.Random("plan")
    with start(settings) as service, Client(service.targets[0], timeout=120) as client:
        client.publish([draw_post(rng, meeting, i, 0.8) for i in range(1_000)])
        options = ("--from-service", service.targets[0], "--engine", "numpy", "-o", str(path))
        made = CliRunner().invoke(main, ["plan", *options])
    assert made.exit_code == 0, made.output
    return path


@pytest.mark.takes_turns
@pytest.mark.parametrize(("dispatchers", "has_plan"), [(1, True), (2, False)])
def test_posts_meet_the_queries_that_are_live_as_of_their_lsn(
    dispatchers: int, has_plan: bool, tweets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed, searched = f"{dispatchers} flowing", {"later": 0, "kernel": 0}
    rng = random.Random(seed)
    meeting = Meeting(rng.sample(posts(tweets, 20_000), POSTS))
    settings = Settings(
        runtime="local", port=0, workers=2, dispatchers=dispatchers, data_dir=tmp_path / "data"
    )
    if has_plan:
        plan = make_plan(meeting, settings, tmp_path / "plan.json")
        settings = settings.model_copy(update={"plan": plan})
    views = dict[int, OldViews]()

    def see_old_views(gateway: Any) -> OldViews:
        table: LiteralTable = gateway._gateway.literals
        return views.setdefault(id(table), OldViews(table, random.Random(seed)))

    def count(name: str, search: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*given: Any) -> Any:
            searched[name] += 1
            return search(*given)

        return counting

    monkeypatch.setattr(TenantGateway, "literals", property(see_old_views))
    near, again = count("later", search_near), count("kernel", search_again)
    monkeypatch.setattr("ps2stream.dispatcher.literal_table.search_near", near)
    monkeypatch.setattr("ps2stream.language.object_terms.search_again", again)
    with start(settings) as service:
        reader = Reader(service.targets[0], "s")
        reader.start()
        play(meeting, ",".join(service.targets), seed)
        quiet(service)
        with Client(service.targets[0], timeout=120) as client:
            client.insert("end", "theveryend", session="s")
            client.publish([{"id": "the end", "lon": 0, "lat": 0, "text": "theveryend"}])
        wanted = meeting.expect()
        assert reader.done.wait(60)
        reader.client.close()
    assert {*reader.pairs} == wanted
    assert len({*reader.pairs}) == len(reader.pairs)
    assert len(wanted) > 500
    assert min(searched.values()) > 3, searched
