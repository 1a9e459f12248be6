"""The site builds without a warning; no link on it leads nowhere, and nothing is loaded from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from docs_support import PAGES, ROOT, name

sys.path.insert(0, str(ROOT / "docs" / "site"))
import regions

LOADING = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src"}
EXTERNAL = re.compile(r"^(https?:)?//")


class Links(HTMLParser):
    """What a page refers to, what it loads, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.loads: list[str] = []
        self.anchors = {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        has = {key: value or "" for key, value in attributes}
        self.anchors.update(has[key] for key in ("id", "name") if key in has)
        if tag == "a" and "href" in has:
            self.targets.append(has["href"])
        if tag in LOADING and LOADING[tag] in has and has.get("rel") != "canonical":
            self.loads.append(has[LOADING[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `scripts/docs` builds it."""
    out = tmp_path_factory.mktemp("site")
    options = [
        "--fail-on-warning",
        "--keep-going",
        "--quiet",
        "-b",
        "html",
        "-c",
        "docs/site",
        "-d",
        str(out / "cache"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, ".", str(out / "html")],
        cwd=ROOT, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out / "html"


@pytest.fixture(scope="module")
def links(site: Path) -> dict[Path, Links]:
    return {page: Links(page.read_text(encoding="utf-8")) for page in site.rglob("*.html")}


def test_every_page_is_there(site: Path) -> None:
    for page in PAGES:
        assert (site / page.relative_to(ROOT).with_suffix(".html")).exists(), f"{name(page)} is not on the site"


def test_every_link_leads_somewhere(links: dict[Path, Links]) -> None:
    broken = defaultdict(set)
    for page, has in links.items():
        for target in [*has.targets, *has.loads]:
            if re.match(r"[a-z]+:", target) or EXTERNAL.match(target):
                continue
            path, anchor = unquote(urlsplit(target).path), unquote(urlsplit(target).fragment)
            file = (page.parent / path).resolve() if path else page.resolve()
            if not file.is_file() or (file in links and anchor not in links[file].anchors):
                broken[page.name].add(target)
    assert not broken


def test_nothing_is_loaded_from_elsewhere(site: Path, links: dict[Path, Links]) -> None:
    for page, has in links.items():
        assert not [source for source in has.loads if EXTERNAL.match(source)], page.name
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", text), sheet.name


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_generated_parts_are_current(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == regions.current(text), f"{name(page)} is behind the code: run ./scripts/docs"


def test_settings_have_help() -> None:
    """The reference is made of these texts."""
    for line in regions.all_settings("").splitlines():
        assert not re.match(r"\| `[\w.]+` \| .* \|  \|$", line), f"no help: {line}"
