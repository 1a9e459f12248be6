"""The site builds without a warning; no link on it leads nowhere, and nothing is loaded from elsewhere."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import typing
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from docs_support import PAGES, ROOT, name

from coterie.core import events

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


@pytest.mark.slow  # CI runs it beside lint
def test_the_site_is_whole(tmp_path: Path) -> None:
    """One test, because building takes a quarter of a minute on a busy machine. Built as `scripts/docs` does it."""
    site = tmp_path / "html"
    options = [
        "--fail-on-warning",
        "--keep-going",
        "--quiet",
        "-b",
        "html",
        "-c",
        "docs/site",
        "-d",
        str(tmp_path / "d"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, ".", str(site)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    for page in PAGES:
        assert (site / page.relative_to(ROOT).with_suffix(".html")).exists(), f"{name(page)} is not on the site"
    links = {page: Links(page.read_text(encoding="utf-8")) for page in site.rglob("*.html")}
    assert not broken(links)
    assert not loaded_from_elsewhere(site, links)


def broken(links: Mapping[Path, Links]) -> list[str]:
    """Links to files that are not there, or to anchors that a page does not have."""
    found = []
    for page, has in links.items():
        for target in [*has.targets, *has.loads]:
            if re.match(r"[a-z]+:", target) or EXTERNAL.match(target):
                continue
            path, anchor = unquote(urlsplit(target).path), unquote(urlsplit(target).fragment)
            file = (page.parent / path).resolve() if path else page.resolve()
            if not file.is_file() or (file in links and anchor not in links[file].anchors):
                found.append(f"{page.name}: {target}")
    return found


def loaded_from_elsewhere(site: Path, links: Mapping[Path, Links]) -> list[str]:
    pages = [f"{page.name}: {source}" for page, has in links.items() for source in has.loads if EXTERNAL.match(source)]
    import_ = re.compile(r"(@import|url\()\s*['\"]?(https?:)?//")
    return pages + [sheet.name for sheet in site.rglob("*.css") if import_.search(sheet.read_text(encoding="utf-8"))]


def test_the_check_of_links_finds_what_is_broken(tmp_path: Path) -> None:
    one, other = tmp_path / "one.html", tmp_path / "other.html"
    one.write_text('<a href="other.html#here">1</a> <a href="other.html#gone">2</a> <a href="none.html">3</a>')
    other.write_text('<p id="here"><img src="https://example.org/a.png"></p>')
    links = {page: Links(page.read_text()) for page in (one, other)}
    assert broken(links) == ["one.html: other.html#gone", "one.html: none.html"]
    assert loaded_from_elsewhere(tmp_path, links) == ["other.html: https://example.org/a.png"]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_generated_parts_are_current(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == regions.current(text), f"{name(page)} is behind the code: run ./scripts/docs"


@pytest.mark.parametrize("kind", typing.get_args(events.Event))
def test_every_field_of_an_event_is_documented(kind: type) -> None:
    told = set(re.findall(r"^\| `(\w+)` ", regions.field_table(kind), re.MULTILINE))
    assert {f.name for f in dataclasses.fields(kind)} - {"event"} <= told, "a comment beside the field says what it is"


def test_settings_have_help() -> None:
    """The reference is made of these texts."""
    for line in regions.all_settings("").splitlines():
        assert not re.match(r"\| `[\w.]+` \| .* \|  \|$", line), f"no help: {line}"
