"""The checker finds every planted fault, and none where there is none."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.history.__main__ import main
from tests.history.check import check, judge
from tests.history.made import Line, make
from tests.history.mutations import MUTATIONS
from tests.history.reading import HistoryError, read, read_lines
from tests.history.record import Recorder

STEPS = 60
SEEDS = 12
FOUND = 2
"""A fault is found in so many histories that have room for it, of up to PATIENCE."""
PATIENCE = 60


@pytest.mark.parametrize("seed", range(SEEDS))
def test_kept_promises_are_seen_as_kept(seed: int) -> None:
    verdict = judge(read_lines(make(seed)))
    assert verdict.held, verdict.to_dict()
    assert verdict.figures["delivered"] >= verdict.figures["expected"] > 50


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_planted_fault_is_found(name: str) -> None:
    plant, kind = MUTATIONS[name]
    found = 0
    for seed in range(PATIENCE):
        lines = make(seed, STEPS)
        if not plant(lines, random.Random(seed)):
            continue
        verdict = judge(read_lines(lines))
        assert verdict.held == (not kind), verdict.to_dict()
        if kind:
            assert verdict.anomalies[kind], verdict.to_dict()
            assert verdict.examples[kind][0]["why"]
        found += 1
        if found == FOUND:
            return
    raise AssertionError(f"only {found} histories had room for it")


def test_the_command_prints_a_verdict(tmp_path: Path) -> None:
    path = tmp_path / "history"
    lines = make(1, STEPS)
    for broken in (False, True):
        if broken:
            assert MUTATIONS["deliver_a_match_twice"][0](lines, random.Random(1))
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        done = CliRunner().invoke(main, [str(path)])
        assert done.exit_code == broken, done.output
        found = json.loads(done.stdout)
        assert found["held"] is not broken
        assert found["anomalies"] == ({"doubled": 1} if broken else {})
    done = CliRunner().invoke(main, [str(path), str(path)])
    assert "begin" in done.output or done.exit_code == 2


def test_the_clients_of_one_history_may_write_several_files(tmp_path: Path) -> None:
    now = [0]
    files = [tmp_path / name for name in ("writer", "reader")]
    query: dict[str, Any] = {"session": "ann", "expression": "flood", "region": None}
    writer, reader = (Recorder(path, clock=lambda: now[0], skew_ns=5) for path in files)
    with writer, reader:
        insert = writer.begin("w", "insert", id="q", replace=False, retro=False, **query)
        stream = reader.begin("r", "deliver", session="ann", after=0)
        reader.end(stream, "ok")
        now[0] = 10
        writer.end(insert, "ok", lsn=1)
        now[0] = 20
        rows = [["o", 1.0, 2.0, "a flood", {}, 0]]
        publish = writer.begin("w", "publish", level="durable", producer="", seq=0, objects=rows)
        writer.end(publish, "ok", lsn=1, partition=0, offset=0, accepted=1)
        assert not check(files).held  # neither has settled
        reader.receive("ann", stream, 1, 0, [[1, "q", 0]], [["o", 0, 1.0, 2.0, "a flood", {}]])
        reader.settle()
        writer.settle()
    verdict = check(files)
    assert verdict.held, verdict.to_dict()
    assert verdict.figures["expected"] == verdict.figures["delivered"] == 1
    history = read(files)
    assert history.skew_ns == 5
    assert [str(each).split()[0] for each in history.operations] == [
        "writer:2", "reader:2", "writer:4"
    ]  # fmt: skip


def test_calls_within_the_skew_have_no_order() -> None:
    for skew_ns, kinds in ((0, {"backwards"}), (100, set())):
        lines: list[Line] = [{"at": 0, "history": 1, "skew_ns": skew_ns, "wall_ms": 0}]
        for at, lsn in ((1, 2), (20, 1)):
            args = {"id": f"q{lsn}", "session": "s", "expression": "a", "region": None,
                    "replace": False, "retro": False}  # fmt: skip
            lines.append(
                {"at": at, "begin": lsn, "process": "p", "call": "insert",
                 "operation": str(lsn), "args": args}
            )  # fmt: skip
            lines.append({"at": at + 5, "end": lsn, "outcome": "ok", "result": {"lsn": lsn}})
        lines.append({"at": 99, "settled": True})
        assert judge(read_lines(lines)).anomalies.keys() == kinds


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"at": -1}, "line 2: at: must be an integer, and not fall"),
        ({"call": "steal"}, "line 2: .*call: steal is none of insert"),
        ({"begin": None, "x": 1}, "line 2: "),
    ],
)
def test_what_is_no_history_is_refused(change: dict[str, object], problem: str) -> None:
    lines = make(1, STEPS)
    lines[1] |= change
    with pytest.raises(HistoryError, match=problem):
        read_lines(lines)


def test_a_line_that_was_cut_is_no_line(tmp_path: Path) -> None:
    path = tmp_path / "history"
    text = "".join(json.dumps(line) + "\n" for line in make(1, STEPS))
    path.write_text(text[:-5])
    assert check([path]).anomalies.keys() == {"unsettled"}
    path.write_text("[" + text)
    with pytest.raises(HistoryError, match="line 1: is not JSON"):
        check([path])
