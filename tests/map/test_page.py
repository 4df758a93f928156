"""The live map in a browser: what is drawn arrives, whoever uses it and however."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from ps2stream.client.client import Client
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.routing.plan import RoutingPlan
from ps2stream.routing.replicas import ReplicatedUnit
from ps2stream.web import hub
from ps2stream.web.serve import MapOptions, ServedMap, serving
from tests.map.conftest import PATIENCE_MS, SIZE, Open, show
from tests.support.moving import swapped

pytestmark = [pytest.mark.browser, pytest.mark.takes_turns]
expect.set_options(timeout=PATIENCE_MS)
OWN = (190, 24, 93)  # the colour of one's own matches in the light theme
SIDES = ("west", "south", "east", "north")


@pytest.fixture
def page(window: tuple[Page, list[str]], live: ServedMap) -> Iterator[Page]:
    """A page that shows no query of before, loaded anew: a window takes as long again to open.
    Between tests the window is blank, as what a map draws is dear without a graphics card."""
    found, complaints = window
    yield show(found, live.url)
    for left in reversed(range(found.locator("#mine button").count())):
        found.locator("#mine button").first.click()
        expect(found.locator("#mine li")).to_have_count(left)
    expect(found.locator("#mine li")).to_have_count(0)
    found.goto("about:blank")
    assert complaints == []


def middle(page: Page) -> tuple[float, float]:
    """Of the map, in pixels of the window."""
    box = page.locator("#map").bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def sides(page: Page) -> list[float]:
    return [float(page.input_value(f"#{name}")) for name in SIDES]


def glow(page: Page, x: float, y: float) -> int:
    """Pixels of the page near this one that have the colour of one's own matches, or nearly."""
    clip = {"x": x - 15, "y": y - 15, "width": 30, "height": 30}
    shown = page.screenshot(clip=clip)  # type: ignore[arg-type]
    pixels = np.asarray(Image.open(io.BytesIO(shown)).convert("RGB"), np.int64)
    return int((np.abs(pixels - OWN).max(axis=2) < 24).mean() * 30 * 30)


def add(page: Page, words: str) -> None:
    """Send the form; its area is as it is."""
    page.fill("#words", words)
    page.click("#new [type=submit]")
    expect(page.locator("#mine li").filter(has_text=words)).to_be_visible()


def arrives(page: Page, client: Client, lon: float, lat: float, text: str) -> None:
    """A post is published, and comes to the list of one's own matches, with its attributes."""
    post = {"id": "post", "lon": lon, "lat": lat, "text": text, "attributes": {"by": "<b>5</b>"}}
    client.publish([post])
    row = page.locator("#own li").filter(has_text=text)
    expect(row).to_contain_text('by="<b>5</b>"')


def test_a_post_that_is_withdrawn_is_shown_no_longer(page: Page, client: Client) -> None:
    add(page, "avalanche")
    for id in ("stays", "goes"):
        text = f"avalanche that {id}"
        client.publish([{"id": id, "lon": 8.0, "lat": 47.0, "text": text}])
        expect(page.locator("#own li").filter(has_text=text)).to_be_visible()
    client.withdraw(["goes", "unknown"])
    expect(page.locator("#own li").filter(has_text="avalanche that goes")).to_have_count(0)
    expect(page.locator("#news")).not_to_contain_text("goes")
    expect(page.locator("#own li").filter(has_text="avalanche that stays")).to_be_visible()


@pytest.mark.every_turn
def test_a_rectangle_is_drawn_and_what_matches_arrives_and_lights_up(
    page: Page, client: Client
) -> None:
    page.check("input[value=rectangle]")
    page.click("[data-draw=rectangle]")
    x, y = middle(page)
    page.mouse.move(x - 80, y - 60)
    page.mouse.down()
    page.mouse.move(x, y, steps=3)
    page.mouse.move(x + 80, y + 60, steps=3)
    page.mouse.up()
    west, south, east, north = sides(page)
    assert west < east
    assert south < north
    add(page, "meteor")
    page.mouse.move(5, 5)
    assert glow(page, x, y) == 0
    # Mercator: the middle of the picture is not that of the degrees.
    lat = np.degrees(np.arctan(np.sinh(np.arctanh(np.sin(np.radians([south, north]))).mean())))
    client.publish([{"lon": 179.0, "lat": -80.0, "text": "a meteor elsewhere"}])
    arrives(page, client, (west + east) / 2, float(lat), "a <b>meteor</b> was seen")
    expect(page.locator("#own li")).to_have_count(1)
    assert page.locator("#own li b").all_text_contents() == ["meteor"]  # the post made no markup
    expect(page.locator("#news")).to_contain_text("A match: a <b>meteor</b>")
    for _ in range(50):
        if (lit := glow(page, x, y)) > 20:  # another look may come when it has faded
            break
        page.wait_for_timeout(100)
        client.publish([{"lon": (west + east) / 2, "lat": float(lat), "text": "meteor again"}])
    assert lit > 20


def test_a_rectangle_of_two_clicks_and_a_polygon_of_several(page: Page, client: Client) -> None:
    x, y = middle(page)
    page.check("input[value=rectangle]")
    page.click("[data-draw=rectangle]")
    page.mouse.click(x - 50, y + 40)
    expect(page.locator("#hint")).to_contain_text("opposite corner")
    page.mouse.click(x + 50, y - 40)
    expect(page.locator("#hint")).to_be_hidden()
    rectangle = sides(page)

    page.check("input[value=polygon]")
    page.click("[data-draw=polygon]")
    page.mouse.click(x - 50, y + 40)
    page.mouse.click(x + 50, y + 40)
    page.click("#finish [data-do=finish]")
    expect(page.locator("#hint")).to_contain_text("three corners")
    page.mouse.click(x + 50, y - 40)
    page.mouse.click(x - 50, y + 40)  # the first again
    corners = [list(map(float, c.split())) for c in page.input_value("#corners").splitlines()]
    west, south, east, north = rectangle
    assert corners == [[west, south], [east, south], [east, north]]
    add(page, "comet")
    client.publish([{"lon": west + 1, "lat": north - 1, "text": "comet in the other half"}])
    arrives(page, client, east - 1, south + 1, "comet in this half")
    expect(page.locator("#own li")).to_have_count(1)


def test_what_is_drawn_across_the_antimeridian_is_on_both_sides(
    open_page: Open, client: Client
) -> None:
    page = open_page(reduced_motion="reduce")
    page.locator("#map canvas").focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    x, y = middle(page)
    page.check("input[value=rectangle]")
    page.click("[data-draw=rectangle]")
    page.mouse.click(x - 80, y + 40)
    page.mouse.click(x + 80, y - 40)
    west, south, east, north = sides(page)
    assert 90 < west < 180
    assert -180 < east < -90
    add(page, "typhoon")
    page.check("input[value=polygon]")
    page.click("[data-draw=polygon]")
    for dx, dy in ((-80, 40), (80, 40), (80, -40), (-80, -40), (-80, 40)):
        page.mouse.click(x + dx, y + dy)
    corners = [list(map(float, c.split())) for c in page.input_value("#corners").splitlines()]
    assert corners == [[west, south], [east + 360, south], [east + 360, north], [west, north]]
    add(page, "tsunami")
    for lon in (179.9, -179.9):
        text = f"typhoon and tsunami at {lon}"
        client.publish([{"lon": lon, "lat": (south + north) / 2, "text": text}])
        expect(page.locator("#own li").filter(has_text=f"at {lon}")).to_have_count(2)
    for left in (1, 0):
        page.locator("#mine button").first.click()
        expect(page.locator("#mine button")).to_have_count(left)


def test_escape_ends_drawing_and_the_map_moves_again(page: Page) -> None:
    page.check("input[value=polygon]")
    page.click("[data-draw=polygon]")
    x, y = middle(page)
    page.mouse.click(x, y)
    page.keyboard.press("Escape")
    expect(page.locator("#hint")).to_be_hidden()
    assert page.input_value("#corners") == ""


def test_a_query_that_is_dropped_matches_no_more(page: Page, client: Client) -> None:
    add(page, "eclipse")
    arrives(page, client, 1.0, 1.0, "eclipse one")
    page.locator("#mine button").click()
    expect(page.locator("#none")).to_be_visible()
    assert [q.expression for q in client.list() if q.expression == "eclipse"] == []
    client.publish([{"lon": 1.0, "lat": 1.0, "text": "eclipse two"}])
    add(page, "aurora")
    arrives(page, client, 1.0, 1.0, "aurora after it")
    assert page.locator("#own li").filter(has_text="eclipse two").count() == 0


def test_all_by_keyboard(page: Page, client: Client) -> None:
    page.locator("body").press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.locator("#words")).to_be_focused()
    page.keyboard.type("tornado")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")  # from the whole world to a rectangle
    page.keyboard.press("Tab")
    for value in ("-10", "-10", "10", "10"):
        page.keyboard.press("Tab")
        page.keyboard.type(value)
    page.keyboard.press("Enter")
    expect(page.locator("#mine li")).to_contain_text("tornado")
    (query,) = [q for q in client.list() if q.expression == "tornado"]
    assert query.region is not None
    assert query.region.to_json() == {
        "type": "Rect", "lon_min": -10, "lat_min": -10, "lon_max": 10, "lat_max": 10
    }  # fmt: skip
    arrives(page, client, 0.0, 0.0, "tornado by keyboard")

    page.check("input[value=polygon]")
    page.fill("#corners", "0 0\n5 0\n5 5")
    add(page, "cyclone")
    drop = page.get_by_role("button", name="Drop the query cyclone")
    drop.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#mine li").filter(has_text="cyclone")).to_have_count(0)


@pytest.mark.parametrize(
    ("words", "area", "problem"),
    [
        ("flood AND (river", "world", "expression: column 11: this ( is not closed"),
        ("", "world", "region"),
        ("x", "rectangle", "west: a number of degrees is missing"),
        ("x", "polygon", "corners: a polygon has three at least"),
    ],
)
def test_what_is_wrong_is_said(page: Page, words: str, area: str, problem: str) -> None:
    page.fill("#words", words)
    page.check(f"input[value={area}]")
    page.click("#new [type=submit]")
    expect(page.locator("#problem")).to_contain_text(problem)
    assert page.input_value("#words") == words
    expect(page.locator("#mine li")).to_have_count(0)


def test_two_windows_see_the_same(page: Page, open_page: Open, client: Client) -> None:
    other = open_page()
    add(page, "geyser")
    expect(other.locator("#mine li")).to_contain_text("geyser")
    client.publish([{"lon": 3.0, "lat": 3.0, "text": "a geyser for both"}])
    for each in (page, other):
        expect(each.locator("#own li").filter(has_text="for both")).to_be_visible()
    other.locator("#mine button").click()
    expect(page.locator("#mine li")).to_have_count(0)


def test_others_matches_are_seen_with_their_queries_and_the_plan_is_told(
    page: Page, client: Client
) -> None:
    client.insert("of-others", "landslide OR mudflow", (0, 0, 9, 9), session="elsewhere")
    seen = page.locator("#all li").filter(has_text="a landslide")
    for _ in range(40):  # the map watches again a moment after a page has come
        if not seen.count():
            client.publish([{"lon": 1.0, "lat": 1.0, "text": "a landslide"}])
            page.wait_for_timeout(500)
    expect(seen.first).to_be_visible()
    client.publish([{"lon": 1.0, "lat": 1.0, "text": "a mudflow"}])
    row = page.locator("#all li").filter(has_text="a mudflow")
    expect(row).to_be_visible()
    expect(page.locator("#plan")).to_contain_text("Plan version 1")
    expect(page.locator("#live")).to_have_text("1")
    said = re.compile("^The last two minutes: objects ")
    expect(page.locator("#throughput svg")).to_have_attribute("aria-label", said)
    client.delete("of-others")


def test_two_plans_that_coexist_are_told_and_loads_shown(tmp_path: Path, open_page: Open) -> None:
    settings = Settings(
        runtime="local",
        port=0,
        hot="off",
        adjust="off",
        workers=2,
        data_dir=tmp_path / "data",
        load_period_s=0.5,
    )
    with start(settings) as service, Client(service.targets[0]) as client:
        client.insert("old", "flood", (0, 0, 1, 1))
        client.apply_plan(swapped(client), coexist=True)
        while not client.load()["leaves"]:
            client.publish([{"lon": 0.5, "lat": 0.5, "text": "flood"}])
        with serving(service.targets[0], {}, MapOptions(port=0)) as own:
            page = open_page(own.url)
            expect(page.locator("#plan")).to_contain_text("Plan version 1, version 2 coexists")
            expect(page.locator("#workers tbody tr")).to_have_count(2)


def test_replicated_cells_are_outlined_and_listed_with_their_workers(
    tmp_path: Path, open_page: Open
) -> None:
    settings = Settings(
        runtime="local", port=0, adjust="off", workers=2, data_dir=tmp_path / "data", hot="off"
    )
    with start(settings) as service, Client(service.targets[0]) as client:
        plan = RoutingPlan.from_dict(json.loads(client.plan()))
        cell = int(plan.grid.cells(np.ones(1), np.ones(1), 4)[0])  # an eighth of the world
        units = (ReplicatedUnit(cell, None, (1, 0)), ReplicatedUnit(None, "<b>flood</b>", (0, 1)))
        made = dataclasses.replace(plan, version=2, base_version=1, replicas=units)
        client.apply_plan(json.dumps(made.to_dict()).encode())
        while not client.load()["replicated"]:
            time.sleep(0.05)
        with serving(service.targets[0], {}, MapOptions(port=0)) as own:
            page = open_page(own.url)
            rows = page.locator("#shared li")
            expect(rows).to_have_count(2)
            expect(rows.first).to_contain_text("objects meet this cell: they go to one of workers")
            expect(rows.nth(1)).to_contain_text("meet <b>flood</b> everywhere")
            assert page.locator("#shared li b").count() == 0
            x, y = middle(page)
            said = page.locator(".maplibregl-popup-content")
            for _ in range(40):  # what is new is drawn a moment later
                page.mouse.click(x + 30, y - 10)
                if any("this cell" in text for text in said.all_inner_texts()):
                    break
                page.wait_for_timeout(250)
            expect(said).to_contain_text("objects meet this cell: they go to one of workers 1, 0")
            page.locator("#layers input[value=plan]").uncheck()
            page.locator(".maplibregl-popup-close-button").click()
            page.mouse.click(x + 30, y - 10)
            expect(said).to_have_count(0)


def test_a_phone_has_all_of_it_without_scrolling_sideways(open_page: Open) -> None:
    page = open_page(viewport={"width": 360, "height": 640}, has_touch=True)
    page.check("input[value=rectangle]")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    controls = page.locator("button:visible, input:visible, textarea:visible")
    count = controls.count()
    assert count >= 15
    for i in range(count):
        control = controls.nth(i)
        control.scroll_into_view_if_needed()
        box = control.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
        top = control.evaluate(
            "e => { const b = e.getBoundingClientRect();"
            " const t = document.elementFromPoint(b.x + b.width / 2, b.y + b.height / 2);"
            " return e === t || e.contains(t) || Boolean(t?.closest('label')?.contains(e)); }"
        )
        assert top, control.evaluate("e => e.outerHTML")
    page.tap("[data-draw=rectangle]")
    expect(page.locator("#map")).to_be_in_viewport()
    box = page.locator("#map").bounding_box()
    assert box is not None
    page.touchscreen.tap(box["x"] + 100, box["y"] + 100)
    expect(page.locator("#hint")).to_contain_text("opposite corner")
    page.touchscreen.tap(box["x"] + 200, box["y"] + 200)
    west, south, east, north = sides(page)
    assert (west < east, south < north) == (True, True)


def test_light_and_dark(open_page: Open) -> None:
    def paper(page: Page) -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    page = open_page(color_scheme="dark", reduced_motion="reduce")
    assert paper(page) == "rgb(18, 23, 29)"
    page.get_by_role("button", name="Use the light theme").click()
    assert paper(page) == "rgb(255, 255, 255)"
    page.reload()
    page.wait_for_selector("html[data-ready=yes]")
    assert paper(page) == "rgb(255, 255, 255)"


def test_everything_has_a_name_and_shows_the_focus(page: Page) -> None:
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button, input, textarea, [role=img], section')]
        .filter((e) => !(e.labels?.length || e.textContent.trim() || e.getAttribute('aria-label')
            || e.getAttribute('aria-labelledby'))).map((e) => e.outerHTML)"""
    )
    assert nameless == []
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))
    page.locator("#words").focus()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert page.locator("html").get_attribute("lang") == "en"


def test_without_webgl_all_but_the_map_works(open_page: Open, client: Client) -> None:
    page = open_page(script="HTMLCanvasElement.prototype.getContext = () => null")
    expect(page.locator("#map")).to_contain_text("this browser offers no WebGL")
    page.check("input[value=rectangle]")
    expect(page.locator("[data-draw=rectangle]")).to_be_hidden()
    for name, value in zip(SIDES, ("0", "0", "9", "9"), strict=True):
        page.fill(f"#{name}", value)
    add(page, "blizzard")
    arrives(page, client, 1.0, 1.0, "a blizzard unseen")
    page.locator("#mine button").click()
    expect(page.locator("#none")).to_be_visible()


def test_a_restart_of_the_service_is_told_and_survived(tmp_path: Path, open_page: Open) -> None:
    settings = Settings(runtime="local", port=0, workers=1, data_dir=tmp_path / "data")
    first = start(settings)
    (target,) = first.targets
    with serving(target, {"timeout": 2.0}, MapOptions(port=0)) as own:
        page = open_page(own.url)
        expect(page.locator("#link")).to_have_text(f"Connected to {target}")
        add(page, "sandstorm")
        first.stop()
        expect(page.locator("#link")).to_contain_text("No connection to")
        again = settings.model_copy(update={"port": int(target.rpartition(":")[2])})
        with start(again), Client(target, timeout=90) as client:
            expect(page.locator("#link")).to_have_text(f"Connected to {target}")
            arrives(page, client, 1.0, 1.0, "sandstorm after the restart")


def test_a_page_whose_map_ends_says_so(target: str, open_page: Open, client: Client) -> None:
    with serving(target, {}, MapOptions(port=0)) as own:
        page = open_page(own.url)
        add(page, "whirlpool")
    expect(page.locator("#link")).to_contain_text("own process does not answer")
    assert [q for q in client.list() if q.expression == "whirlpool"] == []


def test_a_page_that_is_refused_says_why(
    target: str, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "MAX_PAGES", 1)
    with serving(target, {}, MapOptions(port=0)) as own:
        first = open_page(own.url)
        expect(first.locator("#link")).to_contain_text("Connected to")
        second = open_page(own.url)
        why = "refuses: 1 pages are open, the limit (pages). Trying again"
        expect(second.locator("#link")).to_contain_text(why)


def test_a_window_of_this_size_shows_map_and_panel(page: Page, live: ServedMap) -> None:
    deadline = time.monotonic() + 60
    while live.hub.pages != 1:  # those of before leave when the map notices, this one has to come
        assert time.monotonic() < deadline
        page.wait_for_timeout(50)
    box = page.locator("#map").bounding_box()
    assert box is not None
    assert box["width"] > SIZE["width"] / 2
