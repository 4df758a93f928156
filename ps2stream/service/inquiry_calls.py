"""The calls of ps2stream.v1.PubSub that explain a match, and estimate what a query costs."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ps2stream.dispatcher.gateway import DispatcherGateway, QueryEstimate
from ps2stream.errors import FailedPrecondition, InvalidArgument, NotFound, Violation, invalid
from ps2stream.language.attribute_values import values_of
from ps2stream.language.boolean import ANY_TEXT, Expr
from ps2stream.language.expression import hash_literals
from ps2stream.language.expression import parse as parse_expression
from ps2stream.language.posting import list_units
from ps2stream.limits import QUERY_BYTES
from ps2stream.protocol.rows import QueryRows
from ps2stream.routing.unit_kernels import LEVEL_SHIFT
from ps2stream.service import query_columns
from ps2stream.service.calls import name_problem, parse, wait
from ps2stream.service.explanation import reason_of, region_test, unit_of
from ps2stream.service.objects import read_objects
from ps2stream.service.open_calls import OpenCall
from ps2stream.service.typed_clauses import typed_clause
from ps2stream.space.region_rows import decode_region
from ps2stream.v1 import explain_pb2, object_pb2, query_pb2

Call = Callable[[bytes, OpenCall], bytes]
NEWEST = 1 << 62
"""A handle above all others, for a query as if it were inserted now."""
MOST_TERMS = 1000
_US_PER_S = 1e6
_Z = 1.959964  # 95% of a normal distribution lie within this many deviations


class InquiryCalls:
    """The calls of one tenant that change nothing."""

    def __init__(self, gateway: DispatcherGateway) -> None:
        self._gateway = gateway
        self.calls: dict[str, Call] = {
            "ExplainMatch": self._explain_match,
            "PriceQuery": self._price_query,
        }

    def _explain_match(self, data: bytes, call: OpenCall) -> bytes:
        request = parse(explain_pb2.ExplainMatchRequest, data, QUERY_BYTES, "query_bytes")
        batch = object_pb2.ObjectBatch(objects=[request.object])
        objects = read_objects(batch, self._gateway.clock_ms())
        if refused := objects.refusals():
            raise InvalidArgument([Violation(f"object.{r.field}", r.description) for r in refused])
        query, lsn, row = self._find_query(request, call)
        analyzer = self._gateway.analyzer
        meeting = self._gateway.meeting(row, objects.analyse(analyzer))
        terms = analyzer.tokens(request.object.text)
        attributes = values_of(request.object.attributes)
        words = analyzer.text_words(request.object.text, attributes)
        expression = self._parse_expression(query.expression)
        answer = explain_pb2.ExplainMatchResponse(
            matches=meeting.matches,
            query=query,
            query_lsn=lsn,
            terms=terms[:MOST_TERMS],
            region=region_test(
                decode_region(int(row.shape[0]), row.geom), objects.lon[0], objects.lat[0]
            ),
            plan_version=meeting.plan_version,
            level=meeting.here >> LEVEL_SHIFT,
            cells=len(meeting.cells),
            postings=meeting.postings,
            sent_to=meeting.sent_to,
            sent_to_one_of=(
                explain_pb2.WorkerGroup(workers=group) for group in meeting.sent_to_one_of
            ),
        )
        if expression is not None:
            answer.text.CopyFrom(typed_clause(query.expression, analyzer, words))
        names = [] if expression is None else list_units(expression)
        posted = dict(zip(hash_literals(analyzer, names).tolist(), names, strict=True))
        bounds, is_decided = self._gateway.grid.bounds(meeting.here), False
        for at, term in enumerate(meeting.terms.tolist()):
            unit = unit_of(meeting, at, posted.get(term, ANY_TEXT), bounds)
            unit.in_object = unit.term == ANY_TEXT or words.offers(unit.term)
            unit.decides = unit.posted and unit.in_object and not is_decided
            if unit.decides:
                is_decided = True
                if meeting.matches and not unit.workers:
                    answer.worker = unit.worker
            answer.units.append(unit)
        answer.reason = reason_of(answer)
        return answer.SerializeToString()

    def _find_query(
        self, request: explain_pb2.ExplainMatchRequest, call: OpenCall
    ) -> tuple[query_pb2.Query, int, QueryRows]:
        """Returns the query that a request is about: as it is shown, its LSN, and its row."""
        if request.HasField("query"):
            if request.query_id:
                raise invalid("query", "is given with query_id; give one of them")
            row = self._read_query(request.query)
            [query] = query_columns.describe_rows(row, [""])
            query.id = ""
            return query, 0, row
        if problem := name_problem(request.query_id, "id"):
            raise invalid("query_id", problem)
        reply = wait(self._gateway.lookup(request.query_id, 0, 0, 1), call)
        for query, lsn in query_columns.describe(reply):
            return query, lsn, QueryRows.decode(reply.rows.data)
        raise NotFound(f"there is no query {request.query_id!r}")

    def _read_query(self, query: query_pb2.Query) -> QueryRows:
        """Returns the row of a query as if it were inserted now. Raises InvalidArgument."""
        query.id, query.session = query.id or "-", query.session or "-"
        rows = query_columns.read_query(query, self._gateway).rows
        return rows.replace(handle=np.array([NEWEST]))

    def _parse_expression(self, expression: str) -> Expr | None:
        return parse_expression(expression, self._gateway.analyzer) if expression else None

    def _price_query(self, data: bytes, call: OpenCall) -> bytes:
        request = parse(explain_pb2.PriceQueryRequest, data, QUERY_BYTES, "query_bytes")
        price = self._gateway.price(self._read_query(request.query))
        if price is None:
            raise FailedPrecondition(
                "this dispatcher has no sample of recent objects to estimate from: it accepted "
                "none, or sample_objects is 0"
            )
        return answer_of(price).SerializeToString()


def answer_of(price: QueryEstimate) -> explain_pb2.PriceQueryResponse:
    """Returns the estimate as a message."""
    share = price.matches_per_second / price.objects_per_second
    low, high = interval(share, price.effective)
    load = float(price.load.sum())
    answer = explain_pb2.PriceQueryResponse(
        matches_per_second=price.matches_per_second,
        matches_low=low * price.objects_per_second,
        matches_high=high * price.objects_per_second,
        sampled=price.sampled,
        matched=len(price.matched),
        window_s=price.window_s,
        objects_per_second=price.objects_per_second,
        level=int(price.cells[0] >> LEVEL_SHIFT),
        cells=len(price.cells),
        postings=price.tags,
        checks_per_second=float(price.checks.sum()),
        copies_per_second=float(price.copies.sum()),
        load_us_per_second=load,
        load_share=load / _US_PER_S,
    )
    for worker in np.flatnonzero(price.postings).tolist():
        own = float(price.load[worker])
        answer.workers.add(
            worker=worker,
            postings=int(price.postings[worker]),
            load_us_per_second=own,
            load_share=own / _US_PER_S,
        )
    return answer


def interval(share: float, of: float) -> tuple[float, float]:
    """Returns the bounds of a share: where a sample of size `of` has this share, all have one
    within the bounds with a probability of 95% (Wilson's interval)."""
    z2 = _Z * _Z
    middle = (share + z2 / (2 * of)) / (1 + z2 / of)
    half = _Z * math.sqrt(share * (1 - share) / of + z2 / (4 * of * of)) / (1 + z2 / of)
    return max(0.0, middle - half) if share else 0.0, min(1.0, middle + half)
