"""The log of the actors, which goes to the process that started them and is logged there.

Ray would print it there, too, but with a prefix of its own before each line. Records travel as
datagrams over a Unix socket beside those of the links. On several hosts they go to standard
error, which Ray keeps there, and shows where the service was started.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from ps2stream.log import LogFormatter, configure, fields_of

NAME = "log"
_BYTES = 1 << 16
_WAIT_S = 1.0
_LOGGER = logging.getLogger("ps2stream")


class LogSender(logging.Handler):
    """Sends the records of the actor `name` to `path`, or to standard error where that fails."""

    def __init__(self, path: Path, name: str, epoch: int) -> None:
        super().__init__()
        self._path = str(path)
        self._signature = {"actor": name, "epoch": epoch}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(_WAIT_S)
        self._plain = LogFormatter()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._send_record(record)
        except Exception:  # noqa: BLE001
            self.handleError(record)  # the record's arguments do not fit its message

    def _send_record(self, record: logging.LogRecord) -> None:
        raised = self._plain.formatException(record.exc_info) if record.exc_info else None
        text = raised or record.exc_text or ""
        fields = {
            **fields_of(record),
            **self._signature,
            "name": record.name,
            "levelno": record.levelno,
            "levelname": record.levelname,
            "created": record.created,
            "msg": record.getMessage()[: _BYTES // 4],
            "exc_text": text[-_BYTES // 4 :] or None,
        }
        try:
            data = json.dumps(fields, default=str).encode()
            self._socket.sendto(data, self._path)
        except OSError:
            sys.stderr.write(self._plain.format(record) + "\n")

    def close(self) -> None:
        self._socket.close()
        super().close()


def log_to_folder(folder: Path, name: str, epoch: int) -> None:
    """Sends an actor's log to `folder` from now on, if there is a receiver."""
    path = folder / NAME
    if not path.is_socket():
        return
    level = int((folder / f"{NAME}.level").read_text())
    _LOGGER.handlers[:] = [LogSender(path, name, epoch)]
    _LOGGER.setLevel(level)
    _LOGGER.propagate = False


def say_here(name: str, epoch: int, level: int, as_json: bool) -> None:
    """Sends an actor's log to standard error from now on."""

    def sign_record(record: logging.LogRecord) -> bool:
        record.actor, record.epoch = name, epoch
        return True

    configure(level, as_json=as_json)
    _LOGGER.handlers[0].addFilter(sign_record)


class LogReceiver:
    """Receives records in `folder` and logs them here, until `stop`."""

    def __init__(self, folder: Path) -> None:
        (folder / f"{NAME}.level").write_text(str(_LOGGER.getEffectiveLevel()))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(folder / NAME))
        self._socket.settimeout(_WAIT_S)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._receive_records, daemon=True, name="log")
        self._thread.start()

    def stop(self) -> None:
        """Stops once all records that have arrived are logged."""
        self._stopping.set()
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.sendto(b"{}", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def _receive_records(self) -> None:
        while True:
            try:
                fields: dict[str, Any] = json.loads(self._socket.recv(_BYTES))
            except TimeoutError:
                fields = {}
            except ValueError:
                continue  # cut off, since it was longer than the buffer
            if fields:
                record = logging.makeLogRecord(fields)
                logger = logging.getLogger(record.name)
                if logger.isEnabledFor(record.levelno):
                    logger.handle(record)
            elif self._stopping.is_set():
                return
