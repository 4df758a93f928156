"""ps2stream/connectors/readable.py: hostile texts become one harmless line."""

from __future__ import annotations

import json
import time
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps2stream.connectors.deliveries import DeliveryItem
from ps2stream.connectors.http_poster import HttpTarget
from ps2stream.connectors.message_receiver import MESSAGE_BYTES
from ps2stream.connectors.ntfy import NtfyReceiver, NtfyTopic, read_token
from ps2stream.connectors.readable import MessageStyle, clean_text, read_gap
from ps2stream.connectors.sink_loop import SinkPart, parts
from ps2stream.connectors.slack import SlackReceiver, read_url
from ps2stream.errors import InvalidArgument
from ps2stream.v1 import delivery_pb2

HERE = HttpTarget("http://127.0.0.1:1/")
STYLE = MessageStyle("alerts", "https://market.example/{object_id}?q={query_id}&s={seq}")


def item_of(number: int, text: str, **more: Any) -> DeliveryItem:
    row = {"seq": number, "query_id": "flats", "object_id": "a/1&b", "text": text, "time": 5}
    return DeliveryItem(number, "flats", json.dumps(row | {"lon": 1.0, "lat": 2.0} | more))


def part_of(*items: DeliveryItem) -> SinkPart:
    return SinkPart("msg_1_1_1", list(items), delivery_pb2.Cursor())


@given(st.text(), st.integers(2, 60))
def test_a_clean_text_is_short_and_has_no_controls(text: str, most: int) -> None:
    found = clean_text(text, most)
    assert len(found) <= most
    assert found == found.strip()
    assert not any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in found)
    assert clean_text(found, most) == found


def test_words_of_all_scripts_and_emoji_stay() -> None:
    for text in ("اردو\u200cزبان", "👩\u200d👩\u200d👧", "naïve 東京", "a & <b>"):
        assert clean_text(text, 100) == text
    assert clean_text("in\u202evoice\u2066.exe\U000e0041\u00ad", 100) == "invoice.exe"
    assert clean_text("a\r\n\tb\x00\x1bc\u2029d", 100) == "a b c d"
    assert clean_text("x" * 100, 10) == "x" * 9 + "…"


def test_a_megabyte_costs_no_more_than_its_beginning() -> None:
    began = time.process_time()
    for text in ("\u202e" * (1 << 20), " " * (1 << 20), "<" * (1 << 20)):
        assert len(clean_text(text, 280)) <= 280
    assert time.process_time() - began < 1


@given(st.text(max_size=600), st.text(max_size=30))
def test_messages_of_any_text_are_bounded_and_escaped(text: str, query: str) -> None:
    item = item_of(1, text, attributes={"a": text})
    item = item._replace(query_id=query)
    style = MessageStyle("alerts", STYLE.link, ("a",), 500)
    slack = SlackReceiver(HERE, style, {})
    found = json.loads(slack.prepare(part_of(item)))["text"]
    assert not set(found) & set("<>")
    assert len(found.splitlines()) <= 2
    assert slack.measure(item) <= MESSAGE_BYTES + 1000 or len(text) > 300


def test_parts_of_messages_fit_into_a_message() -> None:
    slack = SlackReceiver(HERE, STYLE, {})
    items = [item_of(n, "&" * 300) for n in range(20)]
    found = list(parts(iter(items), 10, MESSAGE_BYTES, slack.measure))
    assert [i.number for part in found for i in part] == list(range(20))
    for part in found:
        text = json.loads(slack.prepare(part_of(*part)))["text"]
        assert len(text.encode()) <= MESSAGE_BYTES + 200


def test_the_longest_match_fits_into_a_notification() -> None:
    names = tuple(f"{n}" + "𝔞" * 79 for n in range(10))
    style = MessageStyle("alerts", STYLE.link, names, 500)
    item = item_of(1, "𝔞" * 600, attributes=dict.fromkeys(names, "𝔟" * 200))
    item = item._replace(query_id="𝔮" * 100)
    message = json.loads(NtfyReceiver(HERE, style, NtfyTopic("t")).prepare(part_of(item)))
    assert len(message["message"].encode()) <= 4096
    assert message["click"]


def test_gaps_are_told() -> None:
    gap = {"from": 1, "to": 3, "count": 3}
    item = DeliveryItem(3, None, json.dumps({"seq": 1, "gap": gap}))
    message = json.loads(NtfyReceiver(HERE, STYLE, NtfyTopic("t")).prepare(part_of(item)))
    assert message["title"] == "Matches are missing in alerts"
    assert message["message"] == "3 matches were dropped, because nobody took them in time."
    for more in ({"count": 0}, {"shed": {"from_ms": 1}}):
        item = DeliveryItem(3, None, json.dumps({"seq": 1, "gap": gap | more}))
        assert "may be missing" in read_gap(item, "alerts").text


def test_odd_values_of_a_match_are_shown_or_left_out() -> None:
    style = MessageStyle("alerts", "", ("n", "b", "t"))
    found = style.read(item_of(1, "x", time=1 << 62, attributes={"n": 0.1, "b": True, "t": "a\nb"}))
    assert found.details == ("n: 0.1", "b: yes", "t: a b", "2.00000, 1.00000")
    assert found.at is None
    assert STYLE.read(item_of(1, "x", object_id="é" * 500)).link == ""


@pytest.mark.parametrize(
    "link",
    [
        "http://market.example/{object_id}", "https://{object_id}/", "https:///x", "javascript:1",
        "https://market.example/{text}", "https://market.example/{seq", "https://market.example/}",
        "https://market.example/{seq.real}", "https://market.example/{seq!r:>99}",
        "https://market.example/ x", "https://market.example/<b>", "https://m.example/" + "x" * 999,
    ],
)  # fmt: skip
def test_a_link_that_is_no_template_of_a_page_is_refused(link: str) -> None:
    with pytest.raises(InvalidArgument, match="link: expected"):
        MessageStyle("alerts", link)


@pytest.mark.parametrize("topic", ["", "a b", "a/b", "x" * 65, "a\r\nb"])
def test_a_topic_of_ntfy_is_a_name(topic: str) -> None:
    with pytest.raises(InvalidArgument, match="topic"):
        NtfyReceiver(HERE, STYLE, NtfyTopic(topic))


def test_secrets_are_of_one_line_and_no_error_shows_them(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    for bad in ("", "hidden hidden", "hidden\r\nx: y", "hiddén", "hidden" * 1000):
        file.write_text(bad)
        for read in (read_url, read_token):
            with pytest.raises(InvalidArgument) as caught:
                read(file, "field")
            assert "hidden" not in str(caught.value)
    file.write_text(" https://hooks.example/x \n")
    assert read_url(file) == "https://hooks.example/x"
    assert read_token(None, "field") == ""
