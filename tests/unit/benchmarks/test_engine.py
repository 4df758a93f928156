"""What the benchmark command reads from a yardstick."""

from __future__ import annotations

from pathlib import Path

import pytest

from ps2stream.benchmarks.engine import yardstick_rate
from ps2stream.errors import InvalidArgument


def test_a_yardstick_named_by_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    script = tmp_path / "there" / "engine.py"
    script.write_text("import sys\nprint(sys.argv[1], 'tuples/s min 1 max 3 m/o 9.5')\n")
    monkeypatch.chdir(tmp_path)
    found = yardstick_rate("there/engine.py", 2)
    assert found == {"tuples_per_second": 2, "min": 1, "max": 3, "matches_per_object": 9.5}


def test_a_yardstick_that_prints_no_rate_is_named_with_what_it_said(tmp_path: Path) -> None:
    script = tmp_path / "engine.py"
    script.write_text("print('nothing')\n")
    with pytest.raises(InvalidArgument, match="printed no rate: nothing"):
        yardstick_rate(str(script), 2)
