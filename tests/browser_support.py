"""A real browser for tests: headless Chromium through Playwright, with what the pages must not do written down."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HERE = ("127.0.0.1", "localhost", "::1", None)
SERIOUS = ("serious", "critical")


def browser_path() -> str:
    """The browser of this machine; where there is none the test is skipped, or fails if CI_BROWSER=1 says so."""
    found = os.environ.get("COTERIE_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        text = "no browser: install chromium, or name one in COTERIE_BROWSER"
        if os.environ.get("CI_BROWSER") == "1":
            pytest.fail(text)
        pytest.skip(text)
    return found


@contextmanager
def launch(**options: Any) -> Iterator[Any]:
    """A page that writes down its console's errors (`page.errors`) and requests to elsewhere (`page.outside`).

    Options are those of Playwright's `new_context`: viewport, color_scheme, reduced_motion and so on.
    """
    path = browser_path()
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            page = browser.new_context(**options).new_page()
            page.errors, page.outside = [], []
            page.on("console", lambda m: page.errors.append(m.text) if m.type in ("error", "warning") else None)
            page.on("pageerror", lambda error: page.errors.append(str(error)))
            page.on("request", lambda r: None if _stays_here(r.url) else page.outside.append(r.url))
            yield page
        finally:
            browser.close()


def _stays_here(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in ("file", "data", "blob", "about") or parts.hostname in HERE


def axe_violations(page: Any) -> list[str]:
    """The serious and critical violations that axe-core finds, each with the first element concerned."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(page).response["violations"]
    return [f"{v['id']}: {v['help']}: {v['nodes'][0]['html'][:200]}" for v in found if v["impact"] in SERIOUS]
