"""The data plane: order per sender, one message a post, nothing blocks."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps2stream.cluster import link_sockets
from ps2stream.cluster.fence import MessageFence, MessageHead
from ps2stream.cluster.links import PeerLinks
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import FrameError, decode
from ps2stream.protocol.messages.objects import ReleasesKept
from ps2stream.protocol.messages.updates import LedgerTip

HERE = Address("worker", 0)
PEER = Address("dispatcher", 0)


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[tuple[PeerLinks, str]]:
    with closing(PeerLinks(HERE, 1)) as here:
        yield here, here.bind(tmp_path)


@pytest.fixture
def sender(inbox: tuple[PeerLinks, str]) -> Iterator[PeerLinks]:
    with closing(linked(inbox[1])) as there:
        yield there


def linked(endpoint: str, peer: Address = PEER, epoch: int = 1) -> PeerLinks:
    links = PeerLinks(peer, epoch)
    links.connect(HERE, endpoint, 1)
    return links


def lsns(data: Sequence[bytes | memoryview] | None) -> list[int] | None:
    return None if data is None else [decode(d).lsn for d in data]  # type: ignore[attr-defined]


def test_what_one_event_sends_to_a_peer_arrives_as_one_message(
    inbox: tuple[PeerLinks, str], sender: PeerLinks
) -> None:
    sender.post([Send(HERE, LedgerTip(1, 0)), Send(HERE, LedgerTip(2, 0))])
    sender.post([Send(HERE, LedgerTip(3, 0))])
    assert lsns(inbox[0].receive()) == [1, 2]
    assert lsns(inbox[0].receive()) == [3]


def test_each_sender_keeps_its_order_and_no_message_is_lost(inbox: tuple[PeerLinks, str]) -> None:
    n, size = 500, 4096

    def send(number: int) -> None:
        with closing(linked(inbox[1], Address("dispatcher", number))) as links:
            for i in range(n):
                links.post([Send(HERE, ReleasesKept(number, np.full(size, i, np.int64)))])
            while not done.is_set():
                links.receive()  # what the sockets do not take leaves on the thread that receives

    done = threading.Event()
    senders = [threading.Thread(target=send, args=(k,)) for k in range(3)]
    for thread in senders:
        thread.start()
    found: dict[int, list[int]] = {0: [], 1: [], 2: []}
    while sum(map(len, found.values())) < 3 * n:
        for data in inbox[0].receive() or ():
            frame = decode(data)
            assert isinstance(frame, ReleasesKept)
            assert len(frame.release) == size
            found[frame.merger].append(int(frame.release[-1]))
    done.set()
    for thread in senders:
        thread.join()
    assert all(order == list(range(n)) for order in found.values())


def test_a_sender_does_not_wait_for_a_peer_that_reads_nothing(
    inbox: tuple[PeerLinks, str], sender: PeerLinks
) -> None:
    for i in range(2000):
        sender.post([Send(HERE, ReleasesKept(i, np.zeros(2048, np.int64)))])
    data = inbox[0].receive() or []
    assert decode(data[0]).merger == 0  # type: ignore[attr-defined]


def test_what_waits_for_a_peer_that_reads_nothing_is_bounded(
    inbox: tuple[PeerLinks, str], sender: PeerLinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_sockets, "LINK_BYTES", 1 << 20)
    n = 2000
    for i in range(n):
        sender.post([Send(HERE, ReleasesKept(i, np.zeros(2048, np.int64)))])
    assert sender.dropped > n / 2
    found: list[int] = []
    while (data := inbox[0].receive()) is not None:
        found += [decode(d).merger for d in data]  # type: ignore[attr-defined]
        sender.receive(0)  # as the sender's thread does once its socket is writable
    assert len(found) == n - sender.dropped
    assert found == sorted(found)
    dropped = sender.dropped
    sender.post([Send(HERE, LedgerTip(n, 0))])
    assert lsns(inbox[0].receive()) == [n]
    assert sender.dropped == dropped


@pytest.mark.parametrize("longs", [1, 100_000])
def test_what_waits_for_a_peer_that_is_away_is_bounded(
    inbox: tuple[PeerLinks, str], sender: PeerLinks, monkeypatch: pytest.MonkeyPatch, longs: int
) -> None:
    monkeypatch.setattr(link_sockets, "LINK_BYTES", 1 << 16)
    inbox[0].close()
    frame = ReleasesKept(0, np.zeros(longs, np.int64))
    many = 3 * (1 << 16) // len(frame.encode()) + 300
    for _ in range(many):
        sender.post([Send(HERE, frame)])
    assert sender.dropped > many / 3


def test_a_message_over_the_bound_leaves_where_nothing_waits(
    inbox: tuple[PeerLinks, str], sender: PeerLinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_sockets, "LINK_BYTES", 1 << 10)
    sender.post([Send(HERE, ReleasesKept(7, np.zeros(2048, np.int64)))])
    found = inbox[0].receive()
    assert found is not None
    assert decode(found[0]).merger == 7  # type: ignore[attr-defined]
    assert sender.dropped == 0


def test_an_empty_inbox_says_so(inbox: tuple[PeerLinks, str]) -> None:
    assert inbox[0].receive(0) is None
    assert inbox[0].receive() is None


def test_after_the_end_there_is_nobody_to_send_to(sender: PeerLinks) -> None:
    sender.close()
    sender.post([Send(HERE, LedgerTip(1, 0))])


def test_of_two_incarnations_the_later_counts(
    inbox: tuple[PeerLinks, str], sender: PeerLinks
) -> None:
    sender.post([Send(HERE, LedgerTip(1, 0))])
    assert lsns(inbox[0].receive()) == [1]
    with closing(linked(inbox[1], epoch=2)) as later:
        later.post([Send(HERE, LedgerTip(2, 0))])
        assert lsns(inbox[0].receive()) == [2]
        sender.post([Send(HERE, LedgerTip(3, 0))])
        assert lsns(inbox[0].receive()) == []
        assert inbox[0].fence.refused == 1


def test_an_announced_incarnation_shuts_the_earlier_one_out(
    inbox: tuple[PeerLinks, str], sender: PeerLinks
) -> None:
    inbox[0].connect(PEER, "ipc:///nowhere", 2)
    sender.post([Send(HERE, LedgerTip(1, 0))])
    assert lsns(inbox[0].receive()) == []


def test_a_replaced_peer_is_sent_to_where_it_is_now(
    inbox: tuple[PeerLinks, str], sender: PeerLinks, tmp_path: Path
) -> None:
    with closing(PeerLinks(HERE, 2)) as successor:
        sender.connect(HERE, successor.bind(tmp_path), 2)
        sender.post([Send(HERE, LedgerTip(1, 0))])
        assert lsns(successor.receive()) == [1]
        assert inbox[0].receive() is None


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(1, 4))))
def test_a_fence_takes_what_rises_and_nothing_else(heads: list[tuple[int, int, int]]) -> None:
    fence = MessageFence()
    highest: dict[int, tuple[int, int]] = {}
    for sender, epoch, number in heads:
        new = (epoch, number) > highest.get(sender, (0, 0))
        assert fence.accept(MessageHead(Address("worker", sender), epoch, number)) == new
        if new:
            highest[sender] = (epoch, number)


def test_heads_survive_the_wire_and_others_are_no_heads() -> None:
    head = MessageHead(Address("merger", 7), 1 << 40, 3)
    assert MessageHead.decode(head.encode()) == head
    for bad in (b"", head.encode()[:-1], b"x" * len(head.encode())):
        with pytest.raises(FrameError):
            MessageHead.decode(bad)


def test_a_peer_that_closes_its_end_is_told(tmp_path: Path) -> None:
    with closing(PeerLinks(HERE, 1)) as here:
        here.bind(tmp_path)
        for epoch in (1, 2):
            peer = PeerLinks(PEER, epoch)
            here.connect(PEER, peer.bind(tmp_path), epoch)
            here.post([Send(PEER, LedgerTip(epoch, 0))])
            assert lsns(peer.receive()) == [epoch]
            assert here.receive() is None
            assert not here.gone
            peer.close()
            for _ in range(100):
                if here.gone:
                    break
                assert here.receive() is None
            assert here.gone.popleft() == PEER


def test_who_has_gone_is_sent_nothing_and_may_come_again(tmp_path: Path) -> None:
    with closing(PeerLinks(HERE, 1)) as here:
        here.bind(tmp_path)
        for epoch in range(1, 40):
            peer = PeerLinks(PEER, epoch)
            here.connect(PEER, peer.bind(tmp_path), epoch)
            here.post([Send(PEER, LedgerTip(epoch, 0))])
            assert lsns(peer.receive()) == [epoch]
            # Its end closes at about the same time as this one, which must not hold up either.
            leaving = threading.Thread(target=peer.close)
            leaving.start()
            here.disconnect(PEER)
            here.post([Send(PEER, LedgerTip(epoch, 1))])
            leaving.join()
        here.disconnect(PEER)


def count_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_an_outlet_is_opened_by_the_first_message(tmp_path: Path) -> None:
    with ExitStack() as stack:
        here = stack.enter_context(closing(PeerLinks(HERE, 1)))
        here.bind(tmp_path)
        peers = [Address("dispatcher", i) for i in range(20)]
        there = [stack.enter_context(closing(PeerLinks(peer, 1))) for peer in peers]
        ends = [links.bind(tmp_path) for links in there]
        before = count_descriptors()
        for peer, end in zip(peers, ends, strict=True):
            here.connect(peer, end, 1)
        assert count_descriptors() == before
        here.post([Send(peers[7], LedgerTip(1, 0))])
        assert lsns(there[7].receive()) == [1]
        assert count_descriptors() == before + 2  # both ends are in this process
        here.post([Send(peers[7], LedgerTip(2, 0))])
        assert lsns(there[7].receive()) == [2]
        assert count_descriptors() == before + 2
        watcher = stack.enter_context(closing(PeerLinks(PEER, 1)))
        for peer, end in zip(peers[1:], ends[1:], strict=True):
            watcher.connect(peer, end, 1)
        assert count_descriptors() > before + 20  # a dispatcher looks who is gone


def post_in_thread(links: PeerLinks, *numbers: int) -> None:
    for number in numbers:
        other = threading.Thread(target=links.post, args=([Send(PEER, LedgerTip(number, 0))],))
        other.start()
        other.join()


def test_what_other_threads_send_first_waits_for_the_one_that_receives(tmp_path: Path) -> None:
    with closing(PeerLinks(HERE, 1)) as here, closing(PeerLinks(PEER, 1)) as peer:
        here.bind(tmp_path)
        here.connect(PEER, peer.bind(tmp_path), 1)
        post_in_thread(here, 1, 2)
        assert peer.receive(0) is None
        here.post([Send(PEER, LedgerTip(3, 0))])
        assert [lsns(peer.receive()) for _ in range(3)] == [[1], [2], [3]]
        post_in_thread(here, 4)
        assert lsns(peer.receive()) == [4]


def test_what_waits_for_an_outlet_is_bounded_and_dies_with_the_peer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_sockets, "LINK_BYTES", 1)
    with closing(PeerLinks(HERE, 1)) as here, closing(PeerLinks(PEER, 2)) as peer:
        here.bind(tmp_path)
        here.connect(PEER, "ipc:///nowhere", 1)
        post_in_thread(here, 1, 2)
        assert here.dropped == 1
        here.connect(PEER, peer.bind(tmp_path), 2)
        post_in_thread(here, 3)
        assert here.receive(0) is None
        assert lsns(peer.receive()) == [3]
        assert peer.receive(0) is None
