"""Reports of what a long command is doing, on standard error."""

from __future__ import annotations

import threading
import time
from typing import Self

from ps2stream.commands.output import CommandOutput

STILL_S = 15.0


class StepReporter:
    """Shows the current step of a command: on a terminal as one line that changes; elsewhere as a
    line a step, which is repeated every `still_s` seconds."""

    def __init__(self, output: CommandOutput, still_s: float = STILL_S) -> None:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._console = Console(stderr=True, quiet=output.json)
        self._bar = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(),
            console=self._console, transient=True, disable=not self._console.is_terminal,
        )  # fmt: skip
        self._began = time.monotonic()
        self._what, self._still_s, self._done = "starting", still_s, threading.Event()
        self._clock = threading.Thread(target=self._repeat_step, daemon=True, name="telling")

    def __enter__(self) -> Self:
        self._bar.start()
        self._task = self._bar.add_task(self._what, total=None)
        if not (self._console.is_terminal or self._console.quiet):
            self._clock.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        self._done.set()

    def __call__(self, what: str) -> None:
        self._what = what
        if self._console.is_terminal:
            self._bar.update(self._task, description=what)
        else:
            self._print_step(what)

    def _repeat_step(self) -> None:
        while not self._done.wait(self._still_s):
            self._print_step(f"still {self._what}")

    def _print_step(self, what: str) -> None:
        seconds = time.monotonic() - self._began
        self._console.print(f"{seconds:5.1f} s  {what}", markup=False, soft_wrap=True)
