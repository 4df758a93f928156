"""The dispatchers' sample of recent objects."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from ps2stream.dispatcher.reservoir import JOINED, WINDOW_MS, ObjectReservoir
from ps2stream.protocol.frame import column_to_strings, strings_to_column
from ps2stream.protocol.rows import ObjectRows


def rows(first: int, n: int) -> ObjectRows:
    ids = strings_to_column([str(i) for i in range(first, first + n)])
    texts = strings_to_column([f"text {i}" for i in range(first, first + n)])
    at = np.arange(first, first + n, dtype=np.float64) / 1e6
    return ObjectRows(
        *ids, np.arange(first, first + n), at, -at, *texts, np.arange(n + 1), np.zeros(n, np.uint64)
    )


def test_a_few_objects_are_all_kept_whole() -> None:
    reservoir = ObjectReservoir(100)
    reservoir.add(rows(0, 3), 10)
    reservoir.add(rows(3, 2), 20)
    found = reservoir.sample()
    assert column_to_strings(found.id_off, found.id) == ["0", "1", "2", "3", "4"]
    assert column_to_strings(found.text_off, found.text) == [f"text {i}" for i in range(5)]
    assert found.time.tolist() == [0, 1, 2, 3, 4]
    assert found.lon.tolist() == [i / 1e6 for i in range(5)]
    assert found.lat.tolist() == [-i / 1e6 for i in range(5)]
    assert found.weight.tolist() == [1.0] * 5
    assert found.accepted.tolist() == [10] * 3 + [20] * 2
    assert found.since == 0


def test_it_is_bounded_and_its_weights_add_up_to_the_stream() -> None:
    reservoir, n = ObjectReservoir(1000, seed=3), 200_000
    for first in range(0, n, 500):
        reservoir.add(rows(first, 500), first // 1000)
        assert len(reservoir) <= 1000
    found = reservoir.sample()
    assert len(found.weight) == len(reservoir) > 400
    assert found.weight.sum() == pytest.approx(n, rel=0.15)
    # Early and late objects have the same chance.
    assert np.mean(found.time) == pytest.approx(n / 2, rel=0.1)


def test_many_small_batches_of_a_second_are_kept_together() -> None:
    second = WINDOW_MS // JOINED
    reservoir, n = ObjectReservoir(100_000), 3_000
    for i in range(n):  # of three seconds
        reservoir.add(rows(2 * i, 2), 3 * second * i // n)
    held = reservoir.held()
    assert 3 <= len(held.parts) <= 4
    found = held.joined()
    assert found.time.tolist() == [*range(2 * n)]
    assert found.accepted.tolist() == [3 * second * (i // 2) // n for i in range(2 * n)]
    assert all(np.ptp(part.accepted) <= second for part in held.parts)
    assert len(reservoir) == 2 * n


@pytest.mark.takes_turns
def test_small_batches_have_the_same_chance_as_large_ones() -> None:
    """Also where the chance changes between the batches of a second."""
    kept = np.zeros(4)
    for seed in range(60):
        reservoir = ObjectReservoir(100, seed)
        for first in range(0, 2_000, 4):
            reservoir.add(rows(first, 4), first // 400)
        found = reservoir.sample()
        assert len(found.weight) == len(reservoir) <= 100
        assert found.weight.sum() == pytest.approx(2_000, rel=0.6)
        kept += np.bincount(found.time // 500, minlength=4)
    assert kept.sum() > 2_500
    assert kept / kept.sum() == pytest.approx(np.full(4, 0.25), abs=0.04)


def test_what_is_older_than_the_window_goes_first() -> None:
    reservoir = ObjectReservoir(1000, window_ms=100)
    reservoir.add(rows(0, 900), 0)
    reservoir.add(rows(900, 900), 150)
    found = reservoir.sample()
    assert found.time.tolist() == list(range(900, 1800))
    assert found.since == 1  # the 900 that are gone came at 0
    assert found.take(np.arange(3)).since == 1


def test_what_is_recent_is_of_the_window_though_more_is_held() -> None:
    reservoir = ObjectReservoir(1000, window_ms=100)
    reservoir.add(rows(0, 5), 0)
    reservoir.add(rows(5, 5), 150)
    assert len(reservoir) == 10
    now = reservoir.recent(200).joined()
    assert (now.time.tolist(), now.since) == (list(range(5, 10)), 100)
    both = reservoir.recent(90).joined()
    assert (both.time.tolist(), both.since) == (list(range(10)), 0)
    quiet = reservoir.recent(10_000).joined()  # nothing else is known
    assert (quiet.time.tolist(), quiet.since) == (list(range(10)), 0)


def test_after_a_flood_the_chance_rises_again() -> None:
    reservoir = ObjectReservoir(100, seed=4, window_ms=10)
    for k in range(50):
        reservoir.add(rows(1000 * k, 1000), k)
    for k in range(200):
        reservoir.add(rows(10**6 + 10 * k, 10), 10_000 + 50 * k)
    found = reservoir.sample()
    assert found.weight[-1] < 10
    assert found.weight.max() <= 2048


def test_a_capacity_of_nothing_keeps_nothing() -> None:
    reservoir = ObjectReservoir(0)
    reservoir.add(rows(0, 3), 10)
    assert len(reservoir) == 0
    assert len(reservoir.sample().lon) == 0


def test_long_texts_are_bounded_in_bytes_and_stand_for_the_stream() -> None:
    reservoir, n = ObjectReservoir(1000, seed=3, most_bytes=1 << 20), 4_000
    for first in range(0, n, 20):
        part = rows(first, 20)
        text_off, text = strings_to_column(["long " * 2_000] * 20)
        part = dataclasses.replace(part, text_off=text_off, text=text)
        reservoir.add(part, first)
        assert reservoir.sample().nbytes <= 1 << 20
    found = reservoir.sample()
    assert len(found.weight) > 40
    assert found.weight.sum() == pytest.approx(n, rel=0.3)
    for first in range(n, 2 * n, 20):  # once these are of yesterday, short ones fill it again
        reservoir.add(rows(first, 20), 2 * WINDOW_MS + first)
    assert len(reservoir) > 400


@pytest.mark.parametrize(("rows", "chance"), [(1, 0.5), (3, 0.25), (40, 0.5), (5, 1 / 64)])
def test_counts_are_drawn_as_of_a_binomial_distribution(rows: int, chance: float) -> None:
    reservoir = ObjectReservoir(10, seed=1)
    reservoir._chance = chance
    n = 40_000
    found = np.bincount([reservoir._draw_count(rows) for _ in range(n)], minlength=rows + 1)
    for count, times in enumerate(found.tolist()):
        p = math.comb(rows, count) * chance**count * (1 - chance) ** (rows - count)
        assert abs(times - n * p) <= 5 * math.sqrt(n * p * (1 - p)) + 5
