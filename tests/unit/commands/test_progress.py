"""What a long command says where there is no terminal."""

from __future__ import annotations

import time

import pytest

from ps2stream.commands.output import CommandOutput
from ps2stream.commands.progress import StepReporter


def test_each_step_is_a_line_and_a_long_one_is_said_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = ""
    with StepReporter(CommandOutput(), still_s=0.01) as tell:
        tell("counting [all] of them")
        while "still" not in said:
            time.sleep(0.01)
            said += capsys.readouterr().err
    assert said.splitlines()[0].endswith(" s  counting [all] of them")
    assert said.splitlines()[1].endswith(" s  still counting [all] of them")


def test_with_json_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    output = CommandOutput()
    output.json = True
    with StepReporter(output, still_s=0.001) as tell:
        tell("counting")
        time.sleep(0.05)
    assert capsys.readouterr() == ("", "")
