"""The deliveries that a stream should have made, by brute force from the definition.

Plain Python over every query for each sampled object: the expression on the words of the
object's text, the region on its point, and `insert_lsn <= lsn < delete_lsn` (semantics.md 1).
Nothing of the index, the grid or the routing is used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.language.expression import Expr, parse, satisfies
from ps2stream.protocol.rows import NEVER
from ps2stream.space.regions import Region

Place = tuple[int, int]  # (partition, offset): an object as the service names it


@dataclasses.dataclass(slots=True)
class TrackedQuery:
    """A query and the LSNs between which it was live."""

    id: str
    expression: Expr | None
    region: Region | None
    insert_lsn: int
    delete_lsn: int = int(NEVER)


@dataclasses.dataclass(frozen=True, slots=True)
class SampledObject:
    """A published object and the LSN that its acknowledgement named."""

    place: Place
    lsn: int
    lon: float
    lat: float
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class DeliveryDifference:
    """An object whose deliveries differ from brute force, with sorted query ids."""

    place: Place
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    repeated: tuple[str, ...]


class BruteForceOracle:
    """Keeps every acknowledged query, and compares deliveries with brute force."""

    def __init__(self, analysis: Analysis) -> None:
        self._analyzer = Analyzer(analysis)
        self._queries: list[TrackedQuery] = []
        self._live: dict[str, TrackedQuery] = {}

    def __len__(self) -> int:
        return len(self._queries)

    def inserted(self, id: str, expression: str, region: Region | None, lsn: int) -> None:
        """Records an insert that the service acknowledged with this LSN."""
        expr = parse(expression, self._analyzer) if expression else None
        self._live[id] = query = TrackedQuery(id, expr, region, lsn)
        self._queries.append(query)

    def deleted(self, id: str, lsn: int) -> None:
        """Records a delete that the service acknowledged with this LSN."""
        self._live.pop(id).delete_lsn = lsn

    def expected(self, sample: SampledObject) -> list[str]:
        """Returns the sorted ids of the queries that match the object as of its LSN."""
        words = self._analyzer.text_words(sample.text)
        return sorted(
            query.id
            for query in self._queries
            if query.insert_lsn <= sample.lsn < query.delete_lsn
            and (query.expression is None or satisfies(query.expression, words))
            and (query.region is None or query.region.contains(sample.lon, sample.lat))
        )

    def differences(
        self, samples: Iterable[SampledObject], delivered: Mapping[Place, list[str]]
    ) -> Iterator[DeliveryDifference]:
        """Yields the samples whose delivered ids are not exactly the expected ones, each once."""
        for sample in samples:
            want = self.expected(sample)
            got = sorted(delivered.get(sample.place, ()))
            if want != got:
                yield DeliveryDifference(
                    sample.place,
                    missing=tuple(sorted(set(want) - set(got))),
                    unexpected=tuple(sorted(set(got) - set(want))),
                    repeated=tuple(a for a, b in pairwise(got) if a == b),
                )
