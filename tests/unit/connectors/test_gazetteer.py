"""A gazetteer: the longest name on word borders, and no place where it is not clear."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ps2stream.connectors.gazetteer import Gazetteer, GazetteerPlace, read_gazetteer
from ps2stream.errors import InvalidArgument


def place(name: str, population: float = 0.0, lon: float = 0.0) -> GazetteerPlace:
    return GazetteerPlace(name, lon, 0.0, 5.0, population)


PLACES = Gazetteer(
    [
        place("York"), place("New York"), place("New York Mills"), place("Nice"), place("東京"),
        place("São Paulo"), place("Paris", 2_000_000, 2.35), place("Paris", 25_000, -95.5),
        place("Springfield", 150_000, -89.6), place("Springfield", 110_000, -93.3),
    ]
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("flood in York, now", "York"),
        ("#York", "York"),
        ("Yorkshire", None),
        ("New York is not York, New Jersey", None),  # two places
        ("in New York Mills and in New York Mills", "New York Mills"),
        ("NEW YORK", "New York"),
        ("nice weather", None),  # a name with a capital is written with one
        ("in Nice", "Nice"),
        ("地震 東京 大", "東京"),
        ("東京都", None),
        ("S\u0061\u0303o Paulo", "São Paulo"),
        ("Sao Paulo", None),
        ("Springfield", None),  # two of about one size
        ("York and Springfield", None),
        ("", None),
    ],
)
def test_the_longest_name_on_word_borders_is_the_place(text: str, name: str | None) -> None:
    found = PLACES.find(text)
    assert (found and found.name) == name


def test_the_largest_place_of_a_name_is_meant_above_the_ratio() -> None:
    found = PLACES.find("Paris")
    assert found is not None
    assert found.lon == 2.35
    two = [place("Paris", 100, 1.0), place("Paris", 10, 2.0)]
    assert Gazetteer(two, 10.0).find("Paris") is not None
    assert Gazetteer(two, 10.1).find("Paris") is None
    assert Gazetteer([place("Paris", 0, 1.0), place("Paris", 0, 2.0)]).find("Paris") is None


def test_files_of_both_kinds_are_read(tmp_path: Path) -> None:
    table = tmp_path / "places.csv"
    table.write_text("name,lat,lon,population\nYork,53.96,-1.08,150000\nLeeds,53.8,-1.5,\n")
    file = tmp_path / "places.parquet"
    columns = {"name": ["York", "Leeds"], "lat": [53.96, 53.8], "lon": [-1.08, -1.5], "id": [1, 2]}
    pq.write_table(pa.table(columns), file)
    for path in (table, file):
        found = read_gazetteer(path).find("Leeds")
        assert found == GazetteerPlace("Leeds", -1.5, 53.8, 25.0, 0.0)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("name,lat\n", "expected a column lon; there are: name, lat"),
        ("name,lat,lon\nYork,x,1\n", "place 1: lat: expected degrees in [-90, 90], got 'x'"),
        ("name,lat,lon\n,1,1\n", "place 1: name: expected 1 to 256 bytes, got ''"),
        ("name,lat,lon,radius_km\nA,1,1,-1\n", "radius_km: expected a number from 0, got '-1'"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(content: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "places.csv"
    path.write_text(content)
    with pytest.raises(InvalidArgument, match="gazetteer") as error:
        read_gazetteer(path)
    assert problem in str(error.value)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    for name in ("none.csv", "none.parquet"):
        with pytest.raises(InvalidArgument, match="cannot read"):
            read_gazetteer(tmp_path / name)
    (tmp_path / "wrong.parquet").write_bytes(b"PAR0" * 10)
    with pytest.raises(InvalidArgument, match="is no Parquet"):
        read_gazetteer(tmp_path / "wrong.parquet")
    (tmp_path / "wrong.csv").write_bytes(b"name,lat,lon\n\xff,1,1\n")
    with pytest.raises(InvalidArgument, match="is no CSV in UTF-8"):
        read_gazetteer(tmp_path / "wrong.csv")
