"""Expressions are shown as their subscribers typed them, and are the same by what they mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from ps2stream.client.client import Client
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import AlreadyExists
from ps2stream.language.query_rows import build_checked_rows
from ps2stream.service import query_columns
from ps2stream.space.regions import Circle, Rect

TYPED = "flood  AND (River OR creek)"
THAMES = Circle(-0.12, 51.5, 30)


def clauses(told: dict[str, object]) -> list[tuple[object, ...]]:
    """(kind, text, holds) of each clause, depth first."""
    parts = told["parts"]
    assert isinstance(parts, list)
    return [
        (told["kind"], told["text"], told["holds"]),
        *(found for part in parts for found in clauses(part)),
    ]


def test_an_expression_is_shown_as_typed_everywhere_and_after_a_restart(tmp_path: Path) -> None:
    settings = Settings(runtime="local", port=0, workers=2, data_dir=tmp_path)
    with start(settings) as service, Client(service.targets[0]) as client:
        lsn = client.insert("thames", TYPED, THAMES)
        many = [("a", "river OR flood OR river"), ("b", "(x)"), ("c", "", Rect(0, 0, 1, 1))]
        client.insert_many(many)
        dry = {"lon": -0.1, "lat": 51.5, "text": "a flood of visitors"}
        told = client.explain("thames", dry)
        assert told["query"]["expression"] == TYPED
        assert f"does not satisfy {TYPED[12:-1]};" in told["reason"]
        assert clauses(told["text"]) == [
            ("and", TYPED, False),
            ("term", "flood", True),
            ("or", "River OR creek", False),
            ("term", "River", False),
            ("term", "creek", False),
        ]
    with start(settings) as service, Client(service.targets[0]) as client:
        assert client.get("thames").expression == TYPED
        shown = [(q.id, q.expression) for q in client.list()]
        assert shown == [("thames", TYPED), *(row[:2] for row in many)]
        # The same in other words is the same query, and the words of the first stay.
        assert client.insert("thames", "creek flood OR river AND flood", THAMES) == lsn
        assert client.get("thames").expression == TYPED
        with pytest.raises(AlreadyExists):
            client.insert("thames", "flood", THAMES)
        client.publish([dry | {"text": "The creek: a flood!"}])
        with client.subscribe() as matches:
            assert "thames" in (match.query_id for match in matches)  # it waits until that comes
        assert client.explain("thames", dry | {"text": "river flood"})["text"]["holds"]


def test_a_keyword_that_is_read_as_other_terms_shows_them(tmp_path: Path) -> None:
    settings = Settings(runtime="local", port=0, workers=1, data_dir=tmp_path)
    with start(settings) as service, Client(service.targets[0]) as client:
        client.insert("station", "(Bristol-Temple OR Süd) train")
        told = client.explain("station", {"lon": 0, "lat": 0, "text": "train to Bristol, süd"})
        assert told["matches"]
        assert clauses(told["text"]) == [
            ("and", "(Bristol-Temple OR Süd) train", True),
            ("or", "Bristol-Temple OR Süd", True),
            ("phrase", "Bristol-Temple", False),
            ("term", "bristol", True),
            ("term", "temple", False),
            ("term", "Süd", True),
            ("term", "train", True),
        ]


def test_a_ledger_from_before_shows_the_canonical_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older versions kept no typed text."""
    settings = Settings(runtime="local", port=0, workers=1, data_dir=tmp_path)
    with monkeypatch.context() as patch:
        build = lambda *columns: build_checked_rows(*columns[:3])  # noqa: E731
        patch.setattr(query_columns, "build_checked_rows", build)
        with start(settings) as service, Client(service.targets[0]) as client:
            lsn = client.insert("thames", TYPED)
    canonical = "creek AND flood OR flood AND river"
    with start(settings) as service, Client(service.targets[0]) as client:
        assert client.get("thames").expression == canonical
        assert client.insert("thames", TYPED) == lsn
        assert client.get("thames").expression == canonical
