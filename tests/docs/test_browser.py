"""The built site in a browser: it asks its own server alone, and finds what is searched for."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

pytestmark = pytest.mark.browser
PATIENCE_MS = 20_000


class Quiet(SimpleHTTPRequestHandler):
    """Files of a folder, without a log."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def home(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.mark.takes_turns(2)
def test_it_is_searched_without_asking_anybody_else(home: str) -> None:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("there is no Chromium here (Debian: apt-get install chromium)")
    asked, complaints = set[str](), list[str]()
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=program, args=["--no-sandbox"]) as browser,
    ):
        page = browser.new_page()
        page.on("request", lambda request: asked.add(request.url))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
        page.set_default_timeout(PATIENCE_MS)
        ready = page.locator(".md-search-result__meta", has_not_text="Initializing")
        page.goto(f"{home}explanation/algorithms.html")
        ready.wait_for(state="attached")  # its scripts listen
        page.click("label.md-search__icon[for=__search]", force=True)
        page.locator("input.md-search__input").press_sequentially("canonical emitter")
        page.locator(".md-search-result__item a").first.click()
        expect(page.locator("article")).to_contain_text("canonical emitter", ignore_case=True)
        ready.wait_for(state="attached")
        for scheme in ("slate", "default"):  # dark, and light again
            page.locator("form[data-md-component=palette] label:visible").click()
            expect(page.locator("body")).to_have_attribute("data-md-color-scheme", scheme)
    assert complaints == []
    assert {url for url in asked if not url.startswith((home, "data:", "blob:"))} == set()
    assert f"{home}search/search_index.json" in asked
