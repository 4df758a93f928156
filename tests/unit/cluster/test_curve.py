"""Links between hosts: encrypted, and open to peers of now only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import zmq

from ps2stream.cluster import curve
from ps2stream.cluster.actor_home import ActorHome, clock
from ps2stream.cluster.curve import CurveKeys
from ps2stream.cluster.fence import MessageHead
from ps2stream.cluster.links import PeerLinks
from ps2stream.errors import Unavailable
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import decode
from ps2stream.protocol.messages.updates import LedgerTip

HERE = Address("worker", 0)
PEER = Address("dispatcher", 0)
HOME = ActorHome("node", "127.0.0.1", clock())
FAR = HOME._replace(clock="of another host")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curve, "HANDSHAKE_MS", 300)


@pytest.fixture
def inbox() -> Iterator[tuple[PeerLinks, str, ActorHome]]:
    with closing(PeerLinks(HERE, 1)) as here:
        yield here, *here.listen(HOME)


@pytest.fixture
def sender() -> Iterator[tuple[PeerLinks, ActorHome]]:
    with closing(PeerLinks(PEER, 1)) as there:
        _, home = there.listen(HOME)
        yield there, home


def lsns(links: PeerLinks, tries: int = 40) -> list[int]:
    """Of the next message; nothing when none comes."""
    for _ in range(tries):
        if (data := links.receive()) is not None:
            return [decode(d).lsn for d in data]  # type: ignore[attr-defined]
    return []


def test_a_peer_is_let_in_and_its_link_keeps_the_order(
    inbox: tuple[PeerLinks, str, ActorHome], sender: tuple[PeerLinks, ActorHome]
) -> None:
    here, endpoint, home = inbox
    here.admit(PEER, sender[1])
    sender[0].connect(HERE, endpoint, 1, home)
    for lsn in range(1, 200):
        sender[0].post([Send(HERE, LedgerTip(lsn, 0))])
    assert [lsns(here) for _ in range(199)] == [[lsn] for lsn in range(1, 200)]


def test_who_comes_before_it_is_known_is_let_in_once_it_is(
    inbox: tuple[PeerLinks, str, ActorHome], sender: tuple[PeerLinks, ActorHome]
) -> None:
    here, endpoint, home = inbox
    sender[0].connect(HERE, endpoint, 1, home)
    sender[0].post([Send(HERE, LedgerTip(1, 0))])
    assert lsns(here, tries=5) == []
    here.admit(PEER, sender[1])
    assert lsns(here) == [1]


def test_an_intruder_with_a_key_of_its_own_gets_nothing_in(
    inbox: tuple[PeerLinks, str, ActorHome], sender: tuple[PeerLinks, ActorHome]
) -> None:
    here, endpoint, home = inbox
    here.admit(PEER, sender[1])
    with closing(PeerLinks(PEER, 9)) as intruder:
        intruder.listen(HOME)
        intruder.connect(HERE, endpoint, 1, home)
        intruder.post([Send(HERE, LedgerTip(66, 0))])
        sender[0].connect(HERE, endpoint, 1, home)
        sender[0].post([Send(HERE, LedgerTip(1, 0))])
        assert lsns(here) == [1]
        assert lsns(here, tries=10) == []


@pytest.mark.parametrize("knows", [False, True])
def test_who_speaks_plaintext_or_shows_no_known_key_gets_nothing_in(
    inbox: tuple[PeerLinks, str, ActorHome], knows: bool
) -> None:
    here, endpoint, home = inbox
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.linger = 0
        if knows:  # the inbox's public key, but no peer's secret
            socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
            socket.curve_serverkey = home.key
        socket.connect(endpoint)
        socket.send_multipart([MessageHead(PEER, 9, 1).encode(), LedgerTip(66, 0).encode()])
        assert lsns(here, tries=10) == []


def test_a_replaced_peer_is_let_in_no_more(
    inbox: tuple[PeerLinks, str, ActorHome], sender: tuple[PeerLinks, ActorHome]
) -> None:
    here, endpoint, home = inbox
    here.admit(PEER, sender[1])
    with closing(PeerLinks(PEER, 2)) as successor:
        here.admit(PEER, successor.listen(HOME)[1])
        sender[0].connect(HERE, endpoint, 1, home)
        sender[0].post([Send(HERE, LedgerTip(66, 0))])
        successor.connect(HERE, endpoint, 1, home)
        successor.post([Send(HERE, LedgerTip(2, 0))])
        assert lsns(here) == [2]
        here.disconnect(PEER)
        assert lsns(here, tries=10) == []


def test_whose_server_key_is_another_is_sent_nothing(
    inbox: tuple[PeerLinks, str, ActorHome], sender: tuple[PeerLinks, ActorHome]
) -> None:
    here, endpoint, home = inbox
    here.admit(PEER, sender[1])
    other, _ = zmq.curve_keypair()
    sender[0].connect(HERE, endpoint, 1, home._replace(key=other))
    sender[0].post([Send(HERE, LedgerTip(1, 0))])
    assert lsns(here, tries=10) == []


@pytest.mark.parametrize(("home", "told"), [(HOME, True), (FAR, False)])
def test_how_long_a_message_took_is_told_only_by_one_clock(
    inbox: tuple[PeerLinks, str, ActorHome],
    sender: tuple[PeerLinks, ActorHome],
    home: ActorHome,
    told: bool,
) -> None:
    here, endpoint, its = inbox
    here.admit(PEER, sender[1])
    sender[0].connect(HERE, endpoint, 1, its._replace(clock=home.clock))
    sender[0].post([Send(HERE, LedgerTip(1, 0))])
    assert lsns(here) == [1]
    assert ("link" in here._meter.stages) == told


def test_an_inbox_takes_a_port_that_is_free_of_those_that_it_may_have() -> None:
    with closing(PeerLinks(HERE, 1)) as one, closing(PeerLinks(PEER, 1)) as other:
        taken, _ = one.listen(HOME)
        port = int(taken.rpartition(":")[2])
        with pytest.raises(Unavailable, match=f"link_ports: none of {port}-{port} is free"):
            other.listen(HOME, range(port, port + 1))


def test_a_closed_inbox_leaves_no_thread_behind() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    keys = CurveKeys(context)
    keys.close()
    context.destroy(0)
    assert not keys._thread.is_alive()


def test_an_outlet_is_opened_by_the_first_message_to_a_peer() -> None:
    with closing(PeerLinks(Address("worker", 0), 1)) as here, closing(PeerLinks(PEER, 1)) as there:
        _, home = here.listen(HOME)
        endpoint, peer = there.listen(HOME)
        there.admit(Address("worker", 0), home)
        here.admit(PEER, peer)
        before = len(list(Path("/proc/self/fd").iterdir()))
        for number in range(5):
            here.connect(Address("dispatcher", number), endpoint, 1, peer)
        assert len(list(Path("/proc/self/fd").iterdir())) == before
        here.post([Send(PEER, LedgerTip(1, 0))])
        assert len(list(Path("/proc/self/fd").iterdir())) > before
        assert lsns(there) == [1]
