"""`serve` and `demo` as programs: what they print, and how they end."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ps2stream.cli import main
from ps2stream.client.client import Client
from tests.support.starting import HEARS_INTERRUPTS

pytestmark = pytest.mark.takes_turns


def serve(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = ["serve", "--runtime", "local", "--data-dir", str(folder), "--json", *options]
    return subprocess.Popen(
        [sys.executable, "-m", "ps2stream.cli", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
    )


def test_an_interrupt_ends_a_start(tmp_path: Path) -> None:
    """Also one that comes while modules load, where Python may drop a KeyboardInterrupt."""
    command = ["serve", "--runtime", "local", "--port", "0", "--data-dir", str(tmp_path)]
    process = subprocess.Popen(
        [*HEARS_INTERRUPTS, sys.executable, "-m", "ps2stream.cli", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert process.stderr is not None
    assert "loading the program" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "stopped\n")


def program(target: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*HEARS_INTERRUPTS, sys.executable, "-m", "ps2stream.cli", *arguments, "--server", target],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
    )


def stop(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return [json.loads(line) for line in out.splitlines()]


def ready(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    return str(json.loads(line)["targets"][0])


def test_queries_are_there_again_after_a_restart(tmp_path: Path) -> None:
    process = serve(tmp_path, "--port", "0")
    with Client(ready(process)) as client:
        client.insert("a", "flood")
    assert stop(process) == [{"event": "stopped"}]
    process = serve(tmp_path, "--port", "0")
    with Client(ready(process)) as client:
        assert [q.id for q in client.list()] == ["a"]
        client.publish([{"lon": 0, "lat": 0, "text": "flood"}])
        with client.subscribe() as matches:
            assert next(iter(matches)).query_id == "a"
    stop(process)


def test_a_data_directory_has_one_service(tmp_path: Path) -> None:
    first = serve(tmp_path, "--port", "0")
    try:
        ready(first)
        second = serve(tmp_path, "--port", "0")
        out, err = second.communicate(timeout=60)
        assert (second.returncode, out) == (8, "")
        assert json.loads(err.splitlines()[-1])["error"]["code"] == "data_directory"
    finally:
        stop(first)


def test_a_port_in_use_is_one_clear_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = serve(tmp_path, "--port", str(port))
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert str(port) in json.loads(err.splitlines()[-1])["error"]["message"]


def read_match(listening: subprocess.Popen[str]) -> dict[str, Any]:
    assert listening.stdout is not None
    line = listening.stdout.readline()
    assert line, listening.communicate(timeout=60)
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_subscriber_is_interrupted_or_loses_its_reader(tmp_path: Path) -> None:
    process = serve(tmp_path, "--port", "0")
    try:
        target = ready(process)
        with Client(target) as client:
            client.insert("a", "flood")
            row = {"lon": 0, "lat": 0, "text": "flood"}
            client.publish([{**row, "id": "1"}])
            listening = program(target, "subscribe", "--json")
            assert listening.stdout is not None
            assert read_match(listening)["object_id"] == "1"
            client.publish([{**row, "id": "2"}])
            assert read_match(listening)["object_id"] == "2"
            listening.send_signal(signal.SIGINT)
            assert listening.communicate(timeout=60) == ("", "")
            assert listening.returncode == 130
            client.publish([{**row, "id": "3"}, {**row, "id": "4"}])
            listening = program(target, "subscribe")
            assert listening.stdout is not None
            assert listening.stderr is not None
            assert "flood" in listening.stdout.readline()
            listening.stdout.close()
            client.publish([{**row, "id": "5"}] * 3)
            listening.wait(60)
            assert listening.stderr.read() == ""
            listening.stderr.close()
    finally:
        stop(process)


def demo(*options: str) -> Result:
    command = ["demo", "--runtime", "local", "--seconds", "1", "--queries", "300", *options]
    result = CliRunner().invoke(main, command)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_the_demo_makes_up_posts_and_says_so() -> None:
    result = demo("--rate", "1000")
    assert result.exit_code == 0, result.output
    assert "posts are made up, at real places" in result.output
    assert "verified: 500 of 500 sampled objects equal brute force" in result.output


def test_the_demo_replays_a_short_file_again_and_again(tmp_path: Path) -> None:
    file = tmp_path / "posts.csv"
    rows = [f"{i % 5},{i % 7},flood by river {i % 11}" for i in range(40)]
    file.write_text("lat,lon,text\n" + "\n".join(rows) + "\n")
    result = demo("--input", str(file), "--rate", "500", "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 0
    assert found["objects"] > 400
    assert found["equal"] == found["sampled"] == min(500, found["objects"])
    assert found["matches"] > 0
    assert found["missed"] == 0


def test_the_demo_fails_when_a_delivery_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    from ps2stream.demo.tally import DeliveryTally

    honest = DeliveryTally.received

    def forgetful(self: DeliveryTally, place: tuple[int, int], query_id: str, at: float) -> None:
        if place[1] % 3:
            honest(self, place, query_id, at)

    monkeypatch.setattr(DeliveryTally, "received", forgetful)
    result = demo("--rate", "1000", "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert found["equal"] < found["sampled"]
    assert found["differences"][0]["missing"]


def test_the_demo_on_real_posts(tweets: Path) -> None:
    found = json.loads(demo("--input", str(tweets), "--json").stdout)
    assert found["equal"] == found["sampled"] == 500
    assert found["sampled_matches"] > 0


def test_the_demo_leaves_a_running_service_as_it_was(tmp_path: Path) -> None:
    process = serve(tmp_path, "--port", "0")
    try:
        target = ready(process)
        with Client(target) as client:
            client.insert("mine", "flood")
            result = demo("--server", target, "--rate", "500", "--json")
            assert result.exit_code == 0, result.output
            assert [q.id for q in client.list()] == ["mine"]
    finally:
        stop(process)
