"""Bad and odd samples by the command, with both engines: one line, or a plan and a warning."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from ps2stream.cli import main
from ps2stream.routing.plan_file import load_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
POST = '{"text": "flood", "lon": 8.5, "lat": 47.4}\n'
COUNTED = re.compile(r"(\w+) (\d[\d,]*\d|\d)")
HERE = '{"id": "a", "expression": "flood", "region": {"circle": [8.5, 47.4, 9]}}\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: good.jsonl, 300 posts about a place; point.jsonl, as many at it;
    asked.jsonl, 40 queries there; nothing.parquet, a folder without files."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    posts = [
        {"text": ["flood", "river", "flood storm"][i % 3], "lon": 8 + x, "lat": 47 + y, "time": i}
        for i, (x, y) in enumerate(rng.normal(0, 1, (300, 2)).tolist())
    ]
    asked = [
        {"id": str(i), "expression": ["flood", "river", "storm"][i % 3]}
        | {"region": {"circle": [8 + x, 47 + y, 30]}}
        for i, (x, y) in enumerate(rng.normal(0, 1, (40, 2)).tolist())
    ]
    for name, rows in (
        ("good", posts),
        ("point", [row | {"lon": 8.5, "lat": 47.4} for row in posts]),
        ("asked", asked),
    ):
        Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("here.jsonl").write_text(HERE)
    Path("nothing.parquet").mkdir()
    return tmp_path


def plan(engine: str, *options: str) -> Result:
    # Spark's JVM stays in the folder where it was started.
    given = [str(Path(o).absolute()) if "." in o else o for o in options]
    done = CliRunner().invoke(main, ["plan", "--engine", engine, "-o", "plan.json", *given])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


REFUSED = [
    ("empty.jsonl", b"", "no objects"),
    ("blank.jsonl", b"\n \n", "no objects"),
    ("empty.csv", b"", "empty.csv"),
    ("head.csv", b"text,lon,lat\n", "no objects"),
    ("empty.parquet", b"", "empty.parquet"),
    ("text.parquet", b"hello", "text.parquet"),
    ("nothing.parquet", None, "nothing.parquet"),
    ("absent.jsonl", None, "absent.jsonl"),
    ("wrong.csv", b"foo,bar\n1,2\n", "expected a column lon"),
    ("missing.csv", b"text,lat\na,1\n", "expected a column lon"),
    ("missing.jsonl", b'{"text": "a", "lat": 1}\n', "lon: expected degrees"),
    ("nan.jsonl", b'{"text": "a", "lat": NaN, "lon": 1}\n', "lat: NaN is not a number of JSON"),
    ("nan.csv", b"text,lon,lat\na,1,nan\n", "lat: expected degrees"),
    ("inf.csv", b"text,lon,lat\na,inf,1\n", "lon: expected degrees"),
    ("null.jsonl", b'{"text": null, "lat": 1, "lon": 1}\n', "text: expected a string"),
    ("huge.jsonl", b'{"text": "a", "lat": 1, "lon": 1, "time": 1e99}\n', "time: expected"),
    ("latin.jsonl", b'{"text": "\xfc", "lat": 1, "lon": 1}\n', "'utf-8' codec can't decode"),
    ("list.json", b'[{"text": "a", "lat": 1, "lon": 1}]\n', "expected a JSON object"),
    ("pretty.json", b'{\n"text": "a"}\n', "expected one JSON object per line"),
    ("json.csv", b'{"text":"a","lat":1,"lon":1}\n', "json.csv"),
    ("short.csv", b"text,lon,lat\na,1\n", "short.csv"),
    ("long.csv", b"text,lon,lat\na,1,2,3\n", "long.csv"),
    ("packed.csv.gz", b"x", "the format is unknown"),
]


@pytest.mark.takes_turns
@pytest.mark.parametrize("engine", ["numpy", "spark"])
@pytest.mark.parametrize(("name", "content", "message"), REFUSED, ids=[r[0] for r in REFUSED])
@pytest.mark.usefixtures("folder")
def test_bad_objects_are_one_line(
    spark: SparkSession, engine: str, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        Path(name).write_bytes(content)
    done = plan(engine, "--objects", name, "--json")
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.splitlines()
    assert message in json.loads(line)["error"]["message"]
    assert not Path("plan.json").exists()


ASKED = [
    ("empty.csv", b"", "empty.csv"),
    ("empty.parquet", b"", "empty.parquet"),
    ("wrong.csv", b"foo,bar\n1,2\n", "expected a column id"),
    ("nan.jsonl", b'{"id": "a", "region": {"rect": [NaN, 0, 1, 1]}}\n', "NaN is not a number"),
    ("inf.csv", b"id,lon_min,lat_min,lon_max,lat_max\na,inf,0,1,1\n", "inf is not finite"),
    ("half.jsonl", b'{"id": "a", "expression": "flood AND"}\n', "expected a keyword"),
    ("lone.jsonl", b'{"id": "a", "expression": "\\ud800"}\n', "expected Unicode text"),
]


@pytest.mark.takes_turns
@pytest.mark.parametrize("engine", ["numpy", "spark"])
@pytest.mark.parametrize(("name", "content", "message"), ASKED, ids=[r[0] for r in ASKED])
@pytest.mark.usefixtures("folder")
def test_bad_queries_are_one_line(
    spark: SparkSession, engine: str, name: str, content: bytes, message: str
) -> None:
    Path(name).write_bytes(content)
    done = plan(engine, "--objects", "good.jsonl", "--queries", name, "--json")
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.splitlines()
    assert message in json.loads(line)["error"]["message"]


def check_what_was_collected(text: str, sample: dict[str, int]) -> None:
    """Asserts that the line on what Spark collected agrees with the sample."""
    found = re.search(
        r"^collected   ([\d,]+) rows, bounded by terms and cells, of 340 read: (.*)$",
        text,
        re.MULTILINE,
    )
    assert found
    rows = {name: int(count.replace(",", "")) for name, count in COUNTED.findall(found[2])}
    assert sum(rows.values()) == int(found[1].replace(",", ""))
    assert rows["cells"] <= sample["cells"]
    assert rows["postings"] == sample["units"]
    assert rows["units"] <= sample["units"]
    assert rows["signatures"] <= 512 * sample["cells"]
    assert rows["terms"] == 3


BY_BOTH = ("fine",)
"""What the samples of the two engines might differ by, beside what test_twins.py compares. The rest
is about plans, which are made of either sample by the same code."""
ODD = [
    ("no-queries", ["--objects", "good.jsonl"], "no queries"),
    ("one-worker", ["--workers", "1"], None),
    ("many-workers", ["--workers", "1024"], "workers have no load"),
    ("one-point", ["--objects", "point.jsonl", "--queries", "here.jsonl"], "sigma"),
    ("elsewhere", ["--objects", "good.jsonl", "--queries", "far.jsonl"], "no object has a term"),
    ("sigma", ["--sigma", "1"], "above sigma = 1"),
    ("theta", ["--theta", "1"], "sigma"),
    ("one-cell", ["--grid-bits", "0", "0"], "workers have no load"),
    ("fine", ["--grid-bits", "12", "12"], "touch more than"),
    ("costs", ["--costs", "free.json"], "a worker has no load"),
]


@pytest.mark.takes_turns
@pytest.mark.parametrize(("name", "options", "warning"), ODD, ids=[o[0] for o in ODD])
@pytest.mark.usefixtures("folder")
def test_odd_samples_are_planned_with_a_warning(
    spark: SparkSession, name: str, options: list[str], warning: str | None
) -> None:
    Path("far.jsonl").write_text(
        '{"id": "f", "expression": "flood", "region": {"rect": [100, -40, 101, -39]}}\n'
    )
    Path("free.json").write_text('{"c1": 0, "c2": 0, "c3": 0, "c4": 0}')
    if "--objects" not in options:
        options = ["--objects", "good.jsonl", "--queries", "asked.jsonl", *options]
    files = []
    for engine in ("numpy", "spark") if name in BY_BOTH else ("numpy",):
        done = plan(engine, *options)
        assert done.exit_code == 0, done.output
        files.append(Path("plan.json").read_bytes())
        made = load_plan("plan.json").made
        told = made["warnings"]
        if engine == "spark":
            check_what_was_collected(done.stdout, made["sample"])
        assert ("collected" in done.stdout) == (engine == "spark")
        assert (warning is None) == (not told), told
        assert warning is None or any(warning in line for line in told), told
        for line in told:
            assert f"warning     {line}" in done.stdout
    assert files == files[:1] * len(files)
    assert CliRunner().invoke(main, ["plan", "show", "plan.json"]).exit_code == 0


@pytest.mark.takes_turns
@pytest.mark.parametrize("engine", ["numpy", "spark"])
def test_files_of_several_formats_are_one_sample(
    spark: SparkSession, folder: Path, engine: str
) -> None:
    Path("more.csv").write_text("latitude,longitude,text\n47,8,river\n")
    rows = pa.table({"text": ["flood"] * 5, "lng": [8.0] * 5, "lat": [47.0] * 5})
    pq.write_table(rows, "more.parquet")
    files = ("good.jsonl", "more.csv", "more.parquet")
    given = [word for name in files for word in ("--objects", name)]
    done = plan(engine, *given, "--queries", "asked.jsonl", "--queries", "here.jsonl", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["sample"]["objects"] == 306
    assert ("collected" in found) == (engine == "spark")
    assert engine == "numpy" or found["collected"]["postings"] == found["sample"]["units"]


@pytest.mark.takes_turns
def test_a_folder_of_parquet_is_for_spark(spark: SparkSession, folder: Path) -> None:
    rows = pa.table({"text": ["flood"] * 5, "lon": [8.0] * 5, "lat": [47.0] * 5})
    pq.write_table(rows, "nothing.parquet/part-0.parquet")
    done = plan("spark", "--objects", "nothing.parquet", "--json")
    assert json.loads(done.stdout)["sample"]["objects"] == 5
    done = plan("numpy", "--objects", "nothing.parquet")
    assert done.exit_code == 2
    assert "Is a directory" in done.stderr
