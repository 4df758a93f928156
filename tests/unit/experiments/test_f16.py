"""The experiment on a moving stream."""

from __future__ import annotations

import pytest

from ps2stream.experiments import f16
from ps2stream.experiments.report import IDLE
from ps2stream.planner.adjust.decide import Rules


def test_the_longest_run_is_told() -> None:
    assert f16.longest([True, False, True, True, False]) == 2
    assert f16.longest([]) == 0


@pytest.mark.parametrize(("moves", "balances", "want"), [
    (0, [1.1, 1.1], [IDLE, IDLE]), (2, [1.1, 1.1], ["missed", "met"]),
    (0, [1.5] * 5, [IDLE, "missed"]),
])  # fmt: skip
def test_without_a_move_there_is_no_verdict_on_moves(
    moves: int, balances: list[float], want: list[str]
) -> None:
    periods = [{"balance_adjusted": b} for b in balances]
    row = {"stream": "one", "gain": 1.0, "kernel_gain": 1.0, "moves": moves, "periods": periods}
    assert [v.verdict for v in f16.verdicts([row], Rules())] == want
