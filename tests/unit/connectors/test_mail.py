"""Mail without a service: recipients, tokens, headers, and what an SMTP server's answers mean."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps2stream.connectors.deliveries import DeliveryItem
from ps2stream.connectors.mail_invitation import send_invitation
from ps2stream.connectors.mail_recipients import (
    MOST_RECIPIENTS,
    ConfirmedAddress,
    add_confirmed,
    check_address,
    read_recipients,
    read_token,
    sign_token,
)
from ps2stream.connectors.mail_server import MailAnswer, MailSender, MailServer
from ps2stream.connectors.mail_sink import MailDigest, MailOptions, MailReceiver, build_mail
from ps2stream.connectors.readable import MessageStyle
from ps2stream.connectors.sink_loop import SinkAttempt, SinkPart, SinkVerdict
from ps2stream.errors import FailedPrecondition, InvalidArgument, Unauthenticated, Unavailable
from ps2stream.v1 import delivery_pb2
from tests.support.mail_server import USER, MailBox, mail_server

KEYS = [b"k" * 32, b"o" * 32]
ME = ConfirmedAddress("me@example.org", "alerts")
SENDER = "alerts@example.org"
STYLE = MessageStyle("alerts", "https://market.example/{object_id}")


@pytest.fixture
def box(tmp_path: Path) -> Iterator[MailBox]:
    with mail_server(tmp_path) as found:
        yield found


def sender_to(box: MailBox, password: Path | None = None) -> MailSender:
    password = password or box.password_file
    return MailSender(MailServer(f"smtp://localhost:{box.port}", USER, password, box.ca), SENDER)


def receiver_to(box: MailBox, folder: Path, *addresses: str) -> MailReceiver:
    file = folder / "recipients"
    file.write_text("# ours\n" + "\n".join(addresses) + "\n")
    return MailReceiver(sender_to(box), MailOptions(SENDER, file), STYLE)


def digest_of(receiver: MailReceiver, *texts: str) -> MailDigest:
    items = [
        DeliveryItem(
            n,
            "flats",
            json.dumps({"object_id": str(n), "text": text, "lon": 1.0, "lat": 2.0, "time": 5}),
        )
        for n, text in enumerate(texts, 1)
    ]
    return receiver.prepare(SinkPart("msg_7_1_1", items, delivery_pb2.Cursor()))


def attempt(receiver: MailReceiver, digest: MailDigest) -> SinkAttempt:
    return asyncio.run(receiver.attempt("msg_7_1_1", digest))


@pytest.mark.parametrize(
    "address",
    [
        "", "me", "me@localhost", "@example.org", "me@-x.org", "me@x..org", "a..b@example.org",
        "me@example.org\nBcc: you@example.org", "me@example.org, you@example.org", "me @x.org",
        "Me <me@example.org>", '"me"@example.org', "me@exämple.org", "x" * 65 + "@example.org",
        "me@" + "x." * 130 + "org", "<me@example.org>", "me@[127.0.0.1]", "me@example.org\r",
    ],
)  # fmt: skip
def test_what_is_no_plain_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidArgument, match="expected a mail address"):
        check_address(address, "address")


def test_lists_are_read_and_each_address_counts_once(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.write_text("me@example.org  # me\n\n# nobody\nyou+x@example.org\n")
    assert read_recipients([("recipients", ours), ("confirmed", theirs)]) == [
        "me@example.org", "you+x@example.org",
    ]  # fmt: skip
    theirs.write_text("ME@example.org\nthey@example.org\n")
    assert len(read_recipients([("recipients", ours), ("confirmed", theirs)])) == 3
    ours.write_text("me@example.org\nnobody\n")
    with pytest.raises(InvalidArgument, match="recipients, line 2"):
        read_recipients([("recipients", ours)])
    ours.write_text("".join(f"a{n}@example.org\n" for n in range(MOST_RECIPIENTS + 1)))
    with pytest.raises(InvalidArgument, match="at most 100"):
        read_recipients([("recipients", ours)])
    ours.unlink()
    with pytest.raises(InvalidArgument, match="no file"):
        read_recipients([("recipients", ours)])
    with pytest.raises(InvalidArgument, match="must be set"):
        MailOptions(SENDER)


def test_a_token_is_of_its_address_session_time_and_secret() -> None:
    token = sign_token(KEYS[1], ME, 1000)
    assert read_token(KEYS, f" {token}\n", 1000) == ME
    with pytest.raises(FailedPrecondition, match="expired"):
        read_token(KEYS, token, 1001)
    body, digest = token.split(".")
    other = sign_token(KEYS[1], ME._replace(address="you@example.org"), 1000).split(".")[0]
    for bad in (
        f"{other}.{digest}",
        body,
        f"{body}.",
        f"{token}.x",
        "é.é",
        "",
        "x" * 9999,
        f".{digest}",
    ):
        with pytest.raises(InvalidArgument, match="is none that was mailed") as caught:
            read_token(KEYS, bad, 0)
        assert digest not in str(caught.value)
    with pytest.raises(InvalidArgument):
        read_token(KEYS[:1], token, 0)


@given(st.text(max_size=200))
def test_any_other_text_is_no_token(text: str) -> None:
    with pytest.raises(InvalidArgument):
        read_token(KEYS, text, 0)


def test_a_confirmed_address_is_added_once(tmp_path: Path) -> None:
    file = tmp_path / "confirmed"
    assert add_confirmed(file, "me@example.org")
    assert not add_confirmed(file, "Me@example.org")
    assert add_confirmed(file, "you@example.org")
    assert file.read_text() == "me@example.org\nyou@example.org\n"
    with pytest.raises(InvalidArgument, match="cannot write"):
        add_confirmed(tmp_path / "nowhere" / "file", "me@example.org")


@given(st.text(max_size=300), st.text(max_size=100))
def test_no_text_becomes_a_header(text: str, query: str) -> None:
    item = DeliveryItem(1, query, json.dumps({"text": text, "lon": 1.0, "lat": 2.0}))
    match = STYLE.read(item)
    digest = MailDigest("msg_7_1_1", STYLE.title([match]), match.line(True))
    data = build_mail(SENDER, "", "me@example.org", digest).as_bytes()
    assert data.isascii()
    head = data.split(b"\r\n\r\n")[0]
    names = [line.split(b":")[0] for line in head.split(b"\r\n") if not line.startswith(b" ")]
    assert sorted(names) == sorted(
        b"From To Subject Date Message-ID List-Unsubscribe Auto-Submitted Content-Type "
        b"Content-Transfer-Encoding MIME-Version".split()
    )
    assert max(map(len, data.split(b"\r\n"))) < 998


def test_each_recipient_gets_a_mail_of_their_own(box: MailBox, tmp_path: Path) -> None:
    receiver = receiver_to(box, tmp_path, "me@example.org", "you@example.org")
    hostile = "flat\r\n.\r\nBcc: all@example.org\r\n\u202e<b>"
    assert attempt(receiver, digest_of(receiver, hostile, "två")).verdict is SinkVerdict.ACCEPTED
    assert [mail.recipients for mail in box.mails] == [["me@example.org"], ["you@example.org"]]
    message = box.mails[0].message
    assert (message["To"], message["From"]) == ("me@example.org", SENDER)
    assert message["Subject"] == "2 matches in alerts"
    assert message["Message-ID"] == "<msg_7_1_1@example.org>"
    assert message["List-Unsubscribe"] == f"<mailto:{SENDER}?subject=unsubscribe>"
    assert message["Auto-Submitted"] == "auto-generated"
    assert "Bcc" not in message
    text = box.mails[0].text
    assert text.startswith(
        "flats: flat . Bcc: all@example.org <b>\n  2.00000, 1.00000\n  https://market.example/1\n"
    )
    assert "flats: två\n" in text


def test_a_recipient_who_has_it_does_not_get_it_again(box: MailBox, tmp_path: Path) -> None:
    receiver = receiver_to(box, tmp_path, "a@example.org", "b@example.org", "c@example.org")
    digest = digest_of(receiver, "flat")
    box.script = [None, "450 4.2.0 try later", "421 4.3.2 too much"]
    first = attempt(receiver, digest)
    assert first.verdict is SinkVerdict.AGAIN
    assert "2 recipients wait: " in first.outcome
    box.refused = {"c@example.org": "550 5.1.1 no such user"}
    assert attempt(receiver, digest).verdict is SinkVerdict.ACCEPTED
    assert [m.recipients for m in box.mails] == [["a@example.org"], ["b@example.org"]]
    assert receiver.describe(digest)["refused"] == {"c@example.org": "550 5.1.1 no such user"}


def test_what_no_recipient_takes_is_refused(box: MailBox, tmp_path: Path) -> None:
    receiver = receiver_to(box, tmp_path, "a@example.org")
    box.refused = {"a@example.org": "550 5.1.1 no such user"}
    found = attempt(receiver, digest_of(receiver, "flat"))
    assert found == (SinkVerdict.REFUSED, "answered 550 5.1.1 no such user", 0.0)
    (tmp_path / "recipients").write_text("")
    waits = attempt(receiver, digest_of(receiver, "flat"))
    assert waits == (SinkVerdict.AGAIN, "no recipient is on the lists", 0.0)


def test_a_wrong_password_ends_and_a_lost_server_does_not(box: MailBox, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("hidden")
    mail = build_mail(SENDER, "", "me@example.org", MailDigest("m", "s", "t"))
    with pytest.raises(Unauthenticated) as caught:
        sender_to(box, wrong).send({"me@example.org": mail}, lambda *_: None)
    assert "hidden" not in str(caught.value)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    gone = MailSender(MailServer(f"smtp://127.0.0.1:{port}"), SENDER)
    assert "Connection" in gone.send({"me@example.org": mail}, lambda *_: None)
    other = MailSender(MailServer(f"smtp://localhost:{box.port}"), SENDER)
    answers: dict[str, MailAnswer] = {}
    assert not other.send({"me@example.org": mail}, answers.__setitem__)
    assert answers["me@example.org"].refused
    assert "STARTTLS" in answers["me@example.org"].reason
    assert not box.mails


def test_an_invitation_brings_a_token_that_confirms(box: MailBox, tmp_path: Path) -> None:
    send_invitation(sender_to(box), SENDER, KEYS[0], "alerts", "me@example.org")
    [mail] = box.mails
    [token] = [line for line in mail.text.splitlines() if line.count(".") == 1 and " " not in line]
    assert read_token(KEYS, token, 0) == ME
    box.refused = {"me@example.org": "550 5.1.1 no such user"}
    with pytest.raises(FailedPrecondition, match=r"refused me@example\.org: 550"):
        send_invitation(sender_to(box), SENDER, KEYS[0], "alerts", "me@example.org")
    box.refused = {"me@example.org": "450 4.2.0 later"}
    with pytest.raises(Unavailable, match="later"):
        send_invitation(sender_to(box), SENDER, KEYS[0], "alerts", "me@example.org")


@pytest.mark.parametrize(
    "server",
    [
        MailServer("mail.example.org"),
        MailServer("smtp:///x"),
        MailServer("smtp://mail.example.org:99999"),
        MailServer("smtps://me:hidden@mail.example.org"),
        MailServer("smtps://mail.example.org", "me"),
    ],
)
def test_a_server_that_is_none_is_refused(server: MailServer) -> None:
    with pytest.raises(InvalidArgument) as caught:
        MailSender(server, SENDER)
    assert "hidden" not in str(caught.value)


def test_a_way_to_leave_is_one_url(tmp_path: Path) -> None:
    for bad in (
        "javascript:x",
        "https://x.org/ y",
        "mailto:a@b.org>, <mailto:c",
        "https://x\r\nA: b",
    ):
        with pytest.raises(InvalidArgument, match="unsubscribe"):
            MailOptions(SENDER, tmp_path, None, bad)
    url = "https://example.org/leave/" + "x" * 200
    digest = MailDigest("m", "s", "t")
    data = build_mail(SENDER, url, "me@example.org", digest).as_bytes()
    assert f"\r\nList-Unsubscribe: <{url}>\r\n".encode() in data
