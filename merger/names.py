"""The names of queries: handle -> the client's id, for the queries of a merger's sessions.

Handles are added in rising order, so a name is found by binary search in growing columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ps2stream.merger.kernels import NONE, find_rows, take_spans
from ps2stream.protocol.frame import I64, U8, sealed
from ps2stream.protocol.wire import StringColumn
from ps2stream.tenants import own_start

MIN_COMPACT = 1_024


class QueryNames:
    """The names of live queries, and of deleted ones until they are forgotten."""

    def __init__(self) -> None:
        self._handle = _GrowingColumn(np.int64)
        self._start = _GrowingColumn(np.int64)
        self._end = _GrowingColumn(np.int64)
        self._data = _GrowingColumn(np.uint8)
        self._alive = _GrowingColumn(np.bool_)
        self._dead = 0

    def __len__(self) -> int:
        return self._handle.size - self._dead

    def add(self, handles: I64, off: I64, data: U8) -> None:
        """Adds rising handles, above all earlier ones, with their stored ids, which begin with the
        tenant; a name is the part that the client chose."""
        base = self._data.size - int(off[0])
        self._handle.append(handles)
        self._start.append(own_start(off, data) + base)
        self._end.append(off[1:] + base)
        self._data.append(data[off[0] : off[-1]])
        self._alive.append(np.ones(len(handles), np.bool_))

    def known(self, handles: I64) -> NDArray[np.bool_]:
        """Returns bool[n]: which of these handles have a name here."""
        known: NDArray[np.bool_] = self._find_rows(handles)[0] != NONE
        return known

    def of(self, handles: I64) -> StringColumn:
        """Returns the ids of these handles, without tenants. Raises KeyError for an unknown one."""
        found = self.find(handles)
        if found is None:
            raise self._unknown_error(handles)
        return found

    def find(self, handles: I64) -> StringColumn | None:
        """Returns the ids of these handles, without tenants; None if one is unknown."""
        at, missing = self._find_rows(handles)
        if missing:
            return None
        out: StringColumn = take_spans(
            sealed(self._start.view()), sealed(self._end.view()), sealed(self._data.view()), at
        )
        return out

    def kept(self, handles: I64) -> StringColumn:
        """Returns the stored ids of these handles, with tenants. Raises KeyError as `of` does."""
        at, missing = self._find_rows(handles)
        if missing:
            raise self._unknown_error(handles)
        return self._take_stored_ids(at)

    def forget(self, handles: I64) -> None:
        """Drops the names of these handles; unknown ones are ignored."""
        at, _ = self._find_rows(handles)
        at = at[at != NONE]
        alive = self._alive.view()
        self._dead += int(alive[at].sum())
        alive[at] = False
        if self._dead > MIN_COMPACT and 2 * self._dead > self._handle.size:
            self._drop_dead_rows()

    def _find_rows(self, handles: I64) -> tuple[I64, int]:
        """Returns the row of each handle, NONE for one without a name, and how many have none."""
        found: tuple[I64, int] = find_rows(
            sealed(self._handle.view()), sealed(self._alive.view()), sealed(handles)
        )
        return found

    def _unknown_error(self, handles: I64) -> KeyError:
        unknown = handles[~self.known(handles)]
        return KeyError(f"no name for query {int(unknown[0])}")

    def _drop_dead_rows(self) -> None:
        """Rewrites the columns without the rows of dropped names."""
        at = np.flatnonzero(self._alive.view())
        handles = self._handle.view()[at]
        off, data = self._take_stored_ids(at)
        self.__init__()  # type: ignore[misc]
        self.add(handles, off, data)

    def _take_stored_ids(self, at: I64) -> StringColumn:
        """Returns the stored ids in these rows: each begins where the one before ends."""
        end = self._end.view()
        start = np.where(at > 0, end[at - 1], 0)
        rows = np.arange(len(at))
        out: StringColumn = take_spans(
            sealed(start), sealed(end[at]), sealed(self._data.view()), rows
        )
        return out


class _GrowingColumn:
    """A column that grows by doubling."""

    def __init__(self, dtype: Any) -> None:
        self.size = 0
        self._buffer = np.zeros(1_024, dtype)

    def append(self, values: NDArray[Any]) -> None:
        end = self.size + len(values)
        if end > len(self._buffer):
            grown = np.zeros(max(end, 2 * len(self._buffer)), self._buffer.dtype)
            grown[: self.size] = self.view()
            self._buffer = grown
        self._buffer[self.size : end] = values
        self.size = end

    def view(self) -> NDArray[Any]:
        return self._buffer[: self.size]
