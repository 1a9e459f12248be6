"""What reports contain, in a real browser: a run with its baseline, and bytes on their logarithmic axis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_support import axe_violations, browser, launch
from playwright.sync_api import Browser
from report_support import run_of_all_figures, written

from coterie.core.events import PeerRound, RunStarted
from coterie.report.html import report_again, write_report
from coterie.report.summary import summarise, write_json


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight peers that end with 0.85 to 0.95 (0.9 + 0.02 p - 0.05, at most 1 - 0.05); alone, all have 0.9."""
    events = run_of_all_figures()
    folder = written(events, tmp_path_factory.mktemp("runs") / "run")
    start = events[0]
    assert isinstance(start, RunStarted)
    rounds = (PeerRound(p, t, float(t), 0.9, 0.9, 1.0) for t in range(1, 13) for p in range(8))
    alone = [RunStarted("local", *list(vars(start).values())[1:]), *rounds]
    write_json(written(alone, folder / "baseline-local") / "summary.json", summarise(alone, 1.0))
    return report_again(folder)


@pytest.fixture
def page(chromium: Browser, report: Path) -> Iterator[Any]:
    with launch(chromium) as opened:
        opened.goto(report.as_uri())
        yield opened
        assert opened.errors == []
        assert opened.outside == []


def drawing(page: Any, name: str) -> Any:
    return page.locator(f"figure[data-file='{name}'] .drawing > svg")


def test_bars_are_picked_out_and_switched(page: Any) -> None:
    bars = drawing(page, "gain-last").locator("path.gain")
    assert bars.count() == 8
    assert bars.first.bounding_box()["height"] > 5
    page.get_by_label("Highlight").select_option("peer 0")
    faint = "all => all.map(bar => getComputedStyle(bar).opacity)"
    names = bars.evaluate_all("all => all.map(bar => bar.dataset.name)")
    assert [name for name, opacity in zip(names, bars.evaluate_all(faint), strict=True) if opacity == "1"] == ["peer 0"]
    assert not drawing(page, "gain-selected").is_visible()
    page.get_by_role("radio", name="Selected by validation").check()
    assert drawing(page, "gain-selected").is_visible()
    assert axe_violations(page) == []


def test_a_tooltip_on_the_axis_of_bytes_is_in_bytes(page: Any) -> None:
    chart = drawing(page, "accuracy-bytes")
    ends = chart.locator("path.line[data-name]").evaluate_all("all => all.map(l => l.getAttribute('aria-label'))")
    # 12 rounds of 8 peers, 100 kB each; Local has sent nothing.
    told = [(label.split(",")[0], label.split(" at ")[1]) for label in ends]
    assert told == [("local", "0 B"), ("validation", "9.6 MB"), ("test", "9.6 MB")]


def test_odd_names_of_notes_run_nothing_and_fit_on_a_phone(chromium: Browser, tmp_path: Path) -> None:
    bad = "</script><script>document.title='ran'</script><img src=x onerror=\"document.title='ran'\">'\"&\ud800"
    rounds = (PeerRound(p, t, float(t), notes={bad: t, "x" * 300: p, "loss_x": 1 / t}) for t in (1, 2) for p in (0, 1))
    events = [RunStarted("mine", 0, 2, 2, [], [], [], None), *rounds]
    write_report(events, summarise(events, 1.0), tmp_path / "report.html")
    with launch(chromium, viewport={"width": 360, "height": 740}) as page:
        page.goto((tmp_path / "report.html").as_uri())
        assert page.title() == "mine · seed 0 · 2 peers · 2 rounds"
        assert page.locator("img").count() == 0
        assert page.locator("figure[data-file^='note-']").count() == 3
        assert (
            drawing(page, "note-loss_x")
            .locator("path.line")
            .get_attribute("aria-label")
            .startswith("mean of the peers")
        )
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.errors == []
        assert axe_violations(page) == []
