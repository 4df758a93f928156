"""Which objects of a batch may be shed."""

from __future__ import annotations

import numpy as np

from ps2stream.dispatcher.shedding_columns import NOTHING_SHED, prepare_columns
from ps2stream.multicast.capping_kernels import SAMPLED, SHED, WHOLE


def test_what_may_not_be_shed_is_not_sampled_either() -> None:
    may_shed, sampled = np.array([True, True, False, False]), np.array([True, False, True, False])
    columns = prepare_columns(
        2.5, True, may_shed, sampled, np.zeros(4), terms=9, workers=65, fan=np.zeros(64, np.int64)
    )
    assert columns.state.tolist() == [SAMPLED, SHED, WHOLE, WHOLE]
    assert columns.cut.shape == (4, 2)
    assert (len(columns.lost), len(columns.copies)) == (9, 65)
    kinds = [getattr(column, "dtype", type(column)) for column in columns]
    nothing = [getattr(column, "dtype", type(column)) for column in NOTHING_SHED]
    assert kinds[1:] == nothing[1:]  # or the kernel would be compiled twice
    assert isinstance(NOTHING_SHED.targets, float)
