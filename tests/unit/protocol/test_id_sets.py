"""Sets of ids: the rows that are found are those of Python's own sets."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ps2stream.protocol.frame import column_to_bytes, strings_to_column
from ps2stream.protocol.id_sets import IdSet, hash_ids

IDS = st.lists(st.text("ab\0é", max_size=4) | st.text(max_size=9), max_size=30)


@given(IDS, st.sets(st.text("ab\0é", max_size=3), max_size=8))
def test_rows_of_the_set_are_found(ids: list[str], wanted: set[str]) -> None:
    off, data = strings_to_column(ids)
    found = IdSet(each.encode("utf-8", "surrogatepass") for each in wanted).find_rows(off, data)
    assert found.tolist() == [row for row, id in enumerate(ids) if id in wanted]


@given(IDS)
def test_equal_ids_have_equal_hashes_wherever_they_stand(ids: list[str]) -> None:
    off, data = strings_to_column(ids)
    assert hash_ids(off, data).tolist() == hash_ids(off + 3, np.append([9, 9, 9], data)).tolist()
    alone = [hash_ids(*strings_to_column([id]))[0] for id in ids]
    assert hash_ids(off, data).tolist() == alone
    assert strings_to_column(column_to_bytes(off, data))[1].tolist() == data.tolist()


def test_ids_of_one_hash_are_told_apart() -> None:
    off, data = strings_to_column(["x", "y"])
    same = np.full(2, hash_ids(off, data)[0])
    assert IdSet([b"x"]).find_rows(off, data, same).tolist() == [0]
