"""Objects with ends, for tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.rows import ObjectRows
from tests.support.ends import ANALYZER

Thing = tuple[str, str, int]  # id, text, end in ms, 0 for none


def objects(things: Sequence[Thing]) -> ObjectRows:
    """Objects at 0, 0, analysed."""
    n = len(things)
    ids = strings_to_column([id for id, _, _ in things])
    texts = strings_to_column([text for _, text, _ in things])
    time, place = np.zeros(n, np.int64), np.zeros(n)
    rows = ObjectRows(*ids, time, place, place, *texts, *ANALYZER.analyse(*texts))
    return dataclasses.replace(rows, until=np.array([end for _, _, end in things], np.int64))
