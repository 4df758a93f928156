"""The merger: each pair once, numbered, under any order of messages; losses announced."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.protocol.frame import Frame
from ps2stream.protocol.messages.sessions import StreamDetach
from tests.support.merging import (
    MANY,
    Client,
    attach,
    credit,
    inserts,
    matches,
    one_batch,
    payload,
    rig,
)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_each_pair_once_under_any_order(data: st.DataObject) -> None:
    """Messages delayed, reordered and repeated: the merged set is what the workers said."""
    draw = data.draw
    workers, dispatchers, sessions = 3, 2, 4
    owner = draw(st.lists(st.integers(0, sessions - 1), min_size=1, max_size=8))
    frames: list[Frame] = []
    lsn = 1
    while lsn <= len(owner):
        step = draw(st.integers(1, 3))
        frames.append(inserts(lsn, owner[lsn - 1 : lsn - 1 + step]))
        lsn += step
    want: set[tuple[str, str, int, int]] = set()
    batches: set[tuple[int, int]] = set()
    for dispatcher in range(dispatchers):
        batch = stamp = 0
        for _ in range(draw(st.integers(0, 3))):
            size = draw(st.integers(1, 4))
            stamp = draw(st.integers(stamp, len(owner)))
            expected = draw(st.integers(0, workers))
            frames.append(payload(batch, size, stamp, expected, dispatcher))
            batches.add((dispatcher, batch))
            for worker in draw(st.permutations(range(workers)))[:expected]:
                pair = st.tuples(st.integers(0, size - 1), st.integers(1, max(stamp, 1)))
                some = draw(st.lists(pair, max_size=8)) if stamp else []
                told = [(row, h, owner[h - 1]) for row, h in some]
                frames.append(matches(batch, told, worker, dispatcher))
                want |= {(f"q{h}", f"o{batch + r}", dispatcher, batch + r) for r, h, _ in told}
            batch += size
    frames += [
        attach(s, epoch, batches=draw(st.sampled_from([0, 1, 1000])))
        for s in range(sessions)
        for epoch in draw(st.lists(st.integers(1, 4), max_size=3))
    ]
    frames += [
        StreamDetach(s, draw(st.integers(1, 4))) for s in range(sessions) if draw(st.booleans())
    ]
    repeated = draw(st.lists(st.sampled_from(frames), max_size=10))
    order = draw(st.permutations(frames + repeated))
    r = rig(dispatchers=dispatchers)
    while order:
        cut = draw(st.integers(1, 4))
        r.send(*order[:cut])
        order = order[cut:]
    r.send(*(attach(s, epoch=9) for s in range(sessions)))
    got = [pair for client in r.clients.values() for pair in client.pairs.values()]
    assert len(got) == len(set(got))
    assert set(got) == want
    assert all(c.gapless() and not c.gaps for c in r.clients.values())
    for session, client in r.clients.items():
        assert {owner[int(q[1:]) - 1] for q, *_ in client.pairs.values()} <= {session}
    assert set(r.done) == batches
    assert r.machine.pending == 0


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_slow_clients_miss_nothing_silently(data: st.DataObject) -> None:
    """Reconnects, small credits, small quotas: every number is a pair or in a gap."""
    r = rig(session_quota_bytes=data.draw(st.sampled_from([1, 500, 2_000, MANY])))
    r.send(inserts(1, [1, 1]))
    client = r.clients.setdefault(1, Client())
    epoch = total = acked = granted = 0
    for b in range(0, 4 * data.draw(st.integers(1, 25)), 4):
        match data.draw(st.sampled_from(["attach", "detach", "credit", "ack", "match", "match"])):
            case "attach":
                epoch += 1
                granted = 0
                r.send(attach(1, epoch, batches=data.draw(st.integers(0, 3))))
            case "detach":
                r.send(StreamDetach(1, epoch))
            case "credit":
                granted += 1
                r.send(credit(1, epoch, granted, 0, 0))
            case "ack":
                acked = max(acked, data.draw(st.integers(0, max(client.pairs, default=0))))
                r.send(credit(1, epoch, 0, 0, acked))
            case "match":
                pairs = [(i % 4, 1 + i % 2, 1) for i in range(data.draw(st.integers(1, 4)))]
                total += len(pairs)
                r.send(*one_batch(b, pairs, 2))
    r.send(attach(1, epoch=epoch + 1))
    assert client.gapless()
    assert client.lost | client.pairs.keys() == set(range(1, total + 1))
    assert len(set(client.pairs.values())) == len(client.pairs)
