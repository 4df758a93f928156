"""The Store port, whichever keeps it: what is committed is there, all of it or nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ps2stream.protocol import tokens
from ps2stream.protocol.ports import LedgerChange, NamedUpdates, SettledAnswer, Store
from ps2stream.security import AccessScope
from ps2stream.store.ledger import Ledger
from ps2stream.store.memory import MemoryStore
from tests.support.ledgers import ANALYSIS, answer, requests
from tests.support.updates import applied, insert

POSTGRES = pytest.param("postgres", marks=pytest.mark.postgres)


@dataclasses.dataclass
class Kept:
    """What a store has been told, one thing after the other."""

    log: list[bytes] = dataclasses.field(default_factory=list)
    lsn: int = 0
    sessions: dict[int, bytes] = dataclasses.field(default_factory=dict)
    requests: list[NamedUpdates] = dataclasses.field(default_factory=list)
    answers: dict[tuple[int, int, int], SettledAnswer] = dataclasses.field(default_factory=dict)
    epochs: dict[tuple[str, int], int] = dataclasses.field(default_factory=dict)
    watermark: int = 0

    def commit(self, change: LedgerChange) -> None:
        if change.batch is not None:
            self.log.append(change.batch.encode())
            self.lsn = change.batch.lsn_to
        self.sessions.update(change.sessions)
        if change.requests is not None:
            self.requests = [r for r in self.requests if r.lsn[-1] >= change.forget]
            self.requests.append(change.requests)
        for new in change.answers:
            old = self.answers.values()
            gone = {
                a[:3]
                for a in old
                if a.dispatcher == new.dispatcher and a[1:3] < (new.epoch, new.settled)
            }
            self.answers = {k: a for k, a in self.answers.items() if k not in gone}
        self.answers.update((a[:3], a) for a in change.answers)
        self.watermark = max(self.watermark, change.watermark)

    def check(self, store: Store) -> None:
        assert [batch.encode() for batch in store.replay()] == self.log
        assert sorted(store.sessions()) == sorted(self.sessions.items())
        assert [r.encode() for r in store.requests()] == [r.encode() for r in self.requests]
        found = {a[:3]: (a.settled, a.decision.encode()) for a in store.answers()}
        assert found == {k: (a.settled, a.decision.encode()) for k, a in self.answers.items()}
        assert len(store.answers()) == len(found)
        assert store.watermark == self.watermark


def draw_change(data: st.DataObject, kept: Kept) -> LedgerChange:
    batch = seen = None
    if data.draw(st.booleans()):
        rows = [insert(str(i), "z" * i) for i in range(data.draw(st.integers(1, 4)))]
        batch = applied(rows, kept.lsn + 1, data.draw(st.integers(0, 3)))
        if data.draw(st.booleans()):
            seen = requests(batch.lsn_to, data.draw(st.sampled_from(["", "a", "ß\0"])))
    names = data.draw(st.lists(st.binary(max_size=4), max_size=2))
    top = itertools.count(max(kept.sessions, default=0) + 1)
    # As a sequencer does: of one dispatcher, one epoch and one `settled` in a change.
    answers: list[SettledAnswer] = []
    for dispatcher in data.draw(st.lists(st.integers(0, 2), unique=True)):
        known = [k[1:] for k in kept.answers if k[0] == dispatcher]
        epoch = max((e for e, _ in known), default=1) + data.draw(st.sampled_from([0, 0, 0, 1]))
        last = max((s for e, s in known if e == epoch), default=0)
        settled = data.draw(st.integers(0, last + 1))
        numbers = st.lists(st.integers(settled, last + 3), unique=True, max_size=3)
        lsn = kept.lsn + 1
        answers += [answer(dispatcher, epoch, seq, settled, lsn) for seq in data.draw(numbers)]
    return LedgerChange(
        batch,
        sessions=[(next(top), name) for name in names],
        requests=seen,
        forget=data.draw(st.integers(0, kept.lsn + 1)),
        answers=answers,
        watermark=data.draw(st.integers(0, kept.lsn)),
    )


Opener = Callable[[], Store]
names = itertools.count(1)


@pytest.fixture(scope="module", params=["memory", "apsw", POSTGRES])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], Opener]:
    """Each call makes a new place; what it gives opens the store there."""
    if request.param == "memory":
        return lambda: itertools.repeat(MemoryStore()).__next__
    if request.param == "apsw":
        return lambda: functools.partial(Ledger.open, tmp_path_factory.mktemp("store"), ANALYSIS)
    from ps2stream.store.postgres import PostgresLedger
    from ps2stream.store.postgres_session import PostgresDatabase

    url = request.getfixturevalue("postgres").url

    def make() -> Opener:
        database = PostgresDatabase(url, f"store_{next(names)}")
        return lambda: PostgresLedger.open(database, ANALYSIS)

    return make


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_was_committed_is_read_back(place: Callable[[], Opener], data: st.DataObject) -> None:
    with contextlib.ExitStack() as ending:
        kept, opened = Kept(), place()
        store = opened()
        ending.callback(store.close)
        identity = store.identity
        for _ in range(data.draw(st.integers(1, 12))):
            match data.draw(st.sampled_from(["commit", "commit", "commit", "epoch", "open"])):
                case "commit":
                    change = draw_change(data, kept)
                    store.commit(change)
                    kept.commit(change)
                case "epoch":
                    key = data.draw(st.sampled_from(["worker", "sequencer"])), 1
                    kept.epochs[key] = kept.epochs.get(key, 0) + 1
                    assert store.epoch(*key) == kept.epochs[key]
                case "open":
                    store.close()
                    store = opened()
                    ending.callback(store.close)
            kept.check(store)
        assert store.identity == identity
        after = data.draw(st.integers(0, kept.lsn + 1))
        found = [batch.encode() for batch in store.replay(after)]
        assert found == [batch.encode() for batch in store.replay() if batch.lsn_to > after]


def test_a_reader_may_stop_early_and_commits_may_go_on_beside_it(
    place: Callable[[], Opener], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ps2stream.store.tables.PAGE", 4)
    store = place()()
    for lsn in range(1, 21):
        store.commit(LedgerChange(applied([insert(str(lsn))], lsn)))
    assert next(iter(store.replay(7))).lsn_from == 8
    for seen, batch in enumerate(store.replay(), 1):
        assert batch.lsn_from == seen
        if seen % 3 == 0 and seen < 20:
            store.commit(LedgerChange(applied([insert("x")], 20 + seen // 3)))
    assert [batch.lsn_to for batch in store.replay()] == list(range(1, 27))
    store.close()


def test_stores_have_identities_of_their_own(place: Callable[[], Opener]) -> None:
    found = set()
    one, other = place(), place()
    for opened in (one, other, one):
        store = opened()
        found.add(store.identity)
        store.close()
    assert len(found) == (1 if isinstance(store, MemoryStore) else 2)
    assert all(0 <= identity < 1 << 63 for identity in found)


def test_tokens_are_replaced_whole(place: Callable[[], Opener]) -> None:
    opened = place()
    store = opened()
    assert list(store.tokens()) == []
    made = [
        tokens.make(bytes([i]) * 40, "acme", frozenset(AccessScope), 5, i).token for i in range(3)
    ]
    for held in (made, made[1:], [], made[:1]):
        store.keep_tokens(held)
        assert list(store.tokens()) == held
        store.close()
        store = opened()
        assert list(store.tokens()) == held
    store.close()
