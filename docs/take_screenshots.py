"""Take the pictures of the docs from a running `bin/up`: `python docs/take_screenshots.py http://127.0.0.1:3000`.

Needs Debian's Chromium (`apt-get install chromium`), which `bin/test` installs as well.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).parent / "images"
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# File name, path in the UI, a text that is there once the page is complete, and the viewport.
PAGES = [
    ("cron_runs", "assets/cron_runs", "lateness p50", (1200, 1150)),
    ("catalog", "assets", "run_failures", (1200, 420)),
    ("workers", "runs", "sumaclock/done", (1200, 420)),
]


def shoot(page: Page, address: str) -> None:
    for name, path, text, (width, height) in PAGES:
        page.set_viewport_size({"width": width, "height": height})
        page.goto(f"{address}/{path}")
        page.get_by_text(text).first.wait_for(timeout=60_000)
        page.wait_for_load_state("networkidle")
        page.screenshot(path=IMAGES / f"{name}.png")
        sys.stdout.write(f"{name}.png\n")


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        shoot(browser.new_page(), sys.argv[1].rstrip("/"))
        browser.close()


if __name__ == "__main__":
    main()
