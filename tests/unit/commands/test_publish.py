"""What `publish` says of members that are no attributes, or not of the type that was meant."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.commands.moments import parse_end, read_end
from ps2stream.commands.output import CommandOutput
from ps2stream.commands.publish import set_ends
from ps2stream.errors import InvalidArgument

ADVICE = "ps2stream: columns of CSV are published as text; for numbers: --attributes"


class ClientStub:
    """Takes what is published."""

    def publish(self, objects: Any) -> None:
        assert objects


@contextmanager
def connect(*_: Any) -> Any:
    yield ClientStub()


@pytest.mark.parametrize(
    ("suffix", "text", "said"),
    [
        ("csv", "lat,lon,text,mag\n1,2,x,high\n", ""),
        ("csv", "lat,lon,text\n1,2,x\n", ""),
        (
            "csv",
            "lat,lon,text,mag,at\n1,2,x,4.5,now\n",
            f"{ADVICE} mag:number,at\n",
        ),
        (
            "jsonl",
            '{"lat": 1, "lon": 2, "text": "x", "a\\nb": [], "c": {}, "mag": "4.5"}',
            "ps2stream: left out, as no attributes: a b (an array), c (an object)\n",
        ),
    ],
)
def test_notes_go_to_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, text: str, said: str
) -> None:
    monkeypatch.setattr(CommandOutput, "connect", connect)
    path = tmp_path / f"posts.{suffix}"
    path.write_text(text)
    done = CliRunner().invoke(main, ["publish", str(path)])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("published 1 object")
    assert done.stderr == said
    done = CliRunner().invoke(main, ["publish", str(path), "--attributes", "x:y"])
    assert (done.exit_code, "attributes.x: expected a type of" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    "kind",
    [
        pa.int64(), pa.int32(), pa.uint64(), pa.timestamp("s"), pa.timestamp("ms", "UTC"),
        pa.timestamp("us"), pa.timestamp("ns", "Europe/Berlin"),
    ],
)  # fmt: skip
def test_rows_of_parquet_without_an_end_get_one(kind: pa.DataType) -> None:
    per_ms = {"s": 0.001, "us": 1000, "ns": 1_000_000}.get(getattr(kind, "unit", "ms"), 1)
    given = int(7_000 * per_ms) + (per_ms > 1)  # perhaps finer than a millisecond
    column = pa.array([given, None], pa.uint64() if kind == pa.uint64() else pa.int64())
    column = column.cast(pa.int32()) if kind == pa.int32() else column.cast(kind)
    part = set_ends(pa.record_batch({"lon": [1.0, 2.0], "until": column}), 9_000)
    assert part.column("until").to_pylist() == [7_000, 9_000]


def test_ends_of_files_and_of_options_are_explained_each_by_itself() -> None:
    for text in ("yesterday", "2 h", "-2h", "1.5h", ""):
        with pytest.raises(InvalidArgument, match="expected a duration such as 90m"):
            parse_end("--until", text)
    for value in ("2h", "soon", True, 1.5):
        with pytest.raises(InvalidArgument, match="expected Unix milliseconds, or a time as ISO"):
            read_end("line 3 until", value)
    for text in ("9" * 5_000 + "s", "9" * 12 + "w"):
        with pytest.raises(InvalidArgument, match="is too long"):
            parse_end("--until", text)


def test_an_end_at_a_time_of_day_names_its_time_zone() -> None:
    for text in ("2031-01-01T23:00", "2031-01-01 23:00:00.5", "20310101T2300", "2031-W01-3T23:00"):
        with pytest.raises(InvalidArgument, match="it has no time zone; write Z"):
            parse_end("--until", text)
        assert parse_end("--until", f"{text}+02:00") == parse_end("--until", f"{text}Z") - 7_200_000
    assert parse_end("--until", "2031-01-01") == 1_924_992_000_000
