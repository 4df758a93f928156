"""The experiments on keyed streams: their verdicts, and short runs of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ps2stream.experiments import fish_time, pkg_imbalance, pkg_local, pkg_zipf
from ps2stream.experiments.keyed.streams import FILES, PATHS, ROUTES, WORDS
from ps2stream.experiments.plans import ExperimentSettings
from ps2stream.experiments.report import ClaimVerdict
from ps2stream.experiments.suite import EXPERIMENTS, run

NAMES = [name for name in EXPERIMENTS if name.startswith(("pkg-", "fish-"))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small streams in the place of the shared ones."""
    made = tmp_path_factory.mktemp("streams")
    rng = np.random.default_rng(1)
    for name in (WORDS, PATHS, ROUTES):
        keys = [f"k{i}" for i in np.minimum(rng.zipf(1.4, 3000), 200)]
        other = [f"k{i}" for i in rng.integers(0, 50, 3000)]
        columns = {"key": pa.array(keys).dictionary_encode(),
                   "destination": pa.array(other).dictionary_encode()}  # fmt: skip
        pq.write_table(pa.table(columns), made / FILES[name])
    return made


@pytest.fixture(autouse=True)
def smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer keys for what is drawn."""
    monkeypatch.setattr(pkg_zipf, "KEYS", (1000, 20_000))
    monkeypatch.setattr(pkg_zipf, "MANY", 20_000)
    monkeypatch.setattr(
        "ps2stream.experiments.keyed.streams.LIKE",
        {"like WP": (5000, 0.0932), "like TW": (9000, 0.0267)},
    )


@pytest.mark.takes_turns
@pytest.mark.parametrize("name", NAMES)
def test_a_short_run_has_rows_verdicts_and_a_picture(
    name: str, folder: Path, tmp_path: Path
) -> None:
    settings = ExperimentSettings(workers=(4, 16), tuples=6000, streams=str(folder))
    report = run(name, settings)
    assert report.name == name
    assert report.rows
    assert report.verdicts
    assert all(set(report.columns) <= set(row) for row in report.rows)
    assert any("tuples assigned in" in note for note in report.notes)
    data, picture = report.save(tmp_path)
    assert len(json.loads(data.read_text())["rows"]) == len(report.rows)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_runs_with_one_seed_are_the_same() -> None:
    settings = ExperimentSettings(workers=(4,), tuples=3000)

    def rows(name: str) -> Any:
        return run(name, settings).rows

    for name in ("pkg-imbalance", "fish-ring"):
        assert rows(name) == rows(name)


def verdict_of(verdicts: list[ClaimVerdict], claim: str) -> str:
    (found,) = [v.verdict for v in verdicts if v.claim.startswith(claim)]
    return found


def imbalance_row(scheme: str, workers: int, fraction: float, least: float = 0.0) -> dict[str, Any]:
    return {"stream": "x", "scheme": scheme, "workers": workers, "fraction": fraction,
            "p1": 0.1, "least": least, "tuples": 1000}  # fmt: skip


def test_imbalance_is_judged_against_other_schemes_and_the_bound() -> None:
    rows = [imbalance_row("PKG", 5, 1e-6), imbalance_row("PKG", 50, 0.04, 0.03)]
    rows += [imbalance_row(s, n, f) for s in ("hash", "PoTC") for n, f in ((5, 0.1), (50, 0.2))]
    rows += [imbalance_row("Off-Greedy", 5, 0.0), imbalance_row("Off-Greedy", 50, 0.03)]
    found = pkg_imbalance.list_verdicts(rows)
    assert verdict_of(found, "x: imbalance of PKG over that of hash") == "met"
    assert verdict_of(found, "x: imbalance of PKG over that of Off-Greedy") == "partly"
    assert verdict_of(found, "x: PKG while p1 <= 1/W") == "met"
    assert verdict_of(found, "x: PKG beyond W = 2/p1 = 20") == "missed"


def test_choices_that_restore_balance_are_judged_by_the_papers() -> None:
    rows = [
        {"keys": pkg_zipf.MANY, "z": 1.2, "workers": n, "choices": d, "least": 0.0,
         "fraction": 0.0 if d >= enough else 0.1}
        for n, enough in ((5, 2), (40, 9), (50, 99)) for d in pkg_zipf.CHOICES
    ]  # fmt: skip
    found = pkg_zipf.list_verdicts(rows, ())
    assert verdict_of(found, "5 workers, z = 1.2") == "fewer"
    assert verdict_of(found, "40 workers, z = 1.2") == "holds"
    assert verdict_of(found, "50 workers, z = 1.2") == "missed"


def test_a_scheme_is_faster_if_it_is_so_somewhere_and_slower_nowhere() -> None:
    def rows(*done: float) -> list[dict[str, Any]]:
        return [
            {"stream": "git paths", "workers": n, "scheme": scheme, "time": 1.0, "mean_delay": 1.0,
             "held": 1.0, "held_done": 1.0,
             "done": d if scheme == "PKG" else 1.0}
            for n, d in enumerate(done, 1) for scheme in (*fish_time.SCHEMES, *fish_time.UNEVEN)
        ]  # fmt: skip

    claim = "git paths, time: PKG over FISH"
    judge = fish_time.list_verdicts
    assert verdict_of(judge(rows(1.0, 1.5)), claim) == "holds"
    assert verdict_of(judge(rows(1.0, 1.01)), claim) == "equal"
    assert verdict_of(judge(rows(0.5, 1.0)), claim) == "reversed"
    assert verdict_of(judge(rows(0.5, 1.5)), claim) == "mixed"


def test_local_estimation_is_judged_by_an_order_of_magnitude() -> None:
    names = ("G", "H", "L5", "L10", "L15", "L20", "L5P1")
    rows = [
        {"stream": "x", "workers": 5, "estimator": name, "average": 1e-3, "worst": 1.0,
         "tuples": 1000, "jaccard": 0.5, "agree": 0.6, "over_global": 2.0 + 9.0 * (name == "L20")}
        for name in names
    ]  # fmt: skip
    found = pkg_local.list_verdicts(rows)
    assert verdict_of(found, "x: average imbalance of L5 over") == "met"
    assert verdict_of(found, "x: average imbalance of L20 over") == "missed"
