"""A real browser, for the tests of pages: Chromium, driven by Playwright, which watches what a page does.

COTERIE_BROWSER names its program; otherwise chromium or google-chrome is looked for. Where there is none the tests are
skipped, or fail with CI_BROWSER=1.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSIDE = ("file:", "data:", "blob:", "about:")  # addresses that need no network


def program() -> str:
    """The browser's program; skips the test (or fails it) where there is none."""
    found = os.environ.get("COTERIE_BROWSER") or next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is None:
        need = "no browser found: install chromium (or google-chrome), or name its program in COTERIE_BROWSER"
        if os.environ.get("CI_BROWSER") == "1":
            pytest.fail(need)
        pytest.skip(need)
    return found


@contextmanager
def browser() -> Iterator[Browser]:
    """One browser, for all tests of a module: Playwright's event loop must have ended before another test's begins."""
    path = program()
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # root has no other way
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield started
        finally:
            started.close()


@contextmanager
def launch(within: Browser | None = None, *, inside: tuple[str, ...] = (), **options: Any) -> Iterator[Page]:
    """A new page (of its own browser, if none is given) that keeps its `errors` and its requests to `outside`.

    `inside` are beginnings of addresses that are allowed, such as a dashboard's; `options` are those of Playwright's
    contexts: `color_scheme="dark"`, `viewport={"width": 360, "height": 740}`.
    """
    if within is None:
        with browser() as own, launch(own, inside=inside, **options) as page:
            yield page
        return
    context = within.new_context(accept_downloads=True, **options)
    page: Any = context.new_page()
    page.errors, page.outside = [], []
    page.on("console", lambda m: page.errors.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.on("request", lambda r: None if r.url.startswith((*INSIDE, *inside)) else page.outside.append(r.url))
    try:
        yield page
    finally:
        context.close()


def axe_violations(page: Page) -> list[str]:
    """What axe-core finds that is serious or critical: the rule, and where."""
    found = Axe().run(page).response["violations"]
    grave = [v for v in found if v["impact"] in ("serious", "critical")]
    return [f"{v['id']}: {', '.join(str(node['target']) for node in v['nodes'][:5])}" for v in grave]
