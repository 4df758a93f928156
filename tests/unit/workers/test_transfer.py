"""What a worker gains is loaded piece by piece, whatever gets lost or is deleted meanwhile."""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.addresses import Send
from ps2stream.protocol.frame import I64
from ps2stream.protocol.messages.plan import TransferChunk, TransferRequest
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.protocol.ticks import TRANSFER_TICKS
from ps2stream.routing.plan_follower import GainedUnits
from ps2stream.workers.transfer import QueryTransfer
from tests.support.routing import Row, query_rows

BOX = np.array([0.0, 0.0, 1.0, 1.0])


def loading(upto: int = 9) -> QueryTransfer:
    return QueryTransfer(2, upto, GainedUnits(BOX, np.zeros(0, np.uint64)))


def asked(sends: list[Send]) -> list[tuple[int, int, int]]:
    loads = [s.frame for s in sends if isinstance(s.frame, TransferRequest)]
    return [(f.worker, f.begun, f.after) for f in loads]


def piece(
    after: int, last: int, *rows: tuple[UpdateKind, int, int], upto: int = 9
) -> TransferChunk:
    found = query_rows([Row((1,), (0,), kind=k, lsn=at, handle=h) for k, at, h in rows])
    return TransferChunk(upto, after, last, np.frombuffer(found.encode(), np.uint8))


def told(taken: tuple[QueryRows, I64, I64] | None) -> tuple[list[int], dict[int, int]]:
    assert taken is not None
    rows, handle, lsn = taken
    return rows.handle.tolist(), dict(zip(handle.tolist(), lsn.tolist(), strict=True))


INS, DEL = UpdateKind.INSERT, UpdateKind.DELETE


def test_pieces_follow_on_one_another() -> None:
    load = loading()
    assert asked(load.ask()) == [(2, 9, 0)]
    assert told(load.take(piece(0, 4, (INS, 1, 1), (INS, 4, 4)))) == ([1, 4], {})
    assert load.take(piece(0, 4, (INS, 1, 1))) is None, "it has been taken"
    assert load.take(piece(4, 8, upto=8)) is None, "of another move"
    assert asked(load.ask()) == [(2, 9, 4)]
    assert told(load.take(piece(4, 9, (INS, 7, 7)))) == ([7], {})
    assert load.done
    assert not load.ask()
    assert load.take(piece(9, 9)) is None


def test_what_is_lost_is_asked_for_again() -> None:
    load = loading()
    load.ask()
    again = [asked(load.tick()) for _ in range(2 * TRANSFER_TICKS)]
    assert again.count([(2, 9, 0)]) == 2
    assert again[TRANSFER_TICKS - 1] == again[-1] == [(2, 9, 0)]


def test_a_delete_that_came_before_its_query_is_told_behind_it() -> None:
    load = loading()
    load.note(np.array([4, 7, 30]), np.array([11, 12, 31]))
    assert told(load.take(piece(0, 5, (INS, 1, 1), (INS, 4, 4)))) == ([1, 4], {4: 11})
    load.note(np.array([1]), np.array([13]))  # the worker has it: that is its own affair
    dying = piece(5, 9, (INS, 6, 6), (DEL, 10, 6), (INS, 7, 7))
    assert told(load.take(dying)) == ([6, 7], {6: 10, 7: 12})


def test_who_gains_nothing_is_done() -> None:
    load = QueryTransfer(2, 9, None)
    assert load.done
    assert not load.ask()
    assert load.take(piece(0, 9)) is None
