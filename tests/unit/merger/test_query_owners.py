"""The sessions that own queries."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.merger import query_owners
from ps2stream.merger.query_owners import QueryOwners


@pytest.mark.parametrize("fold", [1, 10, 1 << 16])
def test_each_number_is_found_once_and_they_rise(
    monkeypatch: pytest.MonkeyPatch, fold: int
) -> None:
    monkeypatch.setattr(query_owners, "FOLD", fold)
    rng = np.random.default_rng(fold)
    owners, expected = QueryOwners(), set[int]()
    assert owners.find().tolist() == []
    for _ in range(20):
        session = rng.integers(0, 50, rng.integers(0, 9))
        owners.add(session)
        expected |= set(session.tolist())
        assert sum(map(len, owners._fresh)) <= fold
        if rng.random() < 0.3:
            assert owners.find().tolist() == sorted(expected)
    assert owners.find().tolist() == sorted(expected)
