"""Debian's Chromium on the pages of Dagster's UI, read as a person reads them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Locator, Page, expect, sync_playwright
from playwright.sync_api import TimeoutError as NotShownError

from tests.waiting import until

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# A Dagster run is a process, which takes seconds to start on a busy machine.
SHOWN_SECONDS = 60
RELOAD_SECONDS = 6


@contextmanager
def opened_page() -> Iterator[Page]:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1400, "height": 1400}, reduced_motion="reduce")
        page.set_default_timeout(SHOWN_SECONDS * 1000)
        yield page
        browser.close()


class AssetPage:
    """The page of an asset: its button, and the values of its newest metadata by key."""

    def __init__(self, page: Page, address: str, asset: str) -> None:
        self._page = page
        self._url = f"{address}/assets/{asset}"
        page.goto(self._url)

    def materialize(self) -> None:
        """Click the button, follow the Dagster run until it is a success, and come back."""
        self._page.get_by_role("button", name="Materialize").first.click()
        self._page.get_by_role("link", name="View", exact=True).click()
        ended = self._page.get_by_text(re.compile("^(Success|Failure|Canceled)$")).first
        expect(ended).to_be_visible(timeout=SHOWN_SECONDS * 1000)
        assert ended.inner_text() == "Success", self._page.locator("body").inner_text()
        self._page.goto(self._url)

    def value(self, key: str) -> Locator:
        """The cell beside `key`, which appears with the metadata."""
        return self._page.locator(f"xpath=//tr[td[1][normalize-space()='{key}']]/td[3]").first

    def wait_for_line(self, key: str, text: str) -> dict[str, str]:
        """The first line with `text` of the table beside `key`, by column, once the page shows it; it is loaded again
        now and then, because the UI itself does not always notice what is new."""
        line = self.value(key).locator("tbody tr").filter(has_text=text).first
        until(lambda: self._shows(line), SHOWN_SECONDS, f"{text!r} in {key!r} of {self._url}")
        columns = self.value(key).locator("thead th").all_inner_texts()
        return dict(zip(columns, _cells(line), strict=True))

    def _shows(self, line: Locator) -> bool:
        try:
            line.wait_for(timeout=RELOAD_SECONDS * 1000)
        except NotShownError:
            self._page.reload()
            return False
        return True

    def lines(self, key: str) -> list[dict[str, str]]:
        """The table beside `key` as it is shown now."""
        columns = self.value(key).locator("thead th").all_inner_texts()
        lines = self.value(key).locator("tbody tr").all()
        return [dict(zip(columns, _cells(line), strict=True)) for line in lines]


def _cells(line: Locator) -> list[str]:
    """As a person reads them: to whom all spaces are alike."""
    return [text.replace("\N{NO-BREAK SPACE}", " ") for text in line.locator("td").all_inner_texts()]
