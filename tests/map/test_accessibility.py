"""The page, judged by axe-core: light and wide, dark and on a phone, with all that it can show."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from ps2stream.client.client import Client
from tests.map.conftest import SIZE, Open

pytestmark = pytest.mark.browser
AXE = "axe-core@4.14.1"
PHONE = {"width": 360, "height": 640}


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Its script."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("there is no npm here (Debian: apt-get install nodejs npm)")
    folder = tmp_path_factory.mktemp("axe")
    (folder / "package.json").write_text("{}")
    words = [npm, "install", "--silent", "--no-audit", "--no-fund", AXE]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False,
                          env={**os.environ, "NO_COLOR": "1"})  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return Path(folder / "node_modules/axe-core/axe.min.js").read_text("utf-8")


def judged(page: Page, axe: str) -> list[tuple[str, list[str]]]:
    """What is wrong: the rule, and the elements."""
    page.evaluate(axe)
    found: dict[str, Any] = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [(v["id"], [n["html"] for n in v["nodes"]]) for v in found["violations"]]


@pytest.mark.takes_turns
@pytest.mark.parametrize(("theme", "size"), [("light", SIZE), ("dark", PHONE)])
def test_axe_finds_nothing(
    theme: str, size: dict[str, int], axe: str, open_page: Open, client: Client
) -> None:
    client.insert("of-others", "avalanche", session="elsewhere")
    page = open_page(color_scheme=theme, reduced_motion="reduce", viewport=size)
    page.fill("#words", "hailstorm")
    page.click("#new [type=submit]")
    expect(page.locator("#mine li")).to_have_count(1)
    client.publish([{"lon": 0.0, "lat": 25.0, "text": "hailstorm and avalanche"}])
    expect(page.locator("#own li")).to_have_count(1)
    expect(page.locator("#all li").filter(has_text="avalanche")).not_to_have_count(0)
    page.check("input[value=rectangle]")
    page.click("#new [type=submit]")
    expect(page.locator("#problem")).not_to_be_empty()
    page.check("input[value=polygon]")
    page.click("[data-draw=polygon]")
    expect(page.locator("#finish")).to_be_visible()
    assert judged(page, axe) == []  # with all buttons, and what was wrong
    page.keyboard.press("Escape")
    page.locator("#map").click()
    expect(page.locator(".maplibregl-popup")).to_be_visible()
    assert judged(page, axe) == []
    page.locator("#mine button").click()
    client.delete("of-others")
    page.evaluate("document.querySelector('#words').insertAdjacentHTML('afterend', '<input>')")
    page.evaluate("document.querySelector('h1').style.color = '#777777'")
    assert {rule for rule, _ in judged(page, axe)} >= {"label", "color-contrast"}
