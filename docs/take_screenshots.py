"""Take the pictures of the docs from a running `bin/up`, in the repository: `python -m docs.take_screenshots ADDRESS`.

Needs Debian's Chromium (`apt-get install chromium`), which `bin/test` installs as well. Let a few jobs and tasks run
before, or the tables are short.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import Page

from tests.browser import AssetPage, opened_page

IMAGES = Path(__file__).parent / "images"
WIDE = 1500


def shoot_catalog(page: Page, address: str) -> None:
    page.goto(f"{address}/assets")
    page.get_by_text("run_failures").first.wait_for()
    save(page, "catalog", 660)


def shoot_worker(page: Page, address: str) -> None:
    """The newest Dagster run of the job `work`."""
    page.goto(f"{address}/runs?q%5B0%5D=job%3Awork")
    page.locator("a[href^='/runs/']").first.click()
    page.get_by_text("ASSET_OBSERV").first.wait_for()
    save(page, "worker", 1000)


def shoot_asset(page: Page, address: str, asset: str, key: str, *, renew: bool = True, height: int = 1000) -> None:
    """The metadata of an asset down to `key`."""
    shown = AssetPage(page, address, asset)
    if renew:
        shown.materialize()
    shown.value(key).wait_for()
    page.set_viewport_size({"width": WIDE, "height": height})
    page.wait_for_load_state("networkidle")
    page.get_by_placeholder("Filter metadata keys").evaluate("filter => filter.scrollIntoView()")
    save(page, asset, height)


def shoot_timeline(page: Page, address: str) -> None:
    shown = AssetPage(page, address, "upcoming_firings")
    shown.value("next 24 hours").get_by_text("Show Markdown").click()
    page.get_by_role("img", name="Firings of the next 24 hours").wait_for()
    save(page, "timeline", 780)


def save(page: Page, name: str, height: int) -> None:
    page.set_viewport_size({"width": WIDE, "height": height})
    page.wait_for_load_state("networkidle")
    page.screenshot(path=IMAGES / f"{name}.png")
    sys.stdout.write(f"{name}.png\n")


def main() -> None:
    address = sys.argv[1].rstrip("/")
    IMAGES.mkdir(exist_ok=True)
    with opened_page() as page:
        shoot_asset(page, address, "cron_runs", "firings", renew=False)
        shoot_asset(page, address, "task_runs", "newest task runs")
        shoot_asset(page, address, "upcoming_firings", "next firings")
        shoot_timeline(page, address)
        shoot_asset(page, address, "schedule_drift", "differences")
        shoot_asset(page, address, "clock_health", "live workers")
        shoot_worker(page, address)
        shoot_catalog(page, address)


if __name__ == "__main__":
    main()
