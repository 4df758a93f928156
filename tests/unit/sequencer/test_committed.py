"""What is committed is encoded once, to the bytes of the message that it is."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.protocol.frame import Frame, decode
from ps2stream.protocol.messages.updates import LedgerBatch, UpdateDecision
from ps2stream.sequencer.committed import CommittedBatch, CommittedDecision

STATUS, LSN = np.array([0, 3], np.uint8), np.array([7, 0], np.int64)
ROWS = np.arange(24, dtype=np.uint8)


@pytest.mark.parametrize(
    ("committed", "plain"),
    [
        (CommittedBatch(1, 3, 0, 0, 0, ROWS), LedgerBatch(1, 3, 0, 0, 0, ROWS)),
        (CommittedDecision(5, STATUS, LSN), UpdateDecision(5, STATUS, LSN)),
    ],
)
def test_it_is_encoded_once_as_what_it_is(committed: Frame, plain: Frame) -> None:
    encoded = committed.encode()
    assert encoded == plain.encode()
    assert committed.encode() is encoded
    assert type(decode(encoded)) is type(plain)
