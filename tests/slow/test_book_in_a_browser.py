"""The book, opened from its folder: its search finds, nothing is asked of a network, nothing is complained of."""

import os
import re
import shutil
from pathlib import Path

import pytest

SITE = Path(os.environ.get("APIECE_SITE", "site"))
CHROMIUM = os.environ.get("APIECE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (SITE / "index.html").exists(), reason="no book: make site, or APIECE_SITE"),
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium, or APIECE_CHROMIUM"),
]


def test_the_search_of_the_book_finds_without_a_server():
    driver = pytest.importorskip("playwright.sync_api")
    wrong = []
    with driver.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page()
        tab.on("console", lambda said: said.type in ("error", "warning") and wrong.append(said.text))
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("request", lambda request: request.url.startswith("http") and wrong.append(request.url))
        tab.goto((SITE.resolve() / "index.html").as_uri())
        tab.locator("li a").first.click()
        tab.click(".md-search__button")
        tab.keyboard.type("newcomers")
        found = tab.get_by_text(re.compile(r"^\d+ results$"))
        found.wait_for(timeout=60_000)
        assert int(found.text_content().split()[0]) > 5
        tab.keyboard.press("Enter")
        tab.wait_for_url("**/*?h=newcomers*", timeout=20_000)
        browser.close()
    assert wrong == []
