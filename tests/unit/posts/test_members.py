"""Which members of records become attributes, of what type, and what is said of the others."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from ps2stream.errors import InvalidArgument
from ps2stream.posts.members import AttributeChoice, AttributeProblem
from ps2stream.posts.post import KNOWN

TEN = datetime(2026, 11, 24, 10, tzinfo=UTC)
POST = {"lat": 1, "longitude": 2, "text": "x", "ts": 5, "id": "a", "payload": {}}


def read(spec: str | None, **record: Any) -> dict[str, Any]:
    return AttributeChoice(spec).read(POST | record, KNOWN)


def test_all_scalars_become_attributes_and_the_rest_is_named() -> None:
    choice = AttributeChoice()
    record = POST | {"mag": 4.5, "n": -3, "ok": False, "at": "2026-11-24", "no": None}
    assert choice.read(record, KNOWN) == {"mag": 4.5, "n": -3, "ok": False, "at": "2026-11-24"}
    assert choice.pop_left_out() == []
    bad = {
        "tags": ["a"],
        "place": {"lat": 1},
        "story": "ä" * 600,
        "huge": 1 << 63,
        "nan": math.nan,
        "": 1,
        "n" * 65: 1,
        "a`b": 1,
        "a\nb": 1,
    }
    assert choice.read(record | bad, KNOWN) == choice.read(record, KNOWN)
    assert choice.pop_left_out() == [
        "tags (an array)",
        "place (an object)",
        "story (1200 bytes, more than 1024)",
        "huge (beyond 64 bits)",
        "nan (not a number)",
        " (the name is empty)",
        f"{'n' * 65} (the name has more than 64 bytes)",
        "a`b (the name has a backquote or control character)",
        "a\nb (the name has a backquote or control character)",
    ]
    choice.read(bad, KNOWN)
    assert choice.pop_left_out() == [], "each is reported once"


def test_the_limits_themselves_are_kept() -> None:
    assert len(read(None, story="ä" * 512, **{"n" * 64: 1}, low=-(1 << 63), inf=math.inf)) == 4
    choice = AttributeChoice()
    assert len(choice.read({f"n{i}": i for i in range(70)}, ())) == 64
    assert choice.pop_left_out()[0] == "n64 (one of more than 64)"


def test_texts_are_in_normal_form_and_lone_surrogates_replaced() -> None:
    assert read(None, a="e\u0301", b="\ud800") == {"a": "é", "b": "\ufffd\ufffd\ufffd"}


def test_a_choice_takes_those_and_reports_names_that_never_occur() -> None:
    choice = AttributeChoice("mag, `a,b:c` ,missing:number")
    assert choice.read({"mag": 1, "other": 2, "a,b:c": "x", "tags": []}, KNOWN) == {
        "mag": 1,
        "a,b:c": "x",
    }
    assert choice.pop_left_out() == []
    assert choice.list_unseen() == ["missing"]
    assert read("none", mag=1) == {}
    assert read("mag", mag=None) == {}


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        ("number", "3", 3),
        ("number", " -3 ", -3),
        ("number", "4.5e1", 45.0),
        ("number", 7, 7),
        ("text", 7, "7"),
        ("text", 4.5, "4.5"),
        ("text", True, "true"),
        ("boolean", "True", True),
        ("boolean", "false", False),
        ("boolean", True, True),
        ("time", "2026-11-24T11:00:00+01:00", TEN),
        ("time", "2026-11-24T10:00:00", TEN),
        ("time", round(TEN.timestamp() * 1000), TEN),
        ("time", str(round(TEN.timestamp() * 1000)), TEN),
    ],
)
def test_values_become_of_the_type_that_is_given(kind: str, value: Any, found: Any) -> None:
    made = read(f"a:{kind}", a=value)["a"]
    assert (made, type(made)) == (found, type(found))


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        (":number", "high", "expected a number, got 'high'"),
        (":number", "1_000", "expected a number, got '1_000'"),
        (":number", "nan", "expected an attribute, got nan: not a number"),
        (":number", "1" * 29, "beyond 64 bits"),
        (":number", True, "expected a number, got true"),
        (":boolean", 1, "expected a boolean, got 1"),
        (":boolean", "yes", "expected a boolean, got 'yes'"),
        (":time", "noon", "expected a time, got 'noon'"),
        (":time", 1.5, "expected a time, got 1.5"),
        (":time", 1 << 62, "expected a time, got 4611686018427387904"),
        (":text", ["a"], 'expected text, got ["a"]'),
        ("", ["a"], 'expected an attribute, got ["a"]: an array'),
        ("", "x" * 1025, "1025 bytes, more than 1024"),
    ],
)
def test_a_chosen_value_that_cannot_be_is_refused(kind: str, value: Any, problem: str) -> None:
    with pytest.raises(AttributeProblem) as caught:
        read(f"a{kind}", a=value)
    assert caught.value.name == "a"
    assert problem in caught.value.problem


def test_an_object_of_attributes_is_taken_apart() -> None:
    found = {"severity": 3, "deep": True}
    assert read(None, attributes={"severity": 3}, deep=True) == found
    assert read("severity", attributes={"severity": 3}, deep=True) == {"severity": 3}
    assert read(None, attributes={"lat": 9}) == {"lat": 9}
    assert read(None, attributes="as a text") == {"attributes": "as a text"}
    with pytest.raises(AttributeProblem, match="severity: expected it once, got it twice"):
        read(None, attributes={"severity": 3}, severity=3)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"tags": ["a"]}, "attributes.tags: no attribute: an array"),
        ({"story": "x" * 1025}, "attributes.story: no attribute: 1025 bytes, more than 1024"),
        ({"e\u0301": 1 << 63}, "attributes.\u00e9: no attribute: beyond 64 bits"),
        ({f"n{i}": i for i in range(65)}, "attributes: expected at most 64, got 65"),
    ],
)
def test_what_is_called_an_attribute_must_be_one_if_asked(given: Any, problem: str) -> None:
    exact = AttributeChoice(exact=True)
    with pytest.raises(AttributeProblem) as caught:
        exact.read({"attributes": given}, KNOWN)
    assert str(caught.value) == problem
    assert len(AttributeChoice().read({"attributes": given}, KNOWN)) == (
        64 if len(given) > 1 else 0
    )
    exact.read({"attributes": {f"n{i}": i for i in range(64)}, "more": 1, "tags": []}, KNOWN)
    assert exact.pop_left_out() == ["more (one of more than 64)", "tags (an array)"]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("", "attributes: expected NAME or NAME:TYPE, separated by commas, got ''"),
        ("a,,b", "attributes: expected NAME or NAME:TYPE, separated by commas, got ',b'"),
        ("a:int", "attributes.a: expected a type of number, text, boolean, time, got 'int'"),
        ("a:", "attributes.a: expected a type of number, text, boolean, time, got ''"),
        ("a,b,a", "attributes.a: is there twice"),
        ("`a", "attributes: expected NAME or NAME:TYPE, separated by commas, got '`a'"),
        ("a\nb", "the name has a backquote or control character"),
        ("n" * 65, "the name has more than 64 bytes"),
    ],
)
def test_a_choice_that_is_none_is_refused(spec: str, problem: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        AttributeChoice(spec)
    assert problem in str(caught.value)


def test_columns_of_texts_that_look_like_numbers_are_advised_of() -> None:
    rows = [{"mag": "4.5", "n": "3", "at": "2026", "a b": "1e3", "word": "x", "id": "7"}]
    rows += [{"mag": "-5", "n": "", "at": "soon", "a b": "2"}]
    choice = AttributeChoice()
    choice.look_for_numbers(rows, KNOWN)
    assert choice.advice == "mag:number,n,at,`a b`:number,word"
    assert AttributeChoice(choice.advice).types == {
        "mag": "number",
        "n": "",
        "at": "",
        "a b": "number",
        "word": "",
    }
    for spec, found in (("mag", rows), (None, [{"word": "nan"}]), (None, [])):
        choice = AttributeChoice(spec)
        choice.look_for_numbers(found, KNOWN)
        assert choice.advice == ""
