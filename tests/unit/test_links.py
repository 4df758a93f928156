"""The data plane: order per sender, one message a post, nothing blocks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from ps2stream.batch import decode
from ps2stream.cluster.links import Links
from ps2stream.messages import Address, Completed, Send, Visible

HERE = Address("worker", 0)


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[tuple[Links, str]]:
    with closing(Links()) as links:
        yield links, links.bind(tmp_path, "worker-0")


@pytest.fixture
def sender(inbox: tuple[Links, str]) -> Iterator[Links]:
    with closing(linked(inbox[1])) as links:
        yield links


def linked(endpoint: str) -> Links:
    links = Links()
    links.connect({HERE: endpoint})
    return links


def test_what_one_event_sends_to_a_peer_arrives_as_one_message(
    inbox: tuple[Links, str], sender: Links
) -> None:
    sender.post([Send(HERE, Visible(1)), Send(HERE, Visible(2))])
    sender.post([Send(HERE, Visible(3))])
    first = [decode(data) for data in inbox[0].receive()]
    second = [decode(data) for data in inbox[0].receive()]
    assert [f.lsn for f in first if isinstance(f, Visible)] == [1, 2]
    assert [f.lsn for f in second if isinstance(f, Visible)] == [3]


def test_each_sender_keeps_its_order_and_no_message_is_lost(inbox: tuple[Links, str]) -> None:
    n, size = 500, 4096

    def send(number: int) -> None:
        with closing(linked(inbox[1])) as links:
            for i in range(n):
                links.post([Send(HERE, Completed(number, np.full(size, i, np.int64)))])
            done.wait(60)

    done = threading.Event()
    senders = [threading.Thread(target=send, args=(k,)) for k in range(3)]
    for thread in senders:
        thread.start()
    found: dict[int, list[int]] = {0: [], 1: [], 2: []}
    while sum(map(len, found.values())) < 3 * n:
        for data in inbox[0].receive():
            frame = decode(data)
            assert isinstance(frame, Completed)
            assert len(frame.batch) == size
            found[frame.merger].append(int(frame.batch[-1]))
    done.set()
    for thread in senders:
        thread.join()
    assert all(order == list(range(n)) for order in found.values())


def test_a_sender_does_not_wait_for_a_peer_that_reads_nothing(
    inbox: tuple[Links, str], sender: Links
) -> None:
    for i in range(2000):
        sender.post([Send(HERE, Completed(i, np.zeros(2048, np.int64)))])
    assert decode(inbox[0].receive()[0]).merger == 0  # type: ignore[attr-defined]


def test_an_empty_inbox_says_so(inbox: tuple[Links, str]) -> None:
    assert inbox[0].receive(wait=False) == []
    assert inbox[0].receive() == []


def test_after_the_end_there_is_nobody_to_send_to(sender: Links) -> None:
    sender.close()
    sender.post([Send(HERE, Visible(1))])
