"""The names of dropped queries that kept pairs still need."""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.messages.sessions import StreamDetach
from ps2stream.protocol.messages.updates import LedgerBatch
from ps2stream.protocol.rows import UpdateKind, no_queries
from tests.support.merging import (
    attach,
    credit,
    fill,
    inserts,
    named,
    one_batch,
    rig,
)


def test_names_outlive_the_chapters_that_they_were_written_in() -> None:
    r = rig(chapter_bytes=1_500)
    r.send(inserts(1, [1, 2]), attach(2))
    fill(r, 0, 1, 2)
    names = [f"dead{i}" for i in range(30)]
    for i, name in enumerate(names):  # each is matched once, then deleted, at LSN 4 + 2 i
        lsn, at = 3 + 2 * i, 1 + i
        r.send(named(lsn, [(UpdateKind.INSERT, lsn, 1, name)]))
        r.send(*one_batch(4 * at, [(0, lsn, 1), (0, 2, 2)], lsn))
        r.send(named(lsn + 1, [(UpdateKind.DELETE, lsn, 1, name)], watermark=lsn + 1))
        r.send(credit(2, 1, 99, 0, max(r.clients[2].pairs)))
        r.tick(10)
        if i == 14:
            r.send(attach(1), credit(1, 1, 9, 0, 0))
            r.send(credit(1, 1, 10, 0, 10), StreamDetach(1, 1))
    r.restart()
    assert r.log.first > 0
    nothing = np.frombuffer(no_queries().encode(), np.uint8)
    r.send(LedgerBatch(1, 70, -1, 1, 70, nothing), attach(1, epoch=2))
    got = {number: pair[0] for number, pair in r.clients[1].pairs.items() if number > 10}
    assert got == {number: names[number - 1] for number in range(11, 31)}
    assert r.machine.names == 0
