"""What sessions received: their numbers, their gaps, and what came again."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from ps2stream.protocol.session_numbers import LEAP, count_pairs
from tests.history.reading import History, Pair, Receipt
from tests.history.verdict import Verdict


@dataclass
class Session:
    """The pairs by number. room: the numbers of gaps, which may hold as many lost matches."""

    name: str
    pairs: dict[int, Pair] = field(default_factory=dict)
    room: int = 0
    highest: int = 0


def find_sessions(history: History, verdict: Verdict) -> dict[str, Session]:
    """Those that ever had a stream."""
    sessions = {
        each.args["session"]: Session(each.args["session"]) for each in history.of("deliver")
    }
    expected: dict[int, int] = {}  # by stream: the next number
    for receipt in history.receipts:
        session = sessions[receipt.session]
        _judge_stream(history, receipt, session, expected, verdict)
        if receipt.gap is not None:
            first, last, _ = receipt.gap
            fresh = max(last - max(first - 1, session.highest), 0)
            verdict.figures["gaps"] += count_pairs(1, fresh)
            verdict.figures["leaps"] += fresh >= LEAP  # of how many matches is not known
            session.room += fresh
            session.highest = max(session.highest, last)
        for pair in receipt.pairs:
            _take(session, pair, receipt, verdict)
    return sessions


def _judge_stream(
    history: History, receipt: Receipt, session: Session, expected: dict[int, int], verdict: Verdict
) -> None:
    """A stream begins behind its cursor, at a number that is no news or the first one, and goes on
    number by number."""
    opened = history.streams[receipt.stream]
    last = receipt.gap[1] if receipt.gap is not None else receipt.first + len(receipt.pairs) - 1
    due = expected.get(receipt.stream)
    expected[receipt.stream] = last + 1
    if receipt.first > session.highest + 1:
        verdict.report(
            "unreported_gap",
            f"{session.name}: number {receipt.first} came after {session.highest}",
            opened,
            receipt.line,
            count=receipt.first - session.highest - 1,
        )
        session.highest = receipt.first - 1
    elif receipt.first != due if due is not None else receipt.first <= opened.args["after"]:
        verdict.report(
            "out_of_order",
            f"{session.name}: number {receipt.first} does not follow on the stream's or its cursor",
            opened,
            receipt.line,
        )


def _take(session: Session, pair: Pair, receipt: Receipt, verdict: Verdict) -> None:
    before = session.pairs.setdefault(pair.number, pair)
    session.highest = max(session.highest, pair.number)
    if before is pair:
        return
    verdict.figures["repeats"] += 1
    if before != pair:
        verdict.report(
            "renumbered",
            f"{session.name}: number {pair.number} was {before}, and came again as {pair}",
            receipt.line,
        )


def judge_doubles(sessions: dict[str, Session], verdict: Verdict) -> None:
    """Each pair has one number. An object that has two places came from one publication twice."""
    for session in sessions.values():
        numbers: dict[tuple[int, str], Pair] = {}
        for pair in session.pairs.values():
            other = numbers.setdefault((pair.handle, pair.object), pair)
            if other is not pair:
                kind = "doubled" if other.place == pair.place else "twice"
                verdict.report(kind, f"{session.name}: {other} and {pair}")


def find_delivered(sessions: dict[str, Session]) -> dict[str, dict[tuple[int, str], Pair]]:
    """By session, handle and object: the first pair that came."""
    found: dict[str, dict[tuple[int, str], Pair]] = defaultdict(dict)
    for name, session in sessions.items():
        for _, pair in sorted(session.pairs.items()):
            found[name].setdefault((pair.handle, pair.object), pair)
    return found
