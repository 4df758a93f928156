"""Leaves that say what was moved out of others: H1 against their definition, and files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.errors import PlanError
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.planner.show import facts
from ps2stream.routing.leaves import Leaf, Moved, Space, Text, holders
from ps2stream.routing.plan import TOP_TERM, RoutingPlan, hash_units
from ps2stream.routing.plan_file import load_plan, save_plan
from ps2stream.space.grid import Grid

ANALYSIS = Analysis(salt=42)
ANALYZER = Analyzer(ANALYSIS)
WORDS = [TOP_TERM, *(f"w{i}" for i in range(12))]
WORKERS = 4

worker = st.integers(0, WORKERS - 1)
listed = st.dictionaries(st.sampled_from(WORDS), worker, max_size=8)
plain = st.one_of(
    st.builds(Space, worker),
    st.builds(Text, st.lists(worker, min_size=1, max_size=5).map(tuple), listed),
)


@st.composite
def plans(draw: st.DrawFn) -> RoutingPlan:
    """A cell a leaf; moved leaves before and after those that they stand on."""
    number = draw(st.integers(1, 4))
    bases = draw(st.lists(plain, min_size=number, max_size=number))
    moved: list[Leaf] = draw(
        st.lists(
            st.builds(
                Moved,
                st.integers(8 - number, 7),
                st.dictionaries(worker, worker, max_size=3),
                listed,
            ),
            min_size=8 - number,
            max_size=8 - number,
        )
    )
    return RoutingPlan(
        WORKERS, ANALYSIS, Grid(2, 1), (*moved, *bases), np.arange(8, dtype=np.uint32)
    )


def owners(plan: RoutingPlan, cell: int, terms: list[str]) -> list[int]:
    cells = np.full(len(terms), cell, np.uint32)
    return list(map(int, plan.compile(ANALYZER).owners(cells, hash_units(ANALYZER, terms))))


@pytest.mark.takes_turns
@settings(deadline=None, max_examples=150)
@given(plans())
def test_h1_is_its_definition(plan: RoutingPlan) -> None:
    terms = [*WORDS, *(f"never{i}" for i in range(30))]
    for cell, leaf in enumerate(plan.leaves):
        found = owners(plan, cell, terms)
        assert set(found) <= set(holders(plan.leaves)[cell])
        if isinstance(leaf, Moved):
            below = owners(plan, leaf.base, terms)
            assert found == [
                leaf.terms.get(t, leaf.to.get(w, w)) for t, w in zip(terms, below, strict=True)
            ]


@settings(deadline=None, max_examples=30)
@given(plans())
def test_a_plan_is_its_json(plan: RoutingPlan) -> None:
    again = RoutingPlan.from_dict(json.loads(json.dumps(plan.to_dict())), ANALYSIS)
    assert again.leaves == plan.leaves
    assert again.route == plan.route


def small(*leaves: Leaf) -> RoutingPlan:
    return RoutingPlan(3, ANALYSIS, Grid(2, 1), leaves, np.arange(8, dtype=np.uint32) % len(leaves))


def test_only_files_with_moved_leaves_need_a_new_reader(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    for plan, format in ((small(Space(1)), 1), (small(Space(1), Moved(0, {1: 2})), 2)):
        save_plan(plan, path)
        assert json.loads(path.read_text())["format"] == format
        assert load_plan(path, ANALYSIS).leaves == plan.leaves


@pytest.mark.parametrize(
    ("leaf", "reason"),
    [
        ({"base": 2}, "leaf 1 is based on leaf 2, but there are 2 leaves"),
        ({"base": -1}, "leaf 1 is based on leaf -1, but there are 2 leaves"),
        ({"base": 1}, "leaf 1 is based on leaf 1, which is neither"),
        ({"base": 0, "to": [[1, 3]]}, "leaf 1 names worker 3, but there are 3 workers"),
        ({"base": 0, "to": [[3, 1]]}, "leaf 1 names worker 3, but there are 3 workers"),
        ({"base": 0, "terms": {"w1": 3}}, "leaf 1 names worker 3, but there are 3 workers"),
        ({"base": 0, "to": [[1, 2], [1, 0]]}, "twice"),
        ({"base": 0, "to": [[1]]}, "plan"),
        ({"base": 0, "to": 7}, "plan"),
        ({"base": 0, "workers": [1]}, "unknown field 'workers'"),
        ({"base": "0"}, "must be a whole number"),
    ],
)
def test_a_wrong_leaf_is_refused_with_the_reason(leaf: dict[str, Any], reason: str) -> None:
    body = small(Space(1), Moved(0)).to_dict()
    body["leaves"][1] = leaf
    with pytest.raises(PlanError, match=reason):
        RoutingPlan.from_dict(body, ANALYSIS)


def test_the_plan_for_people_counts_what_was_moved() -> None:
    text = Text((0,), {"w1": 1})
    parts = facts(small(text, Moved(0, {0: 2}, {"w2": 1})))["parts"]
    assert [(p["text_leaves"], p["text_cells"], p["terms"]) for p in parts] == [
        (1, 4, 0),
        (2, 8, 2),
        (1, 4, 0),
    ]
