"""One object a call finds what brute force finds, and refuses what is wrong."""

from __future__ import annotations

import random
from typing import Any

import pytest

import ps2stream
from ps2stream.client.requests import Query
from ps2stream.errors import InvalidArgument
from ps2stream.inprocess.matcher import Matcher
from tests.support.matching import brute_force, some_object, some_query

PLAIN = ("flood", "flood AND river", "river OR sun", "caf\u00e9")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("is_plain", [True, False])
def test_matches_are_those_of_brute_force(seed: int, is_plain: bool) -> None:
    rng = random.Random(seed)
    queries = [some_query(rng, i) for i in range(40)]
    if is_plain:  # keywords alone, which take the shorter way
        queries = [Query(q.id, rng.choice(PLAIN), q.region) for q in queries]
    objects = [some_object(rng) for _ in range(60)]
    for each in objects:
        each["text"] += rng.choice(
            ["", " Caf\u00e9 sun", " caf\u00e9\u0301 \U0001f30a", " \u6771\u4eac" * 40]
        )
    matcher = Matcher(queries)
    found = [
        (row, int(query))
        for row, each in enumerate(objects)
        for query in matcher.match_rows(each["lon"], each["lat"], each["text"], each["attributes"])
    ]
    assert found == brute_force(queries, objects)
    for each in objects:
        each["attributes"] = {}
    expected = brute_force(queries, objects)
    found = [
        (row, int(query[1:]))
        for row, each in enumerate(objects)
        for query in matcher.match(each["lon"], each["lat"], each["text"])
    ]
    assert found == expected


def test_long_texts_are_analysed_whole() -> None:
    matcher = ps2stream.Matcher([("a", "flood AND end"), ("b", "flood")])
    for words in (1, 500, 5_000):
        text = "flood " + "river " * words
        assert matcher.match(0, 0, text) == ["b"]
        assert matcher.match(0, 0, text + "end") == ["a", "b"]
        assert matcher.match(0, 0, "") == []


def test_the_analysis_is_that_of_match() -> None:
    queries = [("stem", "fox"), ("plain", "foxes"), ("fold", "cafe")]
    matcher = Matcher(queries, stemmer="english", fold=["accents"])
    assert matcher.match(0, 0, "foxes, caf\u00e9") == ["stem", "plain", "fold"]
    sample: Any = [{"lon": 0.0, "lat": 0.0, "text": "foxes"}]
    assert Matcher(queries, sample=sample).match(0, 0, "Foxes") == ["plain"]


@pytest.mark.parametrize("name", ["lon", "text", "id", "n"])
def test_attributes_have_any_name(name: str) -> None:
    matcher = Matcher([("a", f"flood AND {name} = 3"), ("b", "snow"), ("c", "flood")])
    assert matcher.match(0, 0, "flood", {name: 3}) == ["a", "c"]
    assert matcher.match(0, 0, "flood", {name: 4}) == ["c"]


BAD: list[tuple[tuple[Any, ...], str]] = [
    ((181, 0, "x"), "lon: .*180"),
    ((0, -91, "x"), "lat: .*90"),
    ((float("nan"), 0, "x"), "lon: is missing, or not a number"),
    (("west", 0, "x"), "lon, lat: expected degrees"),
    ((0, 0, None), "text: expected text, got null"),
    ((0, 0, "\ud800"), "text: expected Unicode"),
    ((0, 0, "x" * 70_000), "text: 70000 bytes are over the limit text_bytes"),
    ((0, 0, "\ufdfa" * 20_000), "text: .* once folded are over the limit folded_text_bytes"),
    ((0, 0, "x", {"n": object()}), "n"),
    ((0, 95, "x", {"n": 1}), r"lat: .*90"),
]


@pytest.mark.parametrize(("values", "problem"), BAD, ids=range(len(BAD)))
def test_what_is_wrong_is_named(values: tuple[Any, ...], problem: str) -> None:
    matcher = Matcher([("a", "x")])
    with pytest.raises(InvalidArgument, match=problem):
        matcher.match(*values)
    assert matcher.match(1, 1, "x") == ["a"]
    with pytest.raises(InvalidArgument, match=r"queries\[0\]\.expression"):
        Matcher([("a", "flood AND")])
