"""The yardstick's runs: how it is started, and what is read from its output."""

from __future__ import annotations

from pathlib import Path

import pytest

from ps2stream.benchmarks.yardstick import (
    YardstickRuns,
    describe_runs,
    measure_speed,
    open_yardstick,
)
from ps2stream.errors import InvalidArgument


def test_a_yardstick_named_by_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    script = tmp_path / "there" / "engine.py"
    script.write_text("import sys\nprint(sys.argv[1], 'tuples/s min 1 max 3 m/o 9.5')\n")
    monkeypatch.chdir(tmp_path)
    with open_yardstick("there/engine.py", 2) as yardstick:
        found = yardstick.run()
    assert found == {"tuples_per_second": 2, "min": 1, "max": 3, "matches_per_object": 9.5}


def test_nothing_is_written_in_its_folder(tmp_path: Path) -> None:
    """It may be read-only: modules are not compiled into it, and Numba has another cache."""
    (tmp_path / "beside.py").write_text("RATE = 5\n")
    script = tmp_path / "engine.py"
    script.write_text(
        "import os, pathlib, beside\n"
        "cache = pathlib.Path(os.environ['NUMBA_CACHE_DIR'])\n"
        "assert cache.is_dir() and cache != pathlib.Path.cwd() == pathlib.Path(__file__).parent\n"
        "(cache / 'compiled').open('a').write('x')\n"
        "print(beside.RATE, 'tuples/s min 1 max', (cache / 'compiled').stat().st_size, 'm/o 1')\n"
    )
    with open_yardstick(str(script), 2) as yardstick:
        assert [yardstick.run()["max"], yardstick.run()["max"]] == [1, 2]  # one cache for both
    assert sorted(path.name for path in tmp_path.iterdir()) == ["beside.py", "engine.py"]


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("print('nothing')", "printed no rate: nothing"),
        ("print('0 tuples/s min 0 max 0 m/o 0')", "printed no rate: 0 tuples"),
        ("print('5 tuples/s min 5 max 5 m/o 1')\nraise SystemExit('broken')", "code 1: .*broken"),
    ],
)
def test_a_yardstick_that_is_not_understood_is_named_with_its_output(
    tmp_path: Path, script: str, problem: str
) -> None:
    path = tmp_path / "engine.py"
    path.write_text(script)
    with (
        open_yardstick(str(path), 2) as yardstick,
        pytest.raises(InvalidArgument, match=f"(?s){path} .*{problem}"),
    ):
        yardstick.run()


def test_the_speed_of_two_runs(tmp_path: Path) -> None:
    runs = YardstickRuns("engine.py", 2, tmp_path)
    runs.rates = [{"tuples_per_second": 200_000.0}, {"tuples_per_second": 100_000.0}]
    assert measure_speed(runs) == (150_000, 7.5)
    assert describe_runs(runs) == {
        "before": runs.rates[0], "after": runs.rates[1], "us_per_tuple": 7.5,
    }  # fmt: skip
