"""Takes the picture of docs/dashboard.md: python scripts/dashboard_pictures.py

A service starts on Ray, and a browser opens Ray's dashboard, enters the token as the page
describes, and opens the table of actors. The posts are synthetic.
"""

from __future__ import annotations

import io
import socket
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from ps2stream.client.client import Client
from ps2stream.cluster import ray_environment
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.demo.gazetteer import made_posts

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
CHROMIUM = "/usr/bin/chromium"
DIALOG = "[aria-labelledby=token-auth-dialog-title]"
POSTS = 5_000
WAIT_MS = 120_000


def find_free_port() -> int:
    """Returns a free port of the loopback address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def enter_token(page: Page, token: str) -> None:
    """Answers the dialog. Raises TimeoutError if there is none, or if it stays open."""
    page.wait_for_selector(DIALOG)
    page.fill(f"{DIALOG} input", token)
    page.click(f"{DIALOG} button:has-text('Submit')")
    page.wait_for_selector(DIALOG, state="detached")


def take_actors(page: Page, base: str) -> None:
    """Takes a picture of the table of actors."""
    page.goto(f"{base}/#/actors")
    page.wait_for_selector("text=WorkerShell")
    page.wait_for_timeout(5000)  # CPU and memory appear later than the table
    shown = Image.open(io.BytesIO(page.screenshot()))
    shown.save(IMAGES / "ray-actors.webp", quality=80, method=6)


def main() -> None:
    port = find_free_port()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        settings = Settings(port=0, workers=2, data_dir=data, dashboard_port=port)
        with start(settings) as service, Client(service.targets[0]) as client:
            client.insert("markets", "market OR harbour OR bridge OR concert")
            client.publish(next(made_posts(np.random.default_rng(1), POSTS)))
            with (
                sync_playwright() as playwright,
                playwright.chromium.launch(
                    executable_path=CHROMIUM, args=["--no-sandbox"]
                ) as browser,
            ):
                page = browser.new_page(viewport={"width": 1400, "height": 940})
                page.set_default_timeout(WAIT_MS)
                base = f"http://127.0.0.1:{port}"
                page.goto(base)
                enter_token(page, (data / ray_environment.NAME).read_text())
                take_actors(page, base)


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    main()
