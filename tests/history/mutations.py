"""Faults planted in a history that was fine: each is a service that breaks one promise.

A mutation changes the lines in place, and returns False where they have nothing to change.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator

from tests import naive
from tests.history.check import find_due
from tests.history.made import Line
from tests.history.matching import Objects
from tests.history.order import lsn_of
from tests.history.reading import Operation, Pair, object_of, query_of, read_lines
from tests.history.sessions import Session, find_sessions
from tests.history.verdict import Verdict

Lines = list[Line]
Mutation = Callable[[Lines, random.Random], bool]
MUTATIONS: dict[str, tuple[Mutation, str]] = {}
"""By name: what it does, and the kind of anomaly that it is; "" where it is none."""


def mutation(kind: str) -> Callable[[Mutation], Mutation]:
    def add(make: Mutation) -> Mutation:
        MUTATIONS[make.__name__] = make, kind
        return make

    return add


# --- deliveries --------------------------------------------------------------------------


@mutation("lost")
def drop_a_match(lines: Lines, rng: random.Random) -> bool:
    due = find_due(read_lines(lines))
    pairs = [
        (name, pair)
        for name, session in _sessions(lines).items()
        for pair in session.pairs.values()
        if (pair.handle, pair.object) in due[name]
    ]
    if not pairs:
        return False
    name, pair = rng.choice(pairs)
    _remove(lines, name, pair.number)
    return True


@mutation("unreported_gap")
def leave_out_a_number(lines: Lines, rng: random.Random) -> bool:
    name, session = rng.choice(sorted(_sessions(lines).items()))
    if session.highest < 3:
        return False
    number = rng.randint(2, session.highest)
    for line in _receipts(lines, name):
        line["first"] += line["first"] >= number
    fresh = (line for line in _receipts(lines, name) if line["first"] > number)
    last = (line for line in _receipts(lines, name) if line["first"] <= number)
    return next(fresh, None) is not None and all(
        line["first"] + len(line["pairs"]) <= number for line in last
    )


@mutation("")
def announce_a_gap(lines: Lines, rng: random.Random) -> bool:
    """What a quota drops is announced."""
    name, session = rng.choice(sorted(_sessions(lines).items()))
    last = list(_receipts(lines, name))[-1:]
    if not last or last[0]["first"] + len(last[0]["pairs"]) <= session.highest:
        return False
    line = last[0]
    first, count = line["first"], len(line["pairs"])
    if any(each is not line and each["first"] + len(each["pairs"]) > first
           for each in _receipts(lines, name)):  # fmt: skip
        return False
    for field in ("partition", "pairs", "objects", "first"):
        del line[field]
    line["gap"] = [first, first + count - 1, count]
    return True


@mutation("doubled")
def deliver_a_match_twice(lines: Lines, rng: random.Random) -> bool:
    session = rng.choice(list(_sessions(lines).values()))
    if not session.pairs:
        return False
    _append(lines, session, rng.choice(list(session.pairs.values())))
    return True


@mutation("twice")
def accept_an_object_twice(lines: Lines, rng: random.Random) -> bool:
    """A repeated publication is another one."""
    session = rng.choice(list(_sessions(lines).values()))
    if not session.pairs:
        return False
    pair = rng.choice(list(session.pairs.values()))
    _append(lines, session, pair._replace(place=(pair.place[0], 99_999)))
    return True


@mutation("renumbered")
def give_a_number_to_another_match(lines: Lines, rng: random.Random) -> bool:
    found: dict[tuple[str, int], Line] = {}
    for line in lines:
        for i in range(len(line.get("pairs", ()))):
            key = line["session"], line["first"] + i
            before = found.setdefault(key, line)
            if before is not line:
                line["pairs"][i] = [line["pairs"][i][0] + 1, "other", line["pairs"][i][2]]
                return True
    return False


@mutation("out_of_order")
def use_a_number_of_a_stream_again(lines: Lines, rng: random.Random) -> bool:
    streams = set()
    for line in lines:
        if "pairs" in line:
            if line["stream"] in streams:
                line["first"] -= 1
                return True
            streams.add(line["stream"])
    return False


@mutation("false")
def match_another_query(lines: Lines, rng: random.Random) -> bool:
    history = read_lines(lines)
    inserts = [each for each in history.of("insert") if each.is_known]
    rows = {r[0]: r for each in history.of("publish") for r in each.args["objects"]}
    for name, session in _sessions(lines).items():
        for pair in session.pairs.values():
            for insert in inserts:
                query, obj = query_of(insert), object_of(rows[pair.object])
                if query.session == name and not naive.matches(query, obj):
                    _append(lines, session, pair._replace(handle=lsn_of(insert), query=query.id))
                    return True
    return False


@mutation("false")
def deliver_to_another_session(lines: Lines, rng: random.Random) -> bool:
    one, other = _sessions(lines).values()
    if not one.pairs:
        return False
    _append(lines, other, rng.choice(list(one.pairs.values())))
    return True


@mutation("false")
def deliver_what_was_refused(lines: Lines, rng: random.Random) -> bool:
    history = read_lines(lines)
    came = {p.object for s in _sessions(lines).values() for p in s.pairs.values()}
    for operation in history.of("publish"):
        if came & {row[0] for row in operation.args["objects"]}:
            return _set_outcome(lines, operation, "refused")
    return False


@mutation("after_delete")
def match_a_deleted_query(lines: Lines, rng: random.Random) -> bool:
    return _match_ended(lines, lambda ender: ender.call == "delete")


@mutation("after_delete")
def match_a_replaced_query(lines: Lines, rng: random.Random) -> bool:
    return _match_ended(lines, lambda ender: ender.call == "insert" and ender.args["replace"])


@mutation("false")
def match_a_withdrawn_object(lines: Lines, rng: random.Random) -> bool:
    """By a new query with retro."""
    history = read_lines(lines)
    objects = Objects(history, Verdict())
    for withdrawal in history.of("withdraw"):
        name = withdrawal.args["ids"][0]
        if not withdrawal.is_known or name not in objects.by_id:
            continue
        operation, _, obj = objects.by_id[name]
        place = objects.place(name)
        if not obj.until or place is None or operation.ended >= withdrawal.begun:
            continue
        for insert in history.of("insert"):
            query = query_of(insert)
            if not (insert.is_known and insert.begun > withdrawal.ended and query.retro):
                continue
            if naive.matches(query, obj) and lsn_of(operation) < lsn_of(insert):
                pair = Pair(0, lsn_of(insert), query.id, name, place)
                _append(lines, _sessions(lines)[query.session], pair)
                return True
    return False


@mutation("altered")
def change_a_text(lines: Lines, rng: random.Random) -> bool:
    lined = [line for line in lines if line.get("objects")]
    if lined:
        rng.choice(lined)["objects"][0][4] += " more"
    return bool(lined)


# --- answers -----------------------------------------------------------------------------


@mutation("backwards")
def stamp_an_object_too_early(lines: Lines, rng: random.Random) -> bool:
    return _turn_back(lines, rng, ("publish",))


@mutation("backwards")
def give_an_update_an_old_lsn(lines: Lines, rng: random.Random) -> bool:
    return _turn_back(lines, rng, ("insert", "delete"))


@mutation("backwards")
def use_an_offset_again(lines: Lines, rng: random.Random) -> bool:
    known = [each for each in read_lines(lines).of("publish") if each.is_known]
    for operation in reversed(known):
        if operation.result["offset"] > 3:
            return _set_result(lines, operation, offset=0)
    return False


@mutation("misplaced")
def give_two_objects_one_place(lines: Lines, rng: random.Random) -> bool:
    return use_an_offset_again(lines, rng)


@mutation("misplaced")
def give_two_updates_one_lsn(lines: Lines, rng: random.Random) -> bool:
    known = [each for each in read_lines(lines).of("insert") if each.is_known]
    return len(known) > 1 and _set_result(lines, known[-1], lsn=lsn_of(known[-2]))


@mutation("twice")
def answer_a_repeat_anew(lines: Lines, rng: random.Random) -> bool:
    for operation in read_lines(lines).of("insert", "delete", "publish"):
        answered = [each for each in operation.attempts if each.outcome == "ok"]
        if len(answered) > 1:
            ends = [line for line in lines if line.get("result") == answered[-1].result]
            ends[-1]["result"] = {**ends[-1]["result"], "lsn": 99_999}
            return True
    return False


@mutation("forgotten")
def forget_an_insert(lines: Lines, rng: random.Random) -> bool:
    """Its id is free, and given away again."""
    history = read_lines(lines)
    for insert in history.of("insert"):
        others = [e for e in history.of("insert", "delete") if e.args["id"] == insert.args["id"]]
        if insert.is_known and others == [insert]:
            args = {**insert.args, "expression": "other"}
            _call(lines, "insert", args, {"lsn": 99_999})
            return True
    return False


@mutation("forgotten")
def forget_what_is_to_be_deleted(lines: Lines, rng: random.Random) -> bool:
    history = read_lines(lines)
    for insert in history.of("insert"):
        others = [e for e in history.of("insert", "delete") if e.args["id"] == insert.args["id"]]
        if insert.is_known and others == [insert]:
            _call(lines, "delete", {"id": insert.args["id"]}, {"code": "NOT_FOUND"}, "refused")
            return True
    return False


@mutation("forgotten")
def accept_a_part(lines: Lines, rng: random.Random) -> bool:
    for operation in read_lines(lines).of("publish"):
        if operation.is_known:
            return _set_result(lines, operation, accepted=0)
    return False


@mutation("stale")
def read_of_before_the_insert(lines: Lines, rng: random.Random) -> bool:
    """An insert that was acknowledged is not read."""
    history = read_lines(lines)
    for read in history.of("get"):
        of = [e for e in history.of("insert", "delete") if e.args["id"] == read.args["id"]]
        if read.result and all(e.call == "insert" and not e.args["replace"] for e in of):
            return _set_result(lines, read, None)
    return False


@mutation("stale")
def read_of_before_the_replacement(lines: Lines, rng: random.Random) -> bool:
    history = read_lines(lines)
    inserts = {lsn_of(e): e for e in history.of("insert") if e.is_known}
    for read in history.of("get"):
        for lsn, older in sorted(inserts.items()):
            if not read.result or older.args["id"] != read.args["id"] or lsn >= read.result["lsn"]:
                continue
            newer = inserts.get(read.result["lsn"])
            if newer is not None and newer.ended < read.begun:
                same = {name: older.args[name] for name in ("session", "expression")}
                return _set_result(lines, read, lsn=lsn, **same)
    return False


@mutation("altered")
def read_another_expression(lines: Lines, rng: random.Random) -> bool:
    for read in read_lines(lines).of("get"):
        if read.result:
            return _set_result(lines, read, expression="other")
    return False


# --- what nobody was told ----------------------------------------------------------------


@mutation("")
def lose_the_answers_of_an_insert(lines: Lines, rng: random.Random) -> bool:
    """Its handle tells what has become of it."""
    return _lose_answers(lines, "insert") is not None


@mutation("")
def lose_the_answers_of_a_delete(lines: Lines, rng: random.Random) -> bool:
    return _lose_answers(lines, "delete") is not None


@mutation("")
def lose_the_answers_of_a_publication(lines: Lines, rng: random.Random) -> bool:
    return _lose_answers(lines, "publish") is not None


@mutation("lost")
def drop_a_match_of_an_insert_without_an_answer(lines: Lines, rng: random.Random) -> bool:
    handle = _lose_answers(lines, "insert")
    due = find_due(read_lines(lines))
    for name, session in _sessions(lines).items():
        of = [pair for pair in session.pairs.values() if pair.handle == handle]
        for pair in of if len({pair.object for pair in of}) > 1 else ():
            if (handle, pair.object) in due[name]:
                _remove(lines, name, pair.number)
                return True
    return False


@mutation("false")
def match_as_of_two_lsns(lines: Lines, rng: random.Random) -> bool:
    """An object that nobody was told of, by a query and by one that came once that was deleted."""
    history = read_lines(lines)
    objects = Objects(history, Verdict())
    for insert, ender in _find_ended(lines, lambda ender: ender.call == "delete"):
        for name, session in _sessions(lines).items():
            for pair in session.pairs.values():
                operation, _, obj = objects.by_id[pair.object]
                query = query_of(insert)
                late = pair.handle >= lsn_of(ender) and not obj.until and operation.is_known
                if late and naive.matches(query, obj) and query.session == name:
                    _set_outcome(lines, operation, "unknown")
                    _append(lines, session, pair._replace(handle=lsn_of(insert), query=query.id))
                    return True
    return False


@mutation("unsettled")
def break_off(lines: Lines, rng: random.Random) -> bool:
    del lines[-1]
    return True


# --- helpers -----------------------------------------------------------------------------


def _sessions(lines: Lines) -> dict[str, Session]:
    return find_sessions(read_lines(lines), Verdict())


def _receipts(lines: Lines, session: str) -> Iterator[Line]:
    for line in lines:
        if "pairs" in line and line["session"] == session:
            yield line


def _remove(lines: Lines, session: str, number: int) -> None:
    """A pair, wherever it came; the others move up."""
    for line in lines:
        if line.get("call") == "deliver" and line["args"]["session"] == session:
            line["args"]["after"] -= line["args"]["after"] >= number
    for line in list(_receipts(lines, session)):
        i = number - line["first"]
        if 0 <= i < len(line["pairs"]):
            del line["pairs"][i]
            if not line["pairs"]:
                lines.remove(line)
        elif i < 0:
            line["first"] -= 1


def _append(lines: Lines, session: Session, pair: Pair) -> None:
    """One more, as the last."""
    last = copy.deepcopy([line for line in lines if pair.object in _ids(line)][:1])
    rows = [row for line in last for row in line["objects"] if row[0] == pair.object]
    if not rows:
        found = [r for e in read_lines(lines).of("publish") for r in e.args["objects"]]
        rows = [[r[0], 0, *r[1:5]] for r in found if r[0] == pair.object]
    row = [pair.object, pair.place[1], *rows[0][2:]]
    stream = [line["stream"] for line in _receipts(lines, session.name)]
    opened = [e["begin"] for e in lines if e.get("call") == "deliver"
              and e["args"]["session"] == session.name]  # fmt: skip
    receipt = {
        "session": session.name, "stream": stream[-1] if stream else opened[-1],
        "first": session.highest + 1, "partition": pair.place[0],
        "pairs": [[pair.handle, pair.query, 0]], "objects": [row],
    }  # fmt: skip
    lines.insert(-1, {"at": lines[-1]["at"], **receipt})


def _ids(line: Line) -> list[str]:
    return [row[0] for row in line.get("objects", ())]


def _call(lines: Lines, call: str, args: Line, result: Line, outcome: str = "ok") -> None:
    at, number = lines[-1]["at"], 1 + max(line.get("begin", 0) for line in lines)
    begin = {"begin": number, "process": "late", "call": call, "operation": "late", "args": args}
    lines.insert(-1, {"at": at - 1, **begin})
    lines.insert(-1, {"at": at, "end": number, "outcome": outcome, "result": result})


def _ends(lines: Lines, operation: Operation) -> list[Line]:
    calls = {line["begin"] for line in lines if line.get("operation") == operation.name}
    return [line for line in lines if line.get("end") in calls]


def _set_outcome(lines: Lines, operation: Operation, outcome: str) -> bool:
    for line in _ends(lines, operation):
        line["outcome"], line["result"] = outcome, {}
    return len(_ends(lines, operation)) == len(operation.attempts)


def _set_result(lines: Lines, operation: Operation, /, *nothing: None, **values: object) -> bool:
    for line in _ends(lines, operation):
        if line["outcome"] == "ok":
            line["result"] = {} if nothing else {**line["result"], **values}
    return True


def _turn_back(lines: Lines, rng: random.Random, calls: tuple[str, ...]) -> bool:
    history = read_lines(lines)
    for operation in reversed(history.of(*calls)):
        before = [
            lsn_of(each)
            for each in history.of("insert", "delete")
            if each.is_known and each.ended < operation.begun
        ]
        if operation.is_known and max(before, default=0) > 1:
            return _set_result(lines, operation, lsn=max(before) - 1)
    return False


def _lose_answers(lines: Lines, call: str) -> int | None:
    """Of the last operation of this kind whose query or objects others do not build upon; the LSN
    that it had."""
    history = read_lines(lines)
    for operation in reversed(history.of(call)):
        name = operation.args.get("id")
        after = [e for e in history.of("insert", "delete", "get") if e.args.get("id") == name]
        if operation.is_known and (call == "publish" or after[-1] is operation):
            lsn = lsn_of(operation)
            _set_outcome(lines, operation, "unknown")
            return lsn
    return None


def _find_ended(
    lines: Lines, is_wanted: Callable[[Operation], bool]
) -> Iterator[tuple[Operation, Operation]]:
    """Inserts, each with what ended its query."""
    updates = read_lines(lines).of("insert", "delete")
    for insert in updates:
        later = [
            each
            for each in updates
            if insert.is_known and each.is_known and each.args["id"] == insert.args["id"]
            and lsn_of(each) > lsn_of(insert)
        ]  # fmt: skip
        if insert.call == "insert" and later:
            ender = min(later, key=lsn_of)
            if is_wanted(ender):
                yield insert, ender


def _match_ended(lines: Lines, is_wanted: Callable[[Operation], bool]) -> bool:
    history = read_lines(lines)
    objects = Objects(history, Verdict())
    for insert, ender in _find_ended(lines, is_wanted):
        for name, (operation, _, obj) in objects.by_id.items():
            place, query = objects.place(name), query_of(insert)
            if place and operation.begun > ender.ended and naive.matches(query, obj):
                pair = Pair(0, lsn_of(insert), query.id, name, place)
                _append(lines, _sessions(lines)[query.session], pair)
                return True
    return False
