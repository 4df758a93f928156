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
    """What was passed as `extra`; what begins with an underscore is Ray's."""
    given = record.__dict__.items()
    return {k: v for k, v in given if k not in _STANDARD and not k.startswith("_")}


class Formatter(logging.Formatter):
    """As JSON: ts (RFC 3339, UTC), level, logger, actor and epoch where an actor said it,
    message, fields (what was passed as `extra`), exception. Else a line for people."""

    def __init__(self, as_json: bool = False) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        actor = getattr(record, "actor", "")
        if not self._as_json:
            line = super().format(record)
            return line if not actor else line.replace(": ", f": {actor}: ", 1)
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        said: dict[str, Any] = {
            "ts": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if actor:
            said |= {"actor": actor, "epoch": getattr(record, "epoch", 0)}
        said["message"] = record.getMessage()
        if fields := fields_of(record):
            said["fields"] = fields
        if found := record.exc_text or (record.exc_info and self.formatException(record.exc_info)):
            said["exception"] = found
        try:
            return json.dumps(said, default=str, allow_nan=False)
        except (TypeError, ValueError):  # JSON has no such number, or it holds itself
            said["fields"] = {name: str(value) for name, value in fields.items()}
            return json.dumps(said, default=str)


def configure(
    level: int = logging.INFO, *, as_json: bool = False, stream: TextIO | None = None
) -> None:
    """Send the package's log to `stream` (standard error when None). As JSON, also what others
    log, warnings, and what ends a thread, so that no line there is anything else."""
    handler = Lines(stream or sys.stderr)
    handler.setFormatter(Formatter(as_json))
    logger = logging.getLogger("ps2stream")
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False
    others = [found for found in logging.root.handlers if not isinstance(found, Lines)]
    if as_json and not others:  # else somebody sees to them
        logging.root.handlers[:] = [handler]
        logging.captureWarnings(True)
        threading.excepthook = _ended


class Lines(logging.StreamHandler[TextIO]):
    """Writes records as lines; one that cannot be written is told of in one."""

    def handleError(self, record: logging.LogRecord) -> None:
        """The record's arguments do not fit its message, or the stream is gone."""
        where = f"{record.pathname}:{record.lineno}"
        said = logging.LogRecord(
            record.name, logging.ERROR, record.pathname, record.lineno,
            "a line of the log could not be written, by %s", (where,), None,
        )  # fmt: skip
        with contextlib.suppress(OSError, ValueError):
            self.stream.write(self.format(said) + self.terminator)


def _ended(found: threading.ExceptHookArgs) -> None:
    name = "a thread" if found.thread is None else found.thread.name
    if found.exc_value is not None and not isinstance(found.exc_value, SystemExit):
        logging.getLogger("ps2stream").error("%s ended", name, exc_info=found.exc_value)
