"""The experiment on a moving stream."""

from __future__ import annotations

from ps2stream.experiments import f16


def test_the_longest_run_is_told() -> None:
    assert f16.longest([True, False, True, True, False]) == 2
    assert f16.longest([]) == 0
