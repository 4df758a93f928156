"""Samples of several dispatchers as one: in proportion to what each accepted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ps2stream.planner.objects import OBJECTS
from ps2stream.planner.recent import copies, together
from ps2stream.posts.sample import SAMPLE, SINCE
from ps2stream.protocol.frame import F64


def sample(name: str, weight: list[float], since: int = 0, first: int = 0) -> Any:
    """Rows named `name`, one accepted each millisecond from `first`."""
    n = len(weight)
    columns = {
        "id": [f"{name}{i}" for i in range(n)],
        "time": np.arange(n),
        "lon": np.zeros(n),
        "lat": np.zeros(n),
        "text": [name] * n,
        "weight": weight,
        "accepted": np.arange(first, first + n),
        "attributes": [b""] * n,
    }
    table = pa.table(columns, schema=SAMPLE)
    return table.replace_schema_metadata({SINCE: str(since)})


def counts(found: Any) -> dict[str, int]:
    assert found.schema == OBJECTS
    words, many = np.unique(np.array(found["text"].to_pylist(), object), return_counts=True)
    return dict(zip(words.tolist(), many.tolist(), strict=True))


def test_equal_weights_are_the_rows_themselves() -> None:
    rows = sample("a", [4.0] * 50)
    found = together([rows, sample("b", [4.0] * 30)])
    assert counts(found) == {"a": 50, "b": 30}
    assert found["id"].to_pylist()[:50] == rows["id"].to_pylist()


def test_a_busy_dispatcher_counts_for_what_it_accepted() -> None:
    found = counts(together([sample("a", [64.0] * 1000), sample("b", [1.0] * 6400)]))
    assert found["a"] == 1000
    assert found["b"] == pytest.approx(100, abs=30)


def test_a_few_heavy_rows_do_not_cost_the_rest() -> None:
    found = counts(together([sample("a", [512.0] * 3), sample("b", [1.0] * 4000)]))
    assert found == {"a": 3 * 512, "b": 4000}


@pytest.mark.parametrize("seed", range(3))
def test_shares_are_those_of_the_weights_and_no_more_than_twice_the_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tables = [
        sample(name, (2.0 ** rng.integers(0, 9, n)).tolist())
        for name, n in (("a", 3000), ("b", 1000), ("c", 5000))
    ]
    found = counts(together(tables, seed))
    assert sum(found.values()) <= 2 * 9000
    whole = sum(t["weight"].to_numpy().sum() for t in tables)
    for name, table in zip("abc", tables, strict=True):
        share = table["weight"].to_numpy().sum() / whole
        assert found[name] / sum(found.values()) == pytest.approx(share, rel=0.1)


def test_only_the_period_that_all_cover_is_compared() -> None:
    busy = sample("a", [1.0] * 100, since=1000, first=1000)
    quiet = sample("b", [1.0] * 1050)
    assert counts(together([busy, quiet])) == {"a": 100, "b": 50}
    assert counts(together([quiet])) == {"b": 1050}


def test_no_objects_anywhere() -> None:
    assert together([sample("a", []), sample("b", [])]).num_rows == 0


@pytest.mark.parametrize("seed", range(3))
def test_copies_stand_for_equally_many_objects(seed: int) -> None:
    """Half of the objects are in rows of the middle weight or less; fractions average out."""
    drawn = np.random.default_rng(seed).integers(0, 6, 5000)
    weight: F64 = np.exp2(drawn.astype(np.float64))
    times = copies(weight, seed)
    rising = np.sort(weight)
    middle = next(w for w in rising.tolist() if 2 * rising[rising <= w].sum() >= rising.sum())
    assert (np.abs(times - weight / middle) < 1).all()
    assert times.sum() == pytest.approx(weight.sum() / middle, rel=0.03)
    assert times.sum() <= 2 * len(weight)
    assert np.array_equal(times, copies(weight, seed))
    assert copies(np.zeros(0)).tolist() == []
