"""Clients of the simulator that replace queries: batches whose rows may be of one query, sent until
they are answered, and copies of them that come late or through another dispatcher.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ps2stream.errors import ResourceExhausted, Unavailable
from ps2stream.language.expression import compile_column
from ps2stream.language.query_rows import build_rows
from ps2stream.protocol.frame import column_to_strings, strings_to_column
from ps2stream.protocol.messages.updates import UpdateStatus
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.service.query_columns import make_replacements
from ps2stream.space.regions import Region
from tests import naive
from tests.sim.clients import call, reach
from tests.sim.clock import Task

if TYPE_CHECKING:
    from tests.sim.world import World

Wanted = tuple[str, str, str, Region]
"""The id of a query, its session, its expression and its region."""
Source = tuple[str, str, bytes]
"""The session of a query, its id and its source."""


class Stored(NamedTuple):
    """An insert in the ledger. form: the canonical part of its source."""

    lsn: int
    session: str
    name: str
    source: bytes
    form: bytes


class Replacements:
    """The replacements of one world. No two requests have a row of the same source, as what they
    typed differs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = random.Random(f"{world.seed} replacements")
        self._conditions = random.Random(f"{world.seed} conditions")
        self._serial = 0
        self._answers: dict[Source, set[int]] = {}
        # The handle that a request may replace, and which of those it was refused for.
        self._wanted: dict[Source, int] = {}
        self._refused: set[Source] = set()

    def begin(
        self, where: int, wanted: Sequence[Wanted], copies: Sequence[tuple[int, int]]
    ) -> None:
        """Replace these queries as one request. copies: after so many ms, through this
        dispatcher."""
        self._serial += 1
        rows = QueryRows.concat([self._compile(i, *query) for i, query in enumerate(wanted)])
        sessions = [session for _, session, _, _ in wanted]
        if_lsn = self._draw_condition(wanted)
        sources = _list_sources(rows)
        for source, (name, session, expression, region) in zip(sources, wanted, strict=True):
            query = naive.Query(name, session, expression, region.to_json())
            self._world.sources[session, name, source] = query
            self._answers[session, name, source] = set()
            self._wanted[session, name, source] = if_lsn
        numbers = np.arange(len(rows))
        request = *make_replacements(rows, numbers, f"replace {self._serial}", if_lsn), sessions
        for after, through in ((0, where), *copies):
            self._world.clock.spawn(self._send(after, through, *request))

    def _draw_condition(self, wanted: Sequence[Wanted]) -> int:
        """Draws the LSN of the query that a request for one may replace, 0 for any: mostly the
        last one of which somebody was told, as of a client that reads and then writes."""
        known = [lsn for lsn, kind, name in self._world.updates
                 if kind == "insert" and name == wanted[0][0]]  # fmt: skip
        if len(wanted) > 1 or not known or self._conditions.random() < 0.5:
            return 0
        return max(known) if self._conditions.random() < 0.8 else self._conditions.choice(known)

    def _compile(
        self, number: int, name: str, _: str, expression: str, region: Region
    ) -> QueryRows:
        world = self._world
        typed = strings_to_column([f"{expression}{' ' * number}{chr(9) * self._serial}"])
        compiled = compile_column(*typed, world.analyzer, world.frequencies)
        assert not compiled.errors
        return build_rows(strings_to_column([name]), compiled, [region], typed)

    def _send(
        self, after: int, where: int, rows: QueryRows, request_ids: list[str], sessions: list[str]
    ) -> Task:
        world, what = self._world, f"replace {request_ids}"
        world.open.append(what)
        yield after
        while True:
            process = reach(world, self._rng, where)
            if process is None:
                yield 100
                continue
            try:
                decision = yield call(
                    world, process, lambda edge: edge.update(rows, sessions, request_ids)
                )
            except (Unavailable, ResourceExhausted):
                where = self._rng.randrange(world.topology.dispatchers)
                yield self._rng.randint(20, 400)
                continue
            if (decision.status == int(UpdateStatus.UNAVAILABLE)).any():
                yield self._rng.randint(20, 400)
                continue
            break
        world.open.remove(what)
        world.answered += 1
        self._note_answer(rows, sessions, decision)

    def _note_answer(self, rows: QueryRows, sessions: list[str], decision: Any) -> None:
        world, names = self._world, column_to_strings(rows.id_off, rows.id)
        answer = zip(decision.status.tolist(), decision.lsn.tolist(), strict=True)
        for session, name, source, (status, lsn) in zip(
            sessions, names, _list_sources(rows), answer, strict=True
        ):
            world.tell(f"replace {name} of {session}: {UpdateStatus(status).name} {lsn}")
            if status == UpdateStatus.OK:
                self._answers[session, name, source].add(lsn)
                world.updates.append((lsn, "insert", name))
                world.known = max(world.known, lsn)
            elif status == UpdateStatus.FAILED_PRECONDITION:
                self._refused.add((session, name, source))

    def judge(self, sessions: dict[int, str], history: Sequence[QueryRows], ends: set[int]) -> None:
        """Every replacement is one LSN, done once, and answered with the LSN of its query. ends:
        the LSNs at which queries ended by themselves."""
        wrong = self._world.wrong
        inserts, deletes = _read_history(sessions, history)
        for lsn, name in deletes:
            new, asked = inserts.get(lsn), self._world.ledger.requests_at.get(lsn, ("", ""))
            is_delete = asked[0] == name and "\0" not in asked[1]
            if lsn not in ends and not is_delete and (new is None or new.name != name):
                wrong(f"{name} ended at {lsn}, without a delete or another query")
        died = {
            handle: lsn
            for rows in history
            for kind, handle, lsn in zip(
                rows.kind, rows.handle.tolist(), rows.lsn.tolist(), strict=True
            )
            if kind == UpdateKind.DELETE
        }
        done: dict[Source, int] = {}
        for new in inserts.values():
            source = new.session, new.name, new.source
            if source in self._answers and source in done:
                wrong(f"the replacement {source} was done at {done[source]} and at {new.lsn}")
            done[source] = new.lsn
            if (handle := self._wanted.get(source, 0)) and died.get(handle) != new.lsn:
                wrong(f"the replacement {source} of {handle} alone was done at {new.lsn}")
        for source in self._refused:
            if not (handle := self._wanted[source]) or handle not in died:
                wrong(f"the replacement {source} of {handle} was refused while it lived")
        for source, answers in self._answers.items():
            for lsn in answers:
                found = inserts[lsn]
                if (found.session, found.name, found.form) != (*source[:2], _find_form(source[2])):
                    wrong(f"the replacement {source} was answered with {lsn}, which is {found}")
                # A copy may have come while the same query lived, but not behind the first.
                if lsn > done.get(source, lsn):
                    wrong(f"the replacement {source} at {done[source]} was answered with {lsn}")


def _list_sources(rows: QueryRows) -> list[bytes]:
    """Returns the source of each row."""
    raw, at = rows.source.tobytes(), rows.source_off.tolist()
    return [raw[a:b] for a, b in pairwise(at)]


def _find_form(source: bytes) -> bytes:
    """Returns a source without what was typed: equal for equal queries."""
    return source.rpartition(b"\0")[0]


def _read_history(
    sessions: dict[int, str], history: Sequence[QueryRows]
) -> tuple[dict[int, Stored], list[tuple[int, str]]]:
    """Returns the inserts of a ledger by LSN, and the LSN and id of its deletes."""
    inserts: dict[int, Stored] = {}
    deletes: list[tuple[int, str]] = []
    for rows in history:
        names, sources = column_to_strings(rows.id_off, rows.id), _list_sources(rows)
        for i, (name, source) in enumerate(zip(names, sources, strict=True)):
            lsn = int(rows.lsn[i])
            if rows.kind[i] == UpdateKind.DELETE:
                deletes.append((lsn, name))
                continue
            session = sessions[int(rows.session[i])]
            inserts[lsn] = Stored(lsn, session, name, source, _find_form(source))
    return inserts, deletes
