"""What is committed is encoded once, to the bytes of the message that it is."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.protocol.frame import Frame, decode
from ps2stream.protocol.messages.updates import LedgerBatch, UpdateDecision
from ps2stream.protocol.ports import NamedUpdates
from ps2stream.sequencer.committed import CommittedBatch, CommittedDecision, CommittedRequests

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


def test_what_is_written_in_place_is_the_message_that_it_is() -> None:
    plain = LedgerBatch(4, 9, 2, 0, 0, ROWS)
    batch = CommittedBatch.view(np.frombuffer(plain.encode(), np.uint64), ROWS, 4, 9, 2)
    assert bytes(batch.encode()) == plain.encode()
    assert {name: bytes(np.asarray(value)) for name, value in vars(plain).items()} == {
        name: bytes(np.asarray(getattr(batch, name))) for name in vars(plain)
    }
    requests = NamedUpdates(np.array([4]), np.array([0, 1]), ROWS[:1], np.array([0, 2]), ROWS[:2])
    encoded = np.frombuffer(requests.encode(), np.uint64)
    view = CommittedRequests.view(encoded, 1)
    assert view.lsn.tolist() == [4]
    with pytest.raises(AttributeError, match="owner"):
        _ = view.owner
    assert bytes(view.encode()) == requests.encode()
    assert view.request.tolist() == [0, 1]
    with pytest.raises(ValueError, match="read-only"):
        view.request[0] = 1
