"""Programs that tests start."""

from __future__ import annotations

from typing import Final

HEARS_INTERRUPTS: Final = ("env", "--default-signal=INT")
"""Begins the command of a program that is to hear SIGINT, even if the tests run in the background
of a shell, where that is ignored and a child inherits it. No function that is called after a fork
does it: where gRPC is at work, its threads are forked too, and may abort before the program
begins."""
