"""Spark and its NumPy twin give the identical plan file, and the same errors."""

from __future__ import annotations

import csv
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ps2stream.client.client import Client
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import InvalidArgument, PlanError
from ps2stream.language.analyzer import Analysis
from ps2stream.planner import job
from ps2stream.planner import spark as engine
from ps2stream.planner.recent import together
from ps2stream.planner.spark_rest import RestSampling
from ps2stream.routing.plan_file import load_plan, save_plan
from ps2stream.space.grid import Grid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
WORDS = [
    "flood",
    "river",
    "😀",
    "👩‍👩‍👧",
    "don't",
    "Straße",
    "東京",
    "ﬁre",
    "e\u0301te",
    "a\u200db",
]
KINDS = ["quake", "fire", "fire", 'a "b"']


def objects(rng: np.random.Generator, n: int) -> list[dict[str, Any]]:
    lon, lat = rng.normal(0, 40, n).clip(-180, 180), rng.normal(0, 20, n).clip(-90, 90)
    lon[: n // 20], lat[: n // 40] = 180.0, 90.0
    return [
        {"text": " ".join(rng.choice(WORDS, rng.integers(0, 6))), "lon": x, "lat": y, "ts": t}
        | {"kind": str(rng.choice(KINDS))}
        for t, (x, y) in enumerate(zip(lon.tolist(), lat.tolist(), strict=True))
    ]


def queries(rng: np.random.Generator, n: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for i in range(n):
        west, south, side = rng.uniform(-170, 100), rng.uniform(-80, 20), rng.choice([0, 1, 5, 70])
        words = " OR ".join(rng.choice(WORDS, rng.integers(1, 4)))
        if rng.random() < 0.3:
            words = f"({words}) AND kind = {json.dumps(rng.choice(KINDS))}"
        if rng.random() < 0.3:
            words = f"({words}) AND river"
        rect = [float(west), float(south), float(west + side), float(south + side)]
        row = {"id": f"q{i % (n - 9)}", "expression": words, "region": {"rect": rect}}
        rows.append(row | {"op": "insert", "time": int(rng.integers(0, 90))})
        if rng.random() < 0.4:
            id_ = f"q{rng.integers(0, n)}"
            rows.append({"id": id_, "op": "delete", "time": int(rng.integers(0, 90))})
    rows.append({"id": "everything", "expression": "flood"})
    rows.append({"id": "round", "region": {"circle": [179.9, 0, 80]}})
    return rows


def jsonl(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)


def planned(
    spark: SparkSession, folder: Path, objects: list[str], queries: list[str], **options: Any
) -> Path:
    """The plan of both engines, which are the same file."""
    found = []
    for name in ("numpy", "spark"):
        work = job.PlanJob(objects, queries, workers=3, engine=name, **options)
        save_plan(job.run(work), path := folder / f"{name}.json")
        found.append(path)
    assert found[0].read_bytes() == found[1].read_bytes()
    load_plan(found[0])
    return found[0]


@pytest.mark.takes_turns
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_and_hostile_samples(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """One of them by the algorithm that needs the rows, one with most units summed by cell."""
    rng = np.random.default_rng(seed)
    posts = jsonl(tmp_path / "o.jsonl", objects(rng, 600))
    asked = jsonl(tmp_path / "q.jsonl", queries(rng, 80))
    options: dict[int, dict[str, Any]] = {
        1: {"refine": True},
        2: {"stemmer": "english", "algorithm": "hybrid-paper"},
        3: {"max_units": 40, "algorithm": "metric", "grid": Grid(4, 3)},
    }
    path = planned(spark, tmp_path, [posts], [asked], **options[seed])
    made = json.loads(path.read_text("utf-8"))["plan"]["made"]
    assert made["sample"]["objects"] == 600
    assert made["sample"]["units"] > 50 if seed < 3 else made["sample"]["rest"]["error"] > 0
    assert made["sample"]["deletes"] > 5
    assert made["sample"]["coarse"] > 0
    assert len(made["predicted"]["loads"]) == 3


@pytest.mark.takes_turns
def test_formats_are_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows, asked = objects(rng, 300), queries(rng, 40)
    flat = [row | {"region": json.dumps(row.get("region", ""))} for row in asked]
    files = {"jsonl": (jsonl(tmp_path / "o.jsonl", rows), jsonl(tmp_path / "q.jsonl", asked))}
    for kind in ("csv", "parquet"):
        files[kind] = (str(tmp_path / f"o.{kind}"), str(tmp_path / f"q.{kind}"))
    rows[7]["text"] = files_text = 'a "quoted",\nriver'
    files["jsonl"] = (jsonl(tmp_path / "o.jsonl", rows), files["jsonl"][1])
    assert files_text in rows[7]["text"]
    for path, table in zip(files["csv"], (rows, flat), strict=True):
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            names = ["id", "expression", "region", "op", "time"] if table is flat else list(rows[0])
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(table)
    stamps = pa.array([row["ts"] for row in rows], pa.timestamp("ms"))
    table = pa.Table.from_pylist(rows)
    pq.write_table(table.set_column(3, "ts", stamps), files["parquet"][0])
    pq.write_table(pa.Table.from_pylist(flat), files["parquet"][1])
    plans = {
        kind: planned(spark, tmp_path, [posts], [asked_]).read_bytes()
        for kind, (posts, asked_) in files.items()
    }
    assert plans["jsonl"] == plans["csv"] == plans["parquet"]


@pytest.mark.takes_turns
def test_one_point_no_queries_and_queries_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    here = [{"text": "flood river", "lon": 8.5, "lat": 47.4, "ts": i} for i in range(700)]
    point = jsonl(tmp_path / "point.jsonl", here)
    near = jsonl(
        tmp_path / "near.jsonl",
        [
            {"id": str(i), "expression": "flood", "region": {"circle": [8.5, 47.4, 5]}}
            for i in (1, 2)
        ],
    )
    far = jsonl(
        tmp_path / "far.jsonl",
        [{"id": "f", "expression": "flood", "region": {"rect": [100, -40, 101, -39]}}],
    )
    for files, warning in (
        ([near], "sigma"), ([], "no queries"), ([far], "no object has a term")
    ):  # fmt: skip
        plan = load_plan(planned(spark, tmp_path, [point], files))
        assert any(warning in text for text in plan.made["warnings"]), plan.made["warnings"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("far.csv", "text,lon,lat\na,1,91\n", "lat: expected degrees in"),
        ("none.csv", "lon,lat\n1,2\n", "expected a column text"),
        ("plain.txt", "a", "the format is unknown"),
    ],
)
def test_bad_objects(
    spark: SparkSession, tmp_path: Path, name: str, content: str, message: str
) -> None:
    """More of them go through the command: test_bad_input.py."""
    path = tmp_path / name
    path.write_text(content, "utf-8")
    for kind in ("numpy", "spark"):
        with pytest.raises((InvalidArgument, PlanError), match=message):
            job.run(job.PlanJob([str(path)], [], engine=kind))


def test_bad_parquet_values_and_types(spark: SparkSession, tmp_path: Path) -> None:
    nan = tmp_path / "nan.parquet"
    pq.write_table(pa.table({"text": ["a"], "lon": [np.nan], "lat": [1.0]}), nan)
    words = tmp_path / "words.parquet"
    pq.write_table(pa.table({"text": ["a"], "lon": ["1"], "lat": [1.0]}), words)
    for path, message in ((nan, "expected degrees in"), (words, "expected numbers, got string")):
        for kind in ("numpy", "spark"):
            with pytest.raises(InvalidArgument, match=message):
                job.run(job.PlanJob([str(path)], [], engine=kind))


@pytest.mark.takes_turns
def test_bad_queries(spark: SparkSession, tmp_path: Path) -> None:
    posts = jsonl(tmp_path / "o.jsonl", objects(np.random.default_rng(1), 10))
    for row, message in (
        ({"id": "q", "expression": "a AND"}, "query 'q' expression: column 6: expected a keyword"),
        ({"id": "q", "op": "delete"}, "expected the time of the delete"),
        ({"id": "q"}, "a query needs an expression or a region"),
        ({"id": "q", "region": {"circle": [0, 0, -1]}}, "region.radius_km"),
    ):
        asked = jsonl(tmp_path / "q.jsonl", [row])
        for kind in ("numpy", "spark"):
            with pytest.raises(InvalidArgument, match=message):
                job.run(job.PlanJob([posts], [asked], engine=kind))


@pytest.mark.takes_turns
def test_the_sample_of_a_service(spark: SparkSession, tmp_path: Path) -> None:
    settings = Settings(
        runtime="local", port=0, workers=1, dispatchers=2, data_dir=tmp_path / "data",
        sample_objects=400,
    )  # fmt: skip
    rng = np.random.default_rng(6)
    samples = []
    with start(settings) as service:
        for target, n in zip(service.targets, (6000, 300), strict=True):
            with Client(target, timeout=90) as client:
                client.insert("everything", "flood")
                rows = [
                    {("time" if k == "ts" else k): v for k, v in row.items() if k != "kind"}
                    | {"attributes": {"kind": row["kind"]}}
                    for row in objects(rng, n)
                ]
                for first in range(0, n, 300):
                    client.publish(rows[first : first + 300])
                samples.append(client.sample())
    assert samples[0]["weight"].to_pylist()[-1] > samples[1]["weight"].to_pylist()[-1] == 1
    posts = together(samples).to_batches()
    asked = jsonl(tmp_path / "q.jsonl", queries(rng, 60))
    path = planned(spark, tmp_path, [], [asked], posts=posts)
    made = json.loads(path.read_text("utf-8"))["plan"]["made"]
    assert made["sample"]["objects"] == sum(map(len, posts)) < 450


@pytest.mark.takes_turns
def test_more_units_than_the_limit_stay_with_the_executors(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And below it nothing is summed."""
    limits: list[int] = []
    separate = RestSampling.separate

    def note(self: RestSampling, *args: Any) -> Any:
        limits.append(args[-1])
        return separate(self, *args)

    monkeypatch.setattr(RestSampling, "separate", note)
    rng = np.random.default_rng(8)
    files = engine.SampleFiles(
        [jsonl(tmp_path / "o.jsonl", objects(rng, 200))],
        [jsonl(tmp_path / "q.jsonl", queries(rng, 40))],
    )
    for limit in (30, 10**6):
        found = engine.take(spark, files, Analysis(0), Grid(4, 3), max_units=limit)
        assert limits == [30]
        assert (found.rest > 0) == (limit == 30)
        assert found.collected["postings"] <= limit
        assert found.collected.get("rest", 0) <= found.stats.cells


@pytest.mark.takes_turns
def test_ten_times_the_rows_collect_no_more(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(5)
    places = [(float(x), float(y)) for x in range(3) for y in range(3)]
    asked = jsonl(
        tmp_path / "q.jsonl",
        [
            {"id": w, "expression": w, "region": {"rect": [-1, -1, 4, 4]}}
            for w in ("flood", "river")
        ],
    )
    found = []
    for n in (6000, 60000):
        rows = pa.table(
            {
                "lon": [places[i % 9][0] for i in range(n)],
                "lat": [places[i % 9][1] for i in range(n)],
                "text": rng.choice(["flood", "river", "flood river"], n),
                "time": np.arange(n),
            }
        )
        pq.write_table(rows, path := tmp_path / f"{n}.parquet")
        caplog.clear()
        with caplog.at_level(logging.INFO, engine.__name__):
            job.run(job.PlanJob([str(path)], [asked], grid=Grid(9, 8)))
        (record,) = [r for r in caplog.records if r.name == engine.__name__]
        found.append((vars(record)["rows_read"], vars(record)["rows_collected"]))
    assert [read["objects"] for read, _ in found] == [6000, 60000]
    assert found[0][1] == found[1][1]
    assert found[1][1]["signatures"] == 9 * 512
