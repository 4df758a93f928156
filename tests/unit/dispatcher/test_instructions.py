"""The instructions of the machine: each is a value that the driver carries out."""

from __future__ import annotations

import inspect
from typing import get_args

from ps2stream.cluster import dispatcher_driver
from ps2stream.dispatcher import instructions


def test_the_driver_carries_out_every_instruction() -> None:
    source = inspect.getsource(dispatcher_driver)
    for kind in get_args(instructions.Instruction):
        assert f"case {kind.__name__}(" in source, kind


def test_an_instruction_is_its_values() -> None:
    assert instructions.DeliverBatch("s", b"x") == instructions.DeliverBatch("s", b"x")
    assert instructions.TrimLog(5).before == 5
