"""The judgement: what was delivered against brute force over the acknowledged history."""

from __future__ import annotations

import dataclasses

from ps2stream.protocol.frame import column_to_strings
from ps2stream.protocol.rows import NEVER, UpdateKind
from ps2stream.protocol.validity import find_validity
from tests import naive
from tests.sim.cluster import POISON
from tests.sim.validity import find_ends, find_missing_numbers
from tests.sim.world import World

Key = tuple[int, str]  # handle, object


class Judge:
    """Reads what clients saw and what the ledger was told; reports to `world.wrong`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.queries: dict[int, naive.Query] = {}
        self.died: dict[int, int] = {}
        self.inserted: dict[int, int] = {}  # by handle: the time that the insert carries
        self._read_ledger()

    def judge(self) -> None:
        world = self.world
        for what in world.ledger.broken:
            world.wrong(what)
        self._updates()
        sessions = {n: name.decode() for n, name in world.ledger.sessions()}
        ends = find_ends(world, self.queries)
        world.replacements.judge(sessions, world.ledger.history, ends)
        for process in world.current.values():
            for what, count in process.unanswered.items():
                if count:
                    world.wrong(f"{process.name} has never answered {what or 'a call'}")
        for move in self.world.moves():
            if move.get("missing") or move.get("surplus"):
                world.wrong(f"at the end of a move workers do not hold what they own: {move}")
        world.withdrawals.judge(sorted(self._must()))
        for name in world.boxes:
            self._session(name)

    def _read_ledger(self) -> None:
        sessions = {n: name.decode() for n, name in self.world.ledger.sessions()}
        for rows in self.world.ledger.history:
            ids = column_to_strings(rows.id_off, rows.id)
            validity = find_validity(rows)
            self.inserted |= dict(
                zip(rows.handle[validity.row].tolist(), validity.inserted.tolist(), strict=True)
            )
            with_retro = set(validity.row[validity.retro].tolist())
            for i, name in enumerate(ids):
                lsn, handle = int(rows.lsn[i]), int(rows.handle[i])
                if rows.kind[i] == UpdateKind.INSERT:
                    source = rows.source[rows.source_off[i] : rows.source_off[i + 1]].tobytes()
                    session = sessions[int(rows.session[i])]
                    query = self.world.sources[session, name, source]
                    # Requests with and without retro may be for the same query.
                    self.queries[lsn] = dataclasses.replace(query, retro=i in with_retro)
                else:
                    self.died[handle] = lsn

    def _updates(self) -> None:
        """Whatever was acknowledged stands in the ledger."""
        ends = {lsn: handle for handle, lsn in self.died.items()}
        for lsn, kind, name in self.world.updates:
            handle = lsn if kind == "insert" else ends.get(lsn, 0)
            if handle not in self.queries or self.queries[handle].id != name:
                self.world.wrong(f"the {kind} of {name} at {lsn} was acknowledged and is lost")

    def _expected(self, session: str) -> dict[str, set[Key]]:
        """By object: the pairs that it makes for this session."""
        out: dict[str, set[Key]] = {}
        world = self.world
        mine = [
            (query, handle, self.inserted.get(handle, 0), self.died.get(handle, NEVER))
            for handle, query in self.queries.items()
            if query.session == session
        ]
        for name, thing in world.things.items():
            withdrawn = world.withdrawals.find_lsn(name)
            out[name] = {
                (each[1], name)
                for each in mine
                if naive.meets(*each, thing.obj, thing.lsn, withdrawn)
            }
        return out

    def _session(self, session: str) -> None:
        world, box = self.world, self.world.boxes[session]
        wrong = world.wrong
        numbers = set(box.pairs) | box.lost | set(box.notices)
        if missing := find_missing_numbers(numbers, set(box.unknown)):
            wrong(f"{session}: the numbers {missing} never came")
        expected = self._expected(session)
        found: dict[Key, int] = {}
        for number, pair in sorted(box.pairs.items()):
            key = (pair.handle, pair.object_id)
            what = f"{session} #{number}: {pair}"
            if key in found:
                wrong(f"{what} came as #{found[key]} before")
            found[key] = number
            thing = world.things.get(pair.object_id)
            if thing is None or (thing.partition, thing.offset) != (pair.partition, pair.offset):
                wrong(f"{what} is of no object that was accepted: {thing}")
            elif key not in expected[pair.object_id]:
                query = self.queries.get(pair.handle)
                wrong(f"{what} is false: {query} to {self.died.get(pair.handle)}, {thing}")
            elif self.queries[pair.handle].id != pair.query_id:
                wrong(f"{what} names another query")
        room = len(box.lost - set(box.pairs)) + sum(box.unknown.values())
        missed = {key for name in self._must() for key in expected[name] - found.keys()}
        missed -= self._find_excused(session, missed) | self._find_shed(session, missed)
        missed -= self._find_withdrawn(missed)
        if len(missed) > room:
            some = sorted(missed)[:5]
            things = [(key, self.queries[key[0]], world.things[key[1]]) for key in some]
            wrong(f"{session}: {len(missed)} matches never came, {room} are in gaps: {things}")

    def _find_excused(self, session: str, missed: set[Key]) -> set[Key]:
        """Returns the matches of new queries with objects of before that may have been dropped:
        the session was told so. Nothing is dropped that is valid by clocks that agree, where there
        is room."""
        world, box = self.world, self.world.boxes[session]
        before = {key for key in missed if world.things[key[1]].lsn < key[0]}
        if not box.unknown:
            return set()
        may_drop = world.may_drop_valid or world.left_out
        if not may_drop and not world.clock.skews:
            world.wrong(f"{session} was told of objects that were dropped: {box.unknown}")
        return before

    def _find_shed(self, session: str, missed: set[Key]) -> set[Key]:
        """Returns the matches of objects that may have been shed: the session received a notice
        that covers the object, or a gap that may have replaced the notice."""
        world, box = self.world, self.world.boxes[session]

        def is_covered(name: str) -> bool:
            thing = world.things[name]
            return bool(box.lost) or any(
                notice.partition == thing.partition
                and notice.from_offset <= thing.offset < notice.to_offset
                for notice in box.notices.values()
            )

        may = world.sheddable - world.durable
        return {key for key in missed if key[1] in may and is_covered(key[1])}

    def _find_withdrawn(self, missed: set[Key]) -> set[Key]:
        """Returns the matches of new queries with objects of before that may have been withdrawn
        when they were sought."""
        world = self.world
        before = {key for key in missed if world.things[key[1]].lsn < key[0]}
        return {key for key in before if world.withdrawals.may_be_gone(key[1])}

    def _must(self) -> set[str]:
        """Objects that were acknowledged and had to be kept."""
        world = self.world
        kept = {name for name, process in world.accepted.items() if not process.over}
        return {n for n in world.durable | kept if POISON not in world.things[n].obj.text}
