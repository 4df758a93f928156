"""Plans: the kd-tree by load, H1 against its definition, and every way a file can be wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.errors import PlanError
from ps2stream.language.analyzer import TOP, Analysis, Analyzer
from ps2stream.language.expression import hash_literals
from ps2stream.routing.plan import TOP_TERM, RoutingPlan, Space, Text, built_in_plan, text_plan
from ps2stream.routing.plan_file import load_plan, save_plan
from ps2stream.space.grid import Grid
from ps2stream.space.kdt_tree import KdtLeaf, KdtSplit, flatten, kd_tree

ANALYSIS = Analysis(salt=42)
ANALYZER = Analyzer(ANALYSIS)
GRID = Grid(lon_bits=5, lat_bits=4)
CELLS = 1 << 9


def mixed_plan() -> RoutingPlan:
    cells = np.arange(CELLS, dtype=np.uint32) % 3
    leaves = (Space(2), Text((0, 3), {"flood": 1, "雨": 2}), Text((4,)))
    return RoutingPlan(5, ANALYSIS, GRID, leaves, cells, {"flood": 7, "雨": 1}, 3, 1)


@settings(deadline=None, max_examples=80)
@given(
    st.integers(1, 6),
    st.integers(1, 6),
    st.integers(1, 20),
    st.lists(st.sampled_from([0.0, 0.0, 1.0, 5.0, 1000.0]), min_size=36, max_size=36),
)
def test_a_kd_tree_covers_all_cells_with_all_workers(
    rows: int, columns: int, workers: int, load: list[float]
) -> None:
    tree = kd_tree(np.array(load[: rows * columns]).reshape(rows, columns), workers)
    cells, parts = flatten(tree, rows, columns)
    assert len(cells) == rows * columns
    assert set(cells.tolist()) == set(range(len(parts)))
    assert sorted(w for part in parts for w in part.workers) == list(range(workers))


def test_even_load_is_divided_evenly() -> None:
    cells, parts = flatten(kd_tree(np.ones((16, 32)), 8), 16, 32)
    assert all(len(part.workers) == 1 for part in parts)
    assert np.bincount(cells).tolist() == [64] * 8
    assert isinstance(kd_tree(np.ones((16, 32)), 2), KdtSplit)


def test_a_hot_cell_is_divided_by_text() -> None:
    load = np.ones((4, 4))
    load[2, 1] = 1e6
    cells, parts = flatten(kd_tree(load, 4), 4, 4)
    assert set(parts[cells[2 * 4 + 1]].workers) == {0, 1, 2, 3}
    assert kd_tree(load[:1, :1], 3) == KdtLeaf((0, 1, 2))


def test_the_built_in_plan_follows_the_sample() -> None:
    rng = np.random.default_rng(1)
    lon, lat = rng.normal(-95, 12, 20_000), rng.normal(38, 5, 20_000)
    plan = built_in_plan(ANALYSIS, Grid(), 4, (lon, lat))
    cells = Grid().cells(lon, lat, 0)
    assert all(isinstance(leaf, Space) for leaf in plan.leaves)
    share = np.bincount(plan.compile(ANALYZER).owners(cells, cells.astype(np.uint64))) / len(lon)
    assert share == pytest.approx([0.25] * 4, abs=0.05)


def test_h1_is_its_definition() -> None:
    h1 = mixed_plan().compile(ANALYZER)
    terms = ["flood", "雨", "fire", "river", "storm"]
    hashes = [*ANALYZER.hash_terms(terms).tolist(), int(TOP), 0, 2**64 - 1]
    for term in hashes:
        owner = h1.owners(np.arange(3, dtype=np.uint32), np.full(3, term, np.uint64)).tolist()
        assert owner[0] == 2
        assert owner[1] in {hashes[0]: {1}, hashes[1]: {2}}.get(term, {0, 3})
        assert owner[2] == 4
    coarse = np.full(4000, 1 << 28, np.uint32)
    spread = np.bincount(h1.owners(coarse, np.arange(4000, dtype=np.uint64)), minlength=5)
    assert spread.min() > 650
    fallback = np.bincount(
        h1.owners(np.ones(4000, np.uint32), np.arange(4000, dtype=np.uint64)), minlength=5
    )
    assert fallback[[1, 2, 4]].tolist() == [0, 0, 0]
    assert fallback[[0, 3]].min() > 1800


def test_h1_holds_every_listed_term() -> None:
    terms = {f"w{i}": i % 3 for i in range(1_000)}
    leaves = Text((3,), terms), Text((3,), {t: (w + 1) % 3 for t, w in terms.items()})
    plan = RoutingPlan(4, ANALYSIS, GRID, leaves, np.arange(CELLS, dtype=np.uint32) % 2)
    hashes = ANALYZER.hash_terms([*terms, "other"])
    for cell in (0, 1):
        owner = plan.compile(ANALYZER).owners(np.full(1_001, cell, np.uint32), hashes)
        assert owner.tolist() == [*((w + cell) % 3 for w in terms.values()), 3]


def test_the_pseudo_term_of_queries_without_words_can_be_listed() -> None:
    plan = text_plan(ANALYSIS, GRID, 4, {TOP_TERM: 3, "flood": 2})
    hashes = np.append(ANALYZER.hash_terms(["flood"]), TOP)
    owner = plan.compile(ANALYZER).owners(np.zeros(2, np.uint32), hashes)
    assert owner.tolist() == [2, 3]


def test_a_file_gives_the_plan_back(tmp_path: Path) -> None:
    for plan in (
        mixed_plan(),
        text_plan(ANALYSIS, GRID, 3, {"a": 2}),
        built_in_plan(ANALYSIS, GRID, 7),
    ):
        save_plan(plan, tmp_path / "plan.json")
        again = load_plan(tmp_path / "plan.json", ANALYSIS, plan.workers)
        assert again.to_dict() == plan.to_dict()
        assert again.analysis == ANALYSIS
        assert np.array_equal(again.cells, plan.cells)
        cell, term = np.arange(CELLS, dtype=np.uint32), np.arange(CELLS, dtype=np.uint64)
        assert np.array_equal(
            again.compile(ANALYZER).owners(cell, term), plan.compile(ANALYZER).owners(cell, term)
        )
    assert str(ANALYSIS.salt) not in (tmp_path / "plan.json").read_text().split('"')


def test_a_plan_does_not_change() -> None:
    plan = mixed_plan()
    with pytest.raises(ValueError, match="read-only"):
        plan.cells[0] = 1
    with pytest.raises(TypeError):
        plan.frequencies["a"] = 1  # type: ignore[index]
    with pytest.raises(AttributeError):
        plan.version = 2  # type: ignore[misc]


def test_the_example_is_a_plan(root: Path) -> None:
    plan = load_plan(root / "examples" / "plan-text.json", ANALYSIS, 3)
    owner = plan.compile(ANALYZER).owners(
        np.zeros(2, np.uint32), ANALYZER.hash_terms(["flood", "storm"])
    )
    assert owner.tolist() == [2, 1]


def put(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    """Set a value in the document and sign it anew, as an ill-informed hand would."""

    def change(document: dict[str, Any]) -> None:
        at = document
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value
        document.pop("checksum", None)

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda d: d["plan"].update(version=9), "checksum"),
        (lambda d: d.update(checksum="sha256:0"), "checksum"),
        (put("format", value=5), "format 5; this version reads 1 to 4"),
        (lambda d: d.pop("format"), "no field 'format'"),
        (lambda d: d.pop("plan"), "'plan' is missing"),
        (put("plann", value=1), "unknown field 'plann'"),
        (put("plan", "worker", value=1), "unknown field 'worker'"),
        (lambda d: (d.pop("checksum"), d["plan"].pop("grid")), "'grid' is missing"),
        (put("plan", "workers", value=0), "workers, got 0"),
        (put("plan", "workers", value=5000), "workers, got 5000"),
        (put("plan", "workers", value=4), "names worker 4, but there are 4 workers"),
        (put("plan", "workers", value="5"), "'5' must be a whole number"),
        (put("plan", "version", value=1), "does not follow"),
        (put("plan", "cells", value=[[512, 3]]), "names leaf 3, but there are 3 leaves"),
        (put("plan", "cells", value=[[511, 0]]), "add up to the 512"),
        (put("plan", "cells", value=[[10**15, 0]]), "add up to the 512"),
        (put("plan", "cells", value=[[512]]), "plan"),
        (put("plan", "cells", value=7), "plan"),
        (put("plan", "leaves", value=[]), "names leaf"),
        (put("plan", "leaves", 1, "workers", value=[]), "no workers"),
        (put("plan", "leaves", 1, "terms", "flood", value=-1), "names worker -1"),
        (put("plan", "leaves", value=[7]), "7 is not a leaf"),
        (put("plan", "leaves", 1, "worker", value=0), "unknown field 'terms'"),
        (put("plan", "frequencies", value={"a": 2**70}), "out of range"),
        (put("plan", "frequencies", value={"a": -5}), "a frequency must be at least 0, got -5"),
        (put("plan", "version", value=2**70), "out of range"),
        (put("plan", "analysis", value={}), "lacks 'stemmer'"),
        (put("plan", "analysis", value=None), "'analysis' must contain the settings, got None"),
        (put("plan", "grid", "lon_bits", value=99), "grid.lon_bits"),
        (put("plan", "grid", "lon_bits", value=6), "add up to the 1024"),
        (put("plan", "analysis", "stemmer", value="english"), "stemmer = 'english'"),
        (put("plan", "analysis", "salt", value=5), "salt = 5"),
        (put("plan", "analysis", "colour", value=5), "colour"),
        (put("plan", "frequencies", value=[1]), "plan"),
    ],
)
def test_a_wrong_file_is_refused_with_the_reason(
    change: Callable[[dict[str, Any]], Any], reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    save_plan(mixed_plan(), path)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(PlanError, match=reason):
        load_plan(path, ANALYSIS)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000, b"null"])
def test_what_is_not_json_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(content)
    with pytest.raises(PlanError, match=r"plan\.json"):
        load_plan(tmp_path / "plan.json")
    with pytest.raises(PlanError, match="No such file"):
        load_plan(tmp_path / "none.json")
    with pytest.raises(PlanError, match="directory"):
        load_plan(tmp_path)


def test_a_foreign_service_is_refused(tmp_path: Path) -> None:
    plan = mixed_plan()
    with pytest.raises(PlanError, match="another salt"):
        plan.compile(Analyzer(Analysis(salt=43)))
    with pytest.raises(PlanError, match="stemmer = None"):
        plan.compile(Analyzer(Analysis(salt=42, stemmer="english")))
    with pytest.raises(PlanError, match="5 workers; this service has 4"):
        plan.check(ANALYSIS, 4)
    save_plan(plan, tmp_path / "plan.json")
    with pytest.raises(PlanError, match="5 workers; this service has 4"):
        load_plan(tmp_path / "plan.json", ANALYSIS, 4)


@pytest.mark.parametrize("term", ["Flood", "don’t", " ", "flood river", " flood"])
def test_a_term_that_no_text_holds_is_refused(term: str) -> None:
    with pytest.raises(PlanError, match="which the text analysis turns into"):
        text_plan(ANALYSIS, GRID, 2, {term: 1}).compile(ANALYZER)


@pytest.mark.parametrize(
    "term", ["mag > 3", "mag =", "mag = 3.0", "mag ! 3", "`mag` = 3", "mag = x"]
)
def test_a_predicate_that_is_written_otherwise_is_refused(term: str) -> None:
    with pytest.raises(PlanError, match="which the text analysis turns into"):
        text_plan(ANALYSIS, GRID, 2, {term: 1}).compile(ANALYZER)
    with pytest.raises(PlanError, match="whose value is beyond"):
        text_plan(ANALYSIS, GRID, 2, {"mag = 1e999": 1}).compile(ANALYZER)


def test_units_of_attributes_have_owners_as_words_have() -> None:
    names = ['kind = "quake"', "mag EXISTS", "mag COMPARED", "`two words` = true", "flood"]
    names.append("(a = 1 AND b = 2)")
    plan = text_plan(ANALYSIS, GRID, 7, {name: i + 1 for i, name in enumerate(names)})
    plan = RoutingPlan.from_dict(json.loads(json.dumps(plan.to_dict())), ANALYSIS)
    literals = ['kind = "quake"', "mag EXISTS", "mag > 3", "`two words` = true", *names[4:]]
    terms = hash_literals(ANALYZER, literals)
    owners = plan.compile(ANALYZER).owners(np.zeros(6, np.uint32), terms)
    assert owners.tolist() == [1, 2, 3, 4, 5, 6]
    with pytest.raises(PlanError, match="is no pair of equalities"):
        text_plan(ANALYSIS, GRID, 2, {"(b = 2 AND a = 1)": 1}).compile(ANALYZER)
