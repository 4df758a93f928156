"""What ends a command that runs until it is told to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from ps2stream.commands.output import on_interrupt, printable, wait_for_interrupt


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def number(request: pytest.FixtureRequest) -> Iterator[int]:
    before = signal.getsignal(request.param)
    yield request.param
    signal.signal(request.param, before)


def test_a_signal_is_heard_within_the_block_and_forgotten_behind_it(number: int) -> None:
    def of_before(*_: object) -> None:
        """Somebody else's."""

    signal.signal(number, of_before)
    told = threading.Event()
    with on_interrupt(told.set):
        os.kill(os.getpid(), number)
        assert told.wait(60)
    assert signal.getsignal(number) is of_before


def test_a_signal_that_another_thread_takes_is_heard(number: int) -> None:
    told, over = threading.Event(), threading.Event()
    late = []

    def wait_and_note() -> None:
        late.append(not told.wait(30))
        told.set()

    other = threading.Thread(target=over.wait)
    other.start()
    with on_interrupt(told.set):
        watch = threading.Thread(target=wait_and_note)
        watch.start()
        sending = threading.Timer(0.2, signal.pthread_kill, (other.ident, number))
        sending.start()
        wait_for_interrupt(told)
    over.set()
    for thread in (other, sending, watch):
        thread.join()
    assert late == [False]


def test_nohup_outlives_the_terminal() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with on_interrupt(lambda: None):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


COMPLAINT = """
import contextlib
from ps2stream.commands.output import CommandOutput, printable

output = CommandOutput()
with output.connect("127.0.0.1:1", float("inf")):
    import grpc

    channel = grpc.insecure_channel("127.0.0.1:1", options=[("grpc.service_config", "{not JSON")])
    with contextlib.suppress(grpc.RpcError):
        channel.unary_unary("/a/b")(b"", timeout=1)
"""


@pytest.mark.parametrize(("wanted", "printed"), [({}, False), ({"GRPC_VERBOSITY": "INFO"}, True)])
def test_grpcs_own_complaints_are_printed_on_request(
    root: Path, wanted: dict[str, str], printed: bool
) -> None:
    own = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    done = subprocess.run(
        [sys.executable, "-c", COMPLAINT],
        env=own | wanted | {"PYTHONPATH": str(root)},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert ("JSON" in done.stderr) is printed
    assert printed or not done.stderr


def run_into(stdout: int | IO[str], root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs `ps2stream` with a standard output that Python buffers."""
    return subprocess.run(
        [sys.executable, "-m", "ps2stream.cli", *words],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        cwd=root,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "words",
    ["plan show examples/plan-text.json", "--help", "--version", "config --help", "list -h"],
)
def test_output_that_a_full_disk_refuses_is_one_line_and_failure(words: str, root: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = run_into(full, root, *words.split())
    assert done.stderr.splitlines() == [
        "ps2stream: cannot write the output: No space left on device"
    ]
    assert done.returncode == 1


def test_standard_input_that_is_closed_is_named(root: Path) -> None:
    script = 'exec "$@" <&-'
    command = ["sh", "-c", script, "-", sys.executable, "-m", "ps2stream.cli", "match"]
    command += ["--queries", "-", "--objects", "-"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
    assert done.stderr == "ps2stream: -: cannot read it: standard input is closed\n"
    assert done.returncode == 2


def test_output_that_nobody_reads_ends_quietly(root: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = run_into(writing, root, "--help")
    os.close(writing)
    assert not done.stderr


def test_the_exit_code_tells_where_not_even_an_error_can_be_written(root: Path) -> None:
    command = [sys.executable, "-m", "ps2stream.cli", "health", "--server", "127.0.0.1:1"]
    with Path("/dev/full").open("w") as full:
        assert subprocess.run(command, stderr=full, cwd=root, check=False).returncode == 5


def test_what_is_printed_turns_no_direction_and_keeps_letters_of_all_scripts() -> None:
    assert printable("a\u202eb\u2066c\x1b[31m\n") == "a b c [31m "
    kept = "\u200fعربي \u200eabc 洪水 \U0001f469\u200d\U0001f692"
    assert printable(kept) == kept
