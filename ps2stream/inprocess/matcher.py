"""`ps2stream.Matcher`: queries that are indexed once, and objects that come one at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ps2stream.client.inputs import object_batch
from ps2stream.errors import invalid, short
from ps2stream.inprocess.matching import build_index
from ps2stream.inprocess.object_batches import list_batches
from ps2stream.planner.counting import ragged
from ps2stream.protocol.frame import I64
from ps2stream.service.objects import read_objects


class Matcher:
    """Finds the queries that an object satisfies, one object a call.

        matcher = ps2stream.Matcher([("thames", "flood AND river", Circle(-0.1, 51.5, 30))])
        matcher.match(-0.1, 51.5, "Flood by the river!")  # ["thames"]

    For many objects at once `ps2stream.match` is many times as fast. Not for several threads.
    """

    def __init__(
        self,
        queries: Any,
        *,
        stemmer: str | None = None,
        stop_words: str | None = None,
        fold: Iterable[str] = (),
        sample: Any = None,
    ) -> None:
        """Indexes queries. These and the other arguments are those of `ps2stream.match`. sample:
        objects like those to come, of which the first batch tells which words are rare; without
        it nothing is missed, but matching takes longer. Raises InvalidArgument naming the field of
        a bad query."""
        first = None if sample is None else next(list_batches(sample), None)
        self.index = build_index(queries, stemmer, stop_words, fold, first)
        self._off, ids = ragged(self.index.ids)
        self._ids = ids.tobytes()

    def match(
        self, lon: float, lat: float, text: str, attributes: Mapping[str, Any] | None = None
    ) -> list[str]:
        """Returns the ids of the queries that an object satisfies, in the order of the queries.
        lon, lat: degrees; attributes: by name, as `Client.publish` takes them. Raises
        InvalidArgument naming a bad field."""
        rows = self.match_rows(lon, lat, text, attributes)
        if not len(rows):
            return []
        begin, end = self._off[rows].tolist(), self._off[rows + 1].tolist()
        return [self._ids[a:b].decode() for a, b in zip(begin, end, strict=True)]

    def match_rows(
        self, lon: float, lat: float, text: str, attributes: Mapping[str, Any] | None = None
    ) -> I64:
        """Returns the rows of the queries whose ids `match` returns, from 0, int64, ascending."""
        try:
            lon, lat = float(lon), float(lat)
        except (TypeError, ValueError, OverflowError):
            raise invalid("lon, lat", f"expected degrees, got {short((lon, lat))}") from None
        if not isinstance(text, str):
            raise invalid("text", f"expected text, got {short(text)}")
        if not attributes:
            return self.index.match_one(lon, lat, text)
        record = {"lon": lon, "lat": lat, "text": text, "attributes": attributes}
        return self.index.match_columns(read_objects(object_batch([record]), 0)).query
