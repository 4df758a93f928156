"""The part of a record that goes with some sessions."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ps2stream.merger import fanout
from ps2stream.merger.moved_records import take_matched, take_missing, take_names
from ps2stream.merger.records import DeadNamesRecord, MatchedRecord, MissingRecord
from ps2stream.protocol.frame import column_to_strings, decode, strings_to_column
from tests.support.merging import release


def pairs_of(record: MatchedRecord) -> dict[int, list[tuple[int, int, int, str, str, float, str]]]:
    """By session: number, query, and offset, id, text, longitude, opaque of the object."""
    ids = column_to_strings(record.id_off, record.id)
    texts = column_to_strings(record.text_off, record.text)
    opaque = column_to_strings(record.opaque_off, record.opaque) or [""] * len(ids)
    found = {}
    for i, session in enumerate(record.session.tolist()):
        found[session] = [
            (
                int(record.first[i]) + n,
                int(record.handle[at]),
                int(record.offset[o := int(record.index[at])]),
                ids[o],
                texts[o],
                float(record.lon[o]),
                opaque[o],
            )
            for n, at in enumerate(range(int(record.cut[i]), int(record.cut[i + 1])))
        ]
    return found


@pytest.mark.parametrize("seed", range(30))
def test_the_pairs_of_some_sessions_keep_all_that_they_had(seed: int) -> None:
    rng = random.Random(seed)
    pairs = {(rng.randrange(8), h := rng.randint(1, 9), h % 4) for _ in range(rng.randint(1, 30))}
    rows = sorted({row for row, _, _ in pairs})
    opaque = [f"x{row}" * rng.randint(0, 2) for row in rows] if seed % 2 else []
    frame = release(40, 8, 9, sorted(pairs), opaque=opaque)
    row, handle, session = np.array(sorted(pairs), np.int64).T
    record = fanout.matched(frame, row.astype(np.uint32), handle, session, 7)
    record.first[:] = [rng.randint(1, 99) for _ in record.session]
    chosen = np.array([rng.random() < 0.5 for _ in record.session])
    part = take_matched(record, chosen)
    kept = record.session[chosen].tolist()
    if not kept:
        assert part is None
        return
    assert part is not None
    found = decode(part.encode())
    assert isinstance(found, MatchedRecord)
    assert pairs_of(found) == {s: p for s, p in pairs_of(record).items() if s in kept}
    assert found.end == found.batch - 1
    assert (found.lsn, found.written, found.dispatcher) == (9, 7, 0)
    assert len(found.offset) == len(np.unique(found.index))


def test_gaps_and_notices_are_taken_by_session_and_complete_no_objects() -> None:
    sessions = np.array([1, 2, 5])
    record = MissingRecord(
        sessions,
        sessions * 10,
        sessions * 10 + 3,
        2,
        40,
        44,
        np.arange(6),
        np.array([0.1, 0.2, 0.5]),
    )
    part = take_missing(record, np.array([True, False, True]))
    assert part is not None
    assert part.session.tolist() == [1, 5]
    assert (part.first.tolist(), part.last.tolist()) == ([10, 50], [13, 53])
    assert (part.dispatcher, part.start, part.stop) == (2, 0, 0)
    assert (part.shed.tolist(), part.share.tolist()) == ([0, 1, 2, 3, 4, 5], [0.1, 0.5])
    assert take_missing(record, np.zeros(3, bool)) is None


def test_names_are_taken_by_session() -> None:
    ids = strings_to_column(["a", "bee", "c"])
    record = DeadNamesRecord(np.array([1, 2, 1]), np.array([4, 6, 8]), np.array([9, 9, 7]), *ids)
    part = take_names(record, np.array([True, False, True]))
    assert part is not None
    assert (part.session.tolist(), part.handle.tolist(), part.last.tolist()) == (
        [1, 1], [4, 8], [9, 7],
    )  # fmt: skip
    assert column_to_strings(part.id_off, part.id) == ["a", "c"]
    assert take_names(record, np.zeros(3, bool)) is None
