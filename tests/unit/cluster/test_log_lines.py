"""The log as JSON and for people, and what actors log, in the process that started them."""

from __future__ import annotations

import io
import json
import logging
import threading
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ps2stream import log
from ps2stream.cluster.log_lines import NAME, LogReceiver, LogSender


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    found = io.StringIO()
    others, hook = logging.root.handlers[:], threading.excepthook
    yield found
    logging.root.handlers[:] = others
    logging.captureWarnings(False)
    threading.excepthook = hook
    logger = logging.getLogger("ps2stream")
    logger.handlers.clear()
    logger.propagate = True
    logger.setLevel(logging.NOTSET)


def record(message: str, *args: object, **extra: object) -> logging.LogRecord:
    made = logging.getLogger("ps2stream.x").makeRecord(
        "ps2stream.x", logging.WARNING, "here.py", 1, message, args, None
    )
    vars(made).update(extra)  # some of which Ray sets, too, where it is imported
    return made


def test_a_line_is_a_json_object(stream: io.StringIO) -> None:
    log.configure(as_json=True, stream=stream)
    logging.getLogger("ps2stream.x").info("hello %s", "you", extra={"lsn": 5, "of": Path("a")})
    try:
        raise ValueError("a\nbug")
    except ValueError:
        logging.getLogger("ps2stream.x").exception("it failed")
    first, second = map(json.loads, stream.getvalue().splitlines())
    at = datetime.fromisoformat(first.pop("ts"))
    assert at.tzinfo == UTC
    assert first == {
        "level": "info",
        "logger": "ps2stream.x",
        "message": "hello you",
        "fields": {"lsn": 5, "of": "a"},
    }
    assert second["exception"].endswith("ValueError: a\nbug")


def test_every_line_is_json_whoever_writes_it(
    stream: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    logging.root.handlers.clear()
    log.configure(as_json=True, stream=stream)
    logger = logging.getLogger("ps2stream.x")
    logger.warning("%s", "\u2028 \udc80 \x85", extra={"v": float("nan"), "of": {"a": float("inf")}})
    logger.warning("%d", "no number")
    logging.getLogger("grpc._server").error("another's")
    warnings.showwarning("of a library", UserWarning, "library.py", 1)

    def failing() -> None:
        raise ValueError("a\nbug")

    thread = threading.Thread(target=failing, name="worker")
    thread.start()
    thread.join()

    def strict(name: str) -> None:
        raise AssertionError(name)

    found = [json.loads(line, parse_constant=strict) for line in stream.getvalue().splitlines()]
    odd, wrong, other, warning, ended = found
    assert (odd["message"], odd["fields"]["v"]) == ("\u2028 \udc80 \x85", "nan")
    assert "could not be written" in wrong["message"]
    assert "test_log_lines.py" in wrong["message"]
    assert (other["logger"], other["message"]) == ("grpc._server", "another's")
    assert "of a library" in warning["message"]
    assert (ended["message"], ended["exception"][-17:]) == (
        "thread worker ended",
        "ValueError: a\nbug",
    )
    assert capsys.readouterr().err == ""


def test_a_line_for_people_names_the_actor(stream: io.StringIO) -> None:
    log.configure(stream=stream)
    logging.getLogger("ps2stream.x").handle(record("a: b", actor="worker-1", epoch=2))
    logging.getLogger("ps2stream.x").handle(record("a: b"))
    assert stream.getvalue() == "WARNING ps2stream.x: worker-1: a: b\nWARNING ps2stream.x: a: b\n"


def test_what_an_actor_logs_is_logged_by_who_started_it(
    stream: io.StringIO, tmp_path: Path
) -> None:
    log.configure(as_json=True, stream=stream)
    receiver = LogReceiver(tmp_path)
    sender = LogSender(tmp_path / NAME, "worker-3", 7)
    sender.emit(record("100%% of %s", "it", lsn=9, _ray_timestamp_ns=1))
    try:
        raise ValueError("a bug")
    except ValueError as error:
        failed = record("x" * 100_000)
        failed.exc_info = (type(error), error, error.__traceback__)
        sender.emit(failed)
    too_low = record("not asked for")
    too_low.levelno = logging.DEBUG
    sender.emit(too_low)
    receiver.stop()
    sender.close()
    receiver.stop()
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["actor"], first["epoch"]) == ("worker-3", 7)
    assert (first["message"], first["fields"]) == ("100% of it", {"lsn": 9})
    assert second["message"].startswith("xxx")
    assert "ValueError: a bug" in second["exception"]


def test_what_nobody_hears_goes_to_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sender = LogSender(tmp_path / "none", "worker-3", 7)
    sender.emit(record("lost %s", "words"))
    sender.close()
    assert capsys.readouterr().err == "WARNING ps2stream.x: lost words\n"


def test_a_line_that_an_actor_cannot_say_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sender = LogSender(tmp_path / NAME, "worker-0", 1)
    sender.emit(record("%d", "no number"))
    sender.close()
    assert "Logging error" in capsys.readouterr().err
