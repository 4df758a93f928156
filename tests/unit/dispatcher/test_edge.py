"""The dispatcher's edge: whom it answers, and what it tells of itself."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.language.query_rows import delete_rows
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.messages.updates import UpdateDecision
from tests.support.desk import Desk, rows


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_past_its_lease_it_answers_nobody(desk: Desk) -> None:
    durable = desk.edge.publish(rows(2))
    update = desk.edge.update(delete_rows(strings_to_column(["q"])), [""], [""])
    desk.lapsed = True
    desk.edge.sync()
    desk.edge._handle_reply(UpdateDecision(1, np.zeros(1, np.uint8), np.ones(1, np.int64)))
    for future in (durable, update, desk.edge.publish(rows(1), durable=False)):
        assert "replaced" in str(future.exception(0))
