"""The requests that are decided together, as the decision takes them.

Most of the time that is one request, whose rows nobody but the kernels reads: they stay as they
came. Several are joined; and a validity is stamped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ps2stream.protocol.frame import I64, U8, FrameError, take_ragged
from ps2stream.protocol.messages.updates import UpdateRequest
from ps2stream.protocol.rows import QueryRows
from ps2stream.protocol.validity import has_validity, stamp_inserts
from ps2stream.sequencer.columns import StringColumn, join_strings
from ps2stream.sequencer.registry import encode


class TakenRequests(NamedTuple):
    """The rows of some requests, end to end. rows: encoded QueryRows; names, request_ids: of their
    sessions, and those that they were sent with; counts: the rows of each request; read: the rows
    decoded, None where nobody needs them."""

    rows: U8
    names: StringColumn
    request_ids: StringColumn
    counts: list[int]
    read: QueryRows | None

    def without(self, at: I64) -> TakenRequests:
        """Returns them without the rows `at`, which are still counted; they must be read."""
        assert self.read is not None
        fit = np.setdiff1d(np.arange(len(self.read)), at)
        read = self.read.take(fit)
        columns = take_ragged(*self.names, fit), take_ragged(*self.request_ids, fit)
        return TakenRequests(encode(read), *columns, self.counts, read)


def take_requests(
    requests: Sequence[UpdateRequest], now_ms: int, is_read: bool = False
) -> TakenRequests:
    """Takes requests, at least one, at this time in Unix ms. is_read: whether somebody reads their
    rows. Raises FrameError for damaged rows."""
    first = requests[0]
    if len(requests) == 1 and not is_read and not _may_end(first.rows):
        names, request_ids = (first.name_off, first.name), (first.request_off, first.request)
        return TakenRequests(first.rows, names, request_ids, [len(first.name_off) - 1], None)
    parts = [QueryRows.decode(request.rows.data) for request in requests]
    names = join_strings([(r.name_off, r.name) for r in requests])
    request_ids = join_strings([(r.request_off, r.request) for r in requests])
    rows = stamp_inserts(QueryRows.concat(parts), now_ms)
    encoded = first.rows if rows is parts[0] else encode(rows)
    return TakenRequests(encoded, names, request_ids, list(map(len, parts)), rows)


def _may_end(rows: U8) -> bool:
    """Returns whether encoded rows have a validity, or are cut short."""
    try:
        return len(rows) < _HEAD or has_validity(rows)
    except FrameError:
        return True  # for whoever decodes them


_HEAD = QueryRows.head_bytes()
