"""Subscriptions of attributes alone: their rows are those of the compiler, and an index finds of
them what they say."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.benchmarks import attribute_subscriptions as w0
from ps2stream.language.analyzer import Frequencies
from ps2stream.language.expression import compile_column
from ps2stream.protocol.frame import strings_to_column
from ps2stream.workers.indexes import INDEXES, IndexName


def test_rows_are_those_of_the_compiler() -> None:
    world = w0.AttributeWorld(500, 10, 3)
    known = Frequencies.of(w0.count_values(35_000), world.analyzer)
    texts = [world.describe(i) for i in range(500)]
    assert all(text.count(" = ") == 5 for text in texts)
    rows = world.build_rows(100, 500)
    column = compile_column(*strings_to_column(texts[100:]), world.analyzer, known)
    for name in ("form", "post", "term_off", "term", "prog_off"):
        assert np.array_equal(getattr(rows, name), getattr(column, name)), name
    notes = [
        {tuple(each) for each in prog[:-1].reshape(-1, 2).tolist()} | {int(prog[-1])}
        for prog in (part.reshape(400, -1) for part in (rows.prog, column.prog))
        for prog in prog
    ]
    assert notes[:400] == notes[400:]


@pytest.mark.parametrize("index", INDEXES)
def test_an_index_finds_what_brute_force_finds(
    index: IndexName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(w0, "VALUES", 4)
    monkeypatch.setattr(w0, "BATCHES", 2)
    found = w0.run_attributes(3_000, index, runs=1)
    assert found["matches_per_event"] == pytest.approx(3_000 / 4**5, rel=0.2)
    assert found["verified"]["different"] == 0
    assert found["verified"]["matches"] > 40
    assert found["over_paper"] == found["events_per_second"]["median"] / w0.PAPER


def test_a_difference_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(w0, "VALUES", 4)
    monkeypatch.setattr(w0, "BATCHES", 1)
    monkeypatch.setattr(w0.AttributeWorld, "find_matches", lambda *_: np.zeros(0, np.int64))
    assert w0.run_attributes(3_000, runs=1)["verified"]["different"] > 0
