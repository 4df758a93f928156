"""A service, its map, and a browser that opens it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from ps2stream.client.client import Client
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.web.serve import MapOptions, ServedMap, serving

SIZE = {"width": 900, "height": 600}
WINDOW: dict[str, Any] = {"viewport": SIZE, "device_scale_factor": 0.5}
"""A quarter of the pixels: a processor draws the map, and most of what these tests take is that."""
ARGUMENTS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
PATIENCE_MS = 20_000
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    settings = Settings(
        runtime="local",
        port=0,
        hot="off",
        adjust="off",
        workers=2,
        data_dir=Path(tmp_path_factory.mktemp("map")),
    )
    with start(settings) as running:
        yield running


@pytest.fixture(scope="module")
def target(service: RunningService) -> str:
    return service.targets[0]


@pytest.fixture(scope="module")
def live(target: str) -> Iterator[ServedMap]:
    with serving(target, {}, MapOptions(port=0)) as running:
        yield running


@pytest.fixture
def client(target: str) -> Iterator[Client]:
    with Client(target, timeout=90) as connected:
        yield connected


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium. Absent: skipped loudly, and a failure where CI=true."""
    program = shutil.which("chromium")
    if program is None:
        complaint = "there is no Chromium here (Debian: apt-get install chromium)"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(complaint)
        pytest.skip(complaint)
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=program, args=ARGUMENTS) as found,
    ):
        yield found


def prepare(page: Page, home: str, complaints: list[str]) -> None:
    """Whatever the page complains of is kept, and so is what it asks of anyone else."""
    page.set_default_timeout(PATIENCE_MS)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda m: (
            complaints.append(m.text)
            if m.type == "error" and "Failed to load resource" not in m.text
            else None
        ),
    )
    page.on(
        "request",
        lambda r: (
            None
            if r.url.startswith((home, "data:", "blob:"))
            else complaints.append(f"asked for {r.url}")
        ),
    )


def show(page: Page, url: str) -> Page:
    page.goto(url)
    page.wait_for_selector("html[data-ready=yes]")
    return page


@pytest.fixture
def open_page(browser: Browser, live: ServedMap) -> Iterator[Open]:
    """Opens a page of the map in a window of its own. Whatever the page complains of fails the
    test, and so does what it asks of anyone else."""
    complaints: list[str] = []
    with ExitStack() as stack:

        def opened(url: str = "", script: str = "", **options: object) -> Page:
            context = browser.new_context(**WINDOW | options)
            stack.callback(context.close)
            page = context.new_page()
            page.add_init_script(script)
            prepare(page, (url or live.url).split("?")[0], complaints)
            return show(page, url or live.url)

        yield opened
    assert complaints == []


@pytest.fixture(scope="module")
def window(browser: Browser, live: ServedMap) -> Iterator[tuple[Page, list[str]]]:
    """A window that many tests use, and the complaints of its pages."""
    complaints: list[str] = []
    with browser.new_context(**WINDOW) as context:
        page = context.new_page()
        prepare(page, live.url, complaints)
        yield page, complaints
