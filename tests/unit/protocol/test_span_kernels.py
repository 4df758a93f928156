"""Copies of spans."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.protocol.frame import Array
from ps2stream.protocol.span_kernels import copy_span


@pytest.mark.parametrize("dtype", [np.uint8, np.int64])
@pytest.mark.parametrize("size", [0, 1, 7, 100])
def test_a_span_is_copied_and_nothing_else(size: int, dtype: type) -> None:
    data: Array = np.arange(120).astype(dtype)
    out: Array = np.full(130, 99, dtype)
    twin = out.copy()
    copy_span(out, 13, data, 11, size)
    twin[13 : 13 + size] = data[11 : 11 + size]
    assert (out == twin).all()
