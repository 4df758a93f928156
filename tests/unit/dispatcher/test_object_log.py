"""The object log: offsets, what is sent again after a restart, and what may go."""

from __future__ import annotations

import pytest

from ps2stream.dispatcher.object_log import ObjectLog
from tests.support.desk import Desk, rows


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_no_offset_is_used_twice_though_nothing_was_logged(desk: Desk) -> None:
    used = desk.edge.publish(rows(3), durable=False).result(0).offset + 3
    for _ in range(3):
        log = ObjectLog(desk.log)  # as after a crash
        assert log.offset >= used
        log.reserve(log.offset + 7)
        used = log.offset + 7
