"""NOT, phrases and prefixes through the whole service: equal to brute force, while queries come
and go, and through a restart."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.client.client import Client
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import FailedPrecondition, InvalidArgument
from ps2stream.language import tokenizer
from ps2stream.space.regions import Circle, Rect
from tests import naive
from tests.sim.hostile import WORDS, some_expression

EVERYWHERE = Rect(-180.0, -90.0, 180.0, 90.0)


class Story:
    """What was inserted, deleted and published, and the matches that must follow."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.live: dict[str, str] = {}
        self.expected: set[tuple[str, str]] = set()
        self.serial = 0

    def insert_and_delete(self, client: Client) -> None:
        for _ in range(self.rng.randrange(1, 6)):
            self.serial += 1
            id, expression = f"q{self.serial}", some_expression(self.rng)
            client.insert(id, expression, EVERYWHERE, session="s")
            self.live[id] = expression
        if len(self.live) > 12:
            for id in self.rng.sample(sorted(self.live), 4):
                client.delete(id)
                del self.live[id]

    def publish(self, client: Client) -> None:
        rows = []
        for _ in range(self.rng.choice([1, 3, 40])):
            self.serial += 1
            text = " ".join(self.rng.choices([*WORDS, "flooding", "rivers"], k=5))
            rows.append({"id": f"o{self.serial}", "lon": 0.0, "lat": 0.0, "text": text})
            self.expected |= {
                (id, f"o{self.serial}")
                for id, expression in self.live.items()
                if naive.satisfied(expression, text)
            }
        client.publish(rows)


@pytest.mark.takes_turns
@pytest.mark.parametrize("seed", range(2))
def test_matches_are_those_of_brute_force(seed: int, tmp_path: Path) -> None:
    story, found = Story(seed), set[tuple[str, str]]()
    settings = Settings(runtime="local", port=0, workers=2, data_dir=tmp_path)
    for _ in range(2):  # the second after a restart
        with start(settings) as service, Client(service.targets[0], timeout=90) as client:
            for _ in range(12):
                story.insert_and_delete(client)
                story.publish(client)
            seen = list[tuple[str, str]]()
            with client.subscribe("s") as matches:
                while len(found) < len(story.expected):
                    match = matches.next(timeout=60)
                    seen.append((match.query_id, match.object_id))
                    found.add(seen[-1])
            assert found == story.expected
            assert len({*seen}) == len(seen)
    assert len(found) > 200


def test_what_has_no_word_that_must_be_there_is_told(client: Client, target: str) -> None:
    inserted = client.insert("l1", "-Flood OR river", Circle(0.0, 0.0, 5.0))
    assert inserted.expression == "river OR NOT flood"
    assert "every object in its area is compared" in inserted.warnings[0]
    assert client.insert("l2", '"Rising  water" -flo* c++', Circle(0.0, 0.0, 5.0)).warnings == ()
    assert client.insert("l3", "", Circle(0.0, 0.0, 5.0)).warnings == ()
    assert client.get("l2").canonical == '"rising water" AND c++ AND NOT flo*'
    shown = CliRunner().invoke(main, ["list", "--server", target]).output
    assert '-flo* c++ (understood as "rising water" AND c++ AND NOT flo*)' in shown
    some = CliRunner().invoke(main, ["list", "l3", "gone", "l2", "--server", target])
    assert some.exit_code == 3
    assert [line.split()[0] for line in some.stdout.splitlines()] == ["l3", "l2"]
    assert "gone" in some.stderr
    one = CliRunner().invoke(main, ["query", "show", "gone", "l2", "--server", target])
    lines = one.stdout.splitlines()
    assert (one.exit_code, len(lines)) == (3, 4)
    assert lines[0] == f"l2 (LSN {client.get('l2').lsn}, session default)"
    assert lines[1] == '  typed  "Rising  water" -flo* c++'
    assert lines[2] == '  text   "rising water" AND c++ AND NOT flo*'
    assert "gone" in one.stderr
    shown = CliRunner().invoke(main, ["query", "show", "l2", "--json", "--server", target]).stdout
    assert json.loads(shown)["canonical"] == '"rising water" AND c++ AND NOT flo*'
    both = CliRunner().invoke(main, ["list", "l2", "--limit", "1", "--server", target])
    assert both.exit_code == 2
    assert "leave the IDs out" in both.stderr
    for id in ("l1", "l2", "l3"):
        client.delete(id)


def test_bad_literals_are_refused_by_name(client: Client) -> None:
    for expression, column in (('"rising', 1), ("flood NOT flood", 1), ("a f*", 3), ("a ~b", 3)):
        with pytest.raises(InvalidArgument, match=f"column {column}: ") as error:
            client.insert("bad", expression, EVERYWHERE)
        assert error.value.violations[0].field == "query.expression"


def test_a_directory_with_other_rules_of_words_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(runtime="local", port=0, workers=1, data_dir=tmp_path)
    with start(settings) as service, Client(service.targets[0]) as client:
        client.insert("kept", "don't")
    monkeypatch.setattr(tokenizer, "VERSION", tokenizer.VERSION + 1)
    with pytest.raises(FailedPrecondition, match=r"analysis\.version: made with words of version"):
        start(settings)
    monkeypatch.undo()
    with start(settings) as service, Client(service.targets[0]) as client:
        assert client.get("kept").expression == "don't"
