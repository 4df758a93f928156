"""Takes the pictures of docs/map.md: python scripts/map_pictures.py [SECONDS]"""

from __future__ import annotations

import io
import itertools
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from ps2stream.cluster.service import fitted_plan, start
from ps2stream.config import Settings
from ps2stream.demo.gazetteer import made_posts
from ps2stream.demo.run import DemoOptions, DemoRun
from ps2stream.language.analyzer import Analyzer
from ps2stream.routing.plan import built_in_plan
from ps2stream.space.grid import Grid
from ps2stream.web import serve

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
SAMPLE = 20_000
SIDES = {"west": "-12", "south": "36", "east": "30", "north": "60"}


def take(page: Page, name: str) -> None:
    """Takes a picture of what the page shows."""
    page.evaluate("document.querySelector('#panel').scrollTop = 0; window.scrollTo(0, 0)")
    shown = Image.open(io.BytesIO(page.screenshot()))
    shown.save(IMAGES / f"{name}.webp", quality=80, method=6)


def pictures(url: str, seconds: float) -> None:
    """Opens the map, draws a query, waits, and takes all pictures."""
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS) as browser,
    ):
        page = browser.new_page(viewport={"width": 1200, "height": 780})
        page.goto(url)
        page.wait_for_selector("html[data-ready=yes]")
        page.fill("#words", "market OR harbour OR bridge OR concert")
        page.check("input[value=rectangle]")
        for side, value in SIDES.items():
            page.fill(f"#{side}", value)
        page.click("#new [type=submit]")
        page.wait_for_selector("#mine li")
        page.wait_for_timeout(1000 * seconds)
        take(page, "map")
        page.click("#theme")
        page.wait_for_timeout(2000)
        take(page, "map-dark")
        page.set_viewport_size({"width": 360, "height": 780})
        page.wait_for_timeout(2000)
        take(page, "map-phone")


def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            runtime="local", port=0, workers=4, load_period_s=5, data_dir=Path(folder) / "data"
        )
        posts = next(made_posts(np.random.default_rng(1), SAMPLE))
        lon, lat = (posts.column(name).to_numpy() for name in ("lon", "lat"))
        analysis = fitted_plan(settings, None).analysis
        tokens = map(Analyzer(analysis).tokens, posts.column("text").to_pylist())
        counts = Counter(itertools.chain.from_iterable(tokens))
        plan = built_in_plan(analysis, Grid(), settings.workers, (lon, lat), counts)
        with start(settings, plan) as service:
            (target,) = service.targets
            demo = DemoRun(
                target, DemoOptions(seconds=None, rate=300, queries=300, churn=2), "pictures"
            )
            runs = threading.Thread(target=demo.run)
            runs.start()
            while demo.phase != "streaming":
                time.sleep(0.2)
            with serve.serving(target, {}, serve.MapOptions(port=0)) as live:
                pictures(live.url, seconds)
            demo.stop()
            runs.join()


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0)
