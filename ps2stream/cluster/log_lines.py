"""What actors log goes to the process that started them, which logs it as its own.

Ray would print it there, too, but with words of its own before each line. Records travel as
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

from ps2stream.log import Formatter, configure, fields_of

NAME = "log"
_BYTES = 1 << 16
_WAIT_S = 1.0
_LOGGER = logging.getLogger("ps2stream")


class Sender(logging.Handler):
    """Sends to `path` what the actor `name` logs. What cannot be sent goes to standard error."""

    def __init__(self, path: Path, name: str, epoch: int) -> None:
        super().__init__()
        self._path = str(path)
        self._said = {"actor": name, "epoch": epoch}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(_WAIT_S)
        self._plain = Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._emit(record)
        except Exception:  # noqa: BLE001
            self.handleError(record)  # its arguments do not fit its message

    def _emit(self, record: logging.LogRecord) -> None:
        raised = self._plain.formatException(record.exc_info) if record.exc_info else None
        text = raised or record.exc_text or ""
        said = {
            **fields_of(record),
            **self._said,
            "name": record.name,
            "levelno": record.levelno,
            "levelname": record.levelname,
            "created": record.created,
            "msg": record.getMessage()[: _BYTES // 4],
            "exc_text": text[-_BYTES // 4 :] or None,
        }
        try:
            data = json.dumps(said, default=str).encode()
            self._socket.sendto(data, self._path)
        except OSError:
            sys.stderr.write(self._plain.format(record) + "\n")

    def close(self) -> None:
        self._socket.close()
        super().close()


def send_to(folder: Path, name: str, epoch: int) -> None:
    """From now on, if somebody listens in `folder`; in an actor's process."""
    path = folder / NAME
    if not path.is_socket():
        return
    level = int((folder / f"{NAME}.level").read_text())
    _LOGGER.handlers[:] = [Sender(path, name, epoch)]
    _LOGGER.setLevel(level)
    _LOGGER.propagate = False


def say_here(name: str, epoch: int, level: int, as_json: bool) -> None:
    """From now on to standard error; in an actor's process."""

    def sign(record: logging.LogRecord) -> bool:
        record.actor, record.epoch = name, epoch
        return True

    configure(level, as_json=as_json)
    _LOGGER.handlers[0].addFilter(sign)


class Receiver:
    """Listens in `folder`, and logs what comes, until `stop`."""

    def __init__(self, folder: Path) -> None:
        (folder / f"{NAME}.level").write_text(str(_LOGGER.getEffectiveLevel()))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(folder / NAME))
        self._socket.settimeout(_WAIT_S)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="log")
        self._thread.start()

    def stop(self) -> None:
        """Once what has come is logged."""
        self._stopping.set()
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.sendto(b"{}", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        while True:
            try:
                said: dict[str, Any] = json.loads(self._socket.recv(_BYTES))
            except TimeoutError:
                said = {}
            except ValueError:
                continue  # longer than a datagram may be
            if said:
                record = logging.makeLogRecord(said)
                logger = logging.getLogger(record.name)
                if logger.isEnabledFor(record.levelno):
                    logger.handle(record)
            elif self._stopping.is_set():
                return
