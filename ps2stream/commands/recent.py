"""Input for the planner from a running service: recent objects and live queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

from ps2stream.commands.output import CommandOutput
from ps2stream.errors import Unavailable

if TYPE_CHECKING:
    from ps2stream.client.requests import Query
    from ps2stream.routing.plan import RoutingPlan

LISTED = 10_000


def recent(
    output: CommandOutput,
    targets: tuple[str, ...],
    seed: int,
    report: Callable[[str], None],
    listed: Callable[[list[Query]], None] = lambda queries: None,
) -> tuple[list[Any], list[Any]]:
    """Fetches recent objects of these dispatchers and the live queries, as batches of
    objects.OBJECTS and updates.UPDATES. `listed` receives the queries too. Raises Unavailable
    naming the dispatcher that does not answer."""
    from ps2stream.planner.recent import together
    from ps2stream.planner.updates import of_records

    samples: list[Any] = []
    updates: list[Any] = []
    for number, target in enumerate(targets):
        with _name_target_in_errors(target), output.connect(target) as client:
            report(f"{target}: sampling recent objects")
            samples.append(client.sample())
            # Every dispatcher lists all queries, so the first one suffices.
            rows = client.list_all() if number == 0 else iter(())
            while some := list(islice(rows, LISTED)):
                listed(some)
                updates.append(of_records((f"{target}: {q.id}", _query_record(q)) for q in some))
                report(f"{target}: {sum(map(len, updates)):,} live queries")
    return together(samples, seed).to_batches() if samples else [], updates


def running_plan(output: CommandOutput, target: str) -> RoutingPlan:
    """Fetches the plan in force from this dispatcher. Raises Unavailable naming the dispatcher."""
    import json

    from ps2stream.routing.plan import RoutingPlan

    with _name_target_in_errors(target), output.connect(target) as client:
        return RoutingPlan.from_dict(json.loads(client.plan()))


@contextmanager
def _name_target_in_errors(target: str) -> Iterator[None]:
    try:
        yield
    except (Unavailable, TimeoutError) as error:
        why = str(error) or "no answer in time"
        raise Unavailable(f"--from-service {target}: {why}") from None


def _query_record(query: Query) -> dict[str, Any]:
    region = query.region.to_json() if query.region is not None else None
    return {"id": query.id, "expression": query.expression, "region": region}
