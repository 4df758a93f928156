"""Runs the command `ps2stream`, also as `python -m ps2stream`."""

import os
import signal
from typing import NoReturn


def run() -> None:
    """Runs the command. An interrupt while its modules are loaded, for some 0.2 s, ends the process
    at once, with the exit code of one that comes later; Python would print where it came."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # else it is ignored, as of a job in the background
        signal.signal(signal.SIGINT, _end_process)
    from ps2stream.cli import main

    signal.signal(signal.SIGINT, before)
    main(prog_name="ps2stream")


def _end_process(*_: object) -> NoReturn:
    os._exit(130)


if __name__ == "__main__":
    run()
