"""Logging: one JSON object a line, or plain lines for people. Never bodies or positions."""

from __future__ import annotations

import json
import logging
import sys
from typing import TextIO

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """time (Unix ms), level, logger, message, and whatever was passed as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": int(record.created * 1000),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {k: v for k, v in record.__dict__.items() if k not in _STANDARD}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def configure(
    level: int = logging.INFO, *, as_json: bool = False, stream: TextIO | None = None
) -> None:
    """Send the package's log to `stream` (standard error when None)."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        JsonFormatter() if as_json else logging.Formatter("%(levelname)s %(name)s: %(message)s")
    )
    logger = logging.getLogger("ps2stream")
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False
