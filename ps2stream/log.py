"""Logging: one JSON object a line, or plain lines for people. Never bodies or positions."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import threading
from datetime import UTC, datetime
from typing import Any, TextIO

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {
    "message", "asctime", "taskName", "actor", "epoch",
}  # fmt: skip


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Returns the fields passed as `extra`, without Ray's, which begin with an underscore."""
    attributes = record.__dict__.items()
    return {k: v for k, v in attributes if k not in _STANDARD and not k.startswith("_")}


class LogFormatter(logging.Formatter):
    """Formats a record as a line for people or as a JSON object.

    The object has ts (RFC 3339, UTC), level, logger, actor and epoch where an actor logged it,
    message, fields (those passed as `extra`) and exception.
    """

    def __init__(self, as_json: bool = False) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        actor = getattr(record, "actor", "")
        if not self._as_json:
            line = super().format(record)
            return line if not actor else line.replace(": ", f": {actor}: ", 1)
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        entry: dict[str, Any] = {
            "ts": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if actor:
            entry |= {"actor": actor, "epoch": getattr(record, "epoch", 0)}
        entry["message"] = record.getMessage()
        if fields := fields_of(record):
            entry["fields"] = fields
        if found := record.exc_text or (record.exc_info and self.formatException(record.exc_info)):
            entry["exception"] = found
        try:
            return json.dumps(entry, default=str, allow_nan=False)
        except (TypeError, ValueError):  # NaN or infinity, or a value that contains itself
            entry["fields"] = {name: str(value) for name, value in fields.items()}
            return json.dumps(entry, default=str)


def configure(
    level: int = logging.INFO, *, as_json: bool = False, stream: TextIO | None = None
) -> None:
    """Sends the package's log to `stream` (standard error when None).

    With `as_json` also the logs of other packages, warnings, and exceptions that end threads, so
    that every line there is JSON.
    """
    handler = LineHandler(stream or sys.stderr)
    handler.setFormatter(LogFormatter(as_json))
    logger = logging.getLogger("ps2stream")
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False
    others = [found for found in logging.root.handlers if not isinstance(found, LineHandler)]
    if as_json and not others:  # otherwise the embedding program handles them
        logging.root.handlers[:] = [handler]
        logging.captureWarnings(True)
        threading.excepthook = _log_thread_end


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes records as lines; a line of its own reports one that cannot be written."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Reports a record whose arguments do not fit its message, or a stream that is gone."""
        where = f"{record.pathname}:{record.lineno}"
        report = logging.LogRecord(
            record.name, logging.ERROR, record.pathname, record.lineno,
            "the log line of %s could not be written", (where,), None,
        )  # fmt: skip
        with contextlib.suppress(OSError, ValueError):
            self.stream.write(self.format(report) + self.terminator)


def _log_thread_end(found: threading.ExceptHookArgs) -> None:
    name = "without a name" if found.thread is None else found.thread.name
    if found.exc_value is not None and not isinstance(found.exc_value, SystemExit):
        logging.getLogger("ps2stream").error("thread %s ended", name, exc_info=found.exc_value)
