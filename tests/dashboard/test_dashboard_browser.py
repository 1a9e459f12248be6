"""The dashboard in a real browser: what is drawn, what moves, what can be clicked, and that nobody else is asked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from browser_support import axe_violations, browser, launch
from dashboard_support import make_run, serving, write_round
from playwright.sync_api import Browser

from coterie.core import formatting
from coterie.core.events import EventLog, Offence, PeerRound
from coterie.core.measured_metric import MeasuredMetric
from coterie.running.state import RunState

PHONE = {"width": 390, "height": 844}
SOON = 15_000  # milliseconds, on a busy machine


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


Opened = Callable[..., AbstractContextManager[Any]]


@pytest.fixture
def opened(chromium: Browser, tmp_path: Path) -> Opened:
    """Opens a page of a dashboard over the test's folder; it must have no error, and contact no other host."""
    return partial(_opened, chromium, tmp_path)


@contextmanager
def _opened(chromium: Browser, folder: Path, way: str = "", *words: str, **options: Any) -> Iterator[Any]:
    with serving(folder, *words) as served:
        home = served.url.partition("?")[0]
        with launch(chromium, inside=(home,), **options) as page:
            page.goto(served.url)
            if way:
                page.goto(home + way)
            yield page
            assert page.errors == []
            assert page.outside == []


def tile(page: Any, name: str) -> str:
    found: str = page.locator("dl.tiles > div", has=page.locator(f"dt:text-is('{name}')")).locator("b").inner_text()
    return found


def until_tile(page: Any, name: str, value: str) -> None:
    where = page.locator("dl.tiles > div", has=page.locator(f"dt:text-is('{name}')"))
    where.locator(f"b:text-is('{value}')").wait_for(timeout=SOON)


def ink(page: Any, selector: str) -> int:
    """How many pixels of a canvas have a colour."""
    script = """(canvas) => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data
        .filter((value, i) => i % 4 === 3 && value > 0).length"""
    found: int = page.locator(selector).evaluate(script)
    return found


def test_a_page_rounds_as_the_terminal_does(opened: Opened) -> None:
    """A quarter of the 400ths are halves to the last bit: Python rounds 58.25 to 58.2, JavaScript to 58.3."""
    values = [n / 400 for n in range(401)] + [n / 997 for n in range(998)]
    bytes = [n * 125 for n in range(300)] + [12_345_678, 1_250_000, 1_225_000]
    script = """async ([values, bytes]) => {
        const { percent, size } = await import("/assets/format.js");
        return [values.map(percent), bytes.map(size)];
    }"""
    with opened() as page:
        percents, sizes = page.evaluate(script, [values, bytes])
    assert percents == [formatting.percent(value) for value in values]
    figures = [(float(figure), unit) for figure, unit in map(str.split, sizes)]  # a page does not leave 0 away: 1.20 kB
    assert figures == [(float(figure), unit) for figure, unit in (formatting.size(n).split() for n in bytes)]


def six_peers(folder: Path) -> EventLog:
    log = make_run(folder, peers=6, rounds=5, clusters=[0, 0, 0, 1, 1, 1])
    for round in (1, 2):
        write_round(log, round, [0.4, 0.5, 0.6, 0.4, 0.5, 0.6], weights={"0": 0.5, "4": 0.5})
    return log


def test_the_numbers_of_a_run_change_on_the_page(opened: Opened, tmp_path: Path) -> None:
    log = six_peers(tmp_path / "live")
    with opened("#/run/live") as page:
        until_tile(page, "Round", "2 / 5")
        assert tile(page, "Mean validation accuracy") == "50.0%"
        assert tile(page, "Exchanged") == "1.20 kB"
        curve = page.locator("path.line.mean.validation").get_attribute("d")
        write_round(log, 3, [0.9] * 6, weights={"1": 1.0})
        until_tile(page, "Round", "3 / 5")
        until_tile(page, "Mean validation accuracy", "90.0%")
        assert tile(page, "Exchanged") == "1.80 kB"
        assert page.locator("path.line.mean.validation").get_attribute("d") != curve


def test_every_figure_is_drawn(opened: Opened, tmp_path: Path) -> None:
    six_peers(tmp_path / "live")
    with opened("#/run/live") as page:
        until_tile(page, "Round", "2 / 5")
        assert page.locator("path.line.peer").count() == 6
        page.wait_for_timeout(500)
        assert ink(page, ".graph canvas") > 1_000
        page.get_by_role("button", name="Matrix").click()
        page.wait_for_timeout(200)
        assert ink(page, ".matrix canvas") > 1_000
        assert page.locator("[aria-label='Table of peers'] tbody tr").count() == 6
        assert "model" in page.locator("[aria-label='Sent artifacts']").inner_text()


def test_the_graph_moves_when_the_ties_change(opened: Opened, tmp_path: Path) -> None:
    """While only peers of one cluster work together, the clusters stand apart. Once each works with all peers of the
    other cluster instead, they come closer."""
    clusters = [0, 1, 0, 1, 0, 1]
    log = make_run(tmp_path / "live", peers=6, rounds=3, clusters=clusters)

    def write(round: int, kin: bool) -> None:
        for p in range(6):
            weights = {str(q): 0.3 for q in range(6) if q != p and (clusters[p] == clusters[q]) == kin}
            log.write(PeerRound(p, round, 1.0, 0.5, 0.5, notes={"weights": weights}))
        log.close()

    write(1, kin=True)
    with opened("#/run/live") as page:
        until_tile(page, "Round", "1 / 3")
        wait_until(page, lambda: apart(page) > 150)
        before = apart(page)
        write(2, kin=False)
        until_tile(page, "Round", "2 / 3")
        wait_until(page, lambda: apart(page) < before - 50)


def wait_until(page: Any, holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < until, f"the clusters are {apart(page):.0f} pixels apart"
        page.wait_for_timeout(200)


def apart(page: Any) -> float:
    """How far apart the pixels of the first two clusters' colours are, in the mean."""
    script = """(canvas) => {
        const style = getComputedStyle(document.documentElement), found = ["--c0", "--c1"].map((name) => {
            const hex = style.getPropertyValue(name).trim();
            return { rgb: [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)), x: 0, y: 0, n: 0 };
        });
        const copy = new OffscreenCanvas(canvas.width, canvas.height), context = copy.getContext("2d");
        context.drawImage(canvas, 0, 0);
        const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
        for (let i = 0; i < data.length; i += 4) for (const c of found) {
            if (data[i + 3] < 250 || c.rgb.some((v, k) => Math.abs(v - data[i + k]) > 3)) continue;
            c.x += (i / 4) % canvas.width; c.y += Math.floor(i / 4 / canvas.width); c.n += 1;
        }
        const [a, b] = found;
        return Math.hypot(a.x / a.n - b.x / b.n, a.y / a.n - b.y / b.n);
    }"""
    found: float = page.locator(".graph canvas").evaluate(script)
    return found


def test_a_peer_is_chosen_by_keyboard(opened: Opened, tmp_path: Path) -> None:
    six_peers(tmp_path / "live")
    with opened("#/run/live") as page:
        button = page.get_by_role("button", name="peer 3", exact=True)
        button.focus()
        page.keyboard.press("Enter")
        page.locator("path.line.mean.c4").wait_for(state="attached", timeout=SOON)
        assert button.get_attribute("aria-pressed") == "true"
        assert button.evaluate("(b) => b === document.activeElement")


def test_peers_are_filtered_sorted_and_paged(opened: Opened, tmp_path: Path) -> None:
    log = make_run(tmp_path / "many", peers=120, rounds=2, clusters=[p % 3 for p in range(120)])
    write_round(log, 1, [p / 120 for p in range(120)])
    with opened("#/run/many") as page:
        table = page.locator("[aria-label='Table of peers']")
        page.locator("text=1 to 50 of 120").wait_for(timeout=SOON)
        page.get_by_role("button", name="Next").click()
        page.locator("text=51 to 100 of 120").wait_for(timeout=SOON)
        table.get_by_role("button", name="Validation").click()
        table.get_by_role("button", name="Validation").click()
        assert "peer 119" in table.locator("tbody tr").first.inner_text()
        assert table.locator("th[aria-sort=descending]").inner_text().startswith("Validation")
        page.fill("#peers-filter", "cluster 2")
        page.locator("text=1 to 40 of 40 matching, 120 in all").wait_for(timeout=SOON)


def test_a_run_that_begins_later_appears(opened: Opened, tmp_path: Path) -> None:
    with opened() as page:
        page.locator("text=There is no run in this folder yet").wait_for(timeout=SOON)
        six_peers(tmp_path / "later")
        page.locator("a:text-is('later')").click(timeout=SOON)
        until_tile(page, "Round", "2 / 5")


def test_errors_are_shown(opened: Opened, tmp_path: Path) -> None:
    log = six_peers(tmp_path / "bad")
    log.write(Offence(2, 2, 1.0, "peer-<4>", "'model' is not finite"))
    log.close()
    with log.path.open("ab") as file:
        file.write(b"no record\n")
    with pytest.raises(ZeroDivisionError), RunState(tmp_path / "bad", 5):
        _ = 1 / 0
    with opened("#/run/bad") as page:
        errors = page.locator("[aria-label=Errors]")
        errors.wait_for(timeout=SOON)
        text = errors.inner_text()
        assert "The run failed. ZeroDivisionError: division by zero" in text
        assert "Peer 2 dropped an artifact from peer-<4> in round 2. 'model' is not finite" in text
        assert "line 15 is damaged" in text
        errors.locator("summary").first.click()
        assert "_ = 1 / 0" in errors.inner_text()


def test_a_killed_run_says_how_to_go_on_and_not_that_all_are_there(opened: Opened, tmp_path: Path) -> None:
    six_peers(tmp_path / "dead").close()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    facts = {**RunState(tmp_path / "dead", 5).facts, "time": time.time(), "peers": [], "process": ended.pid}
    (tmp_path / "dead" / "state.json").write_text(json.dumps(facts), encoding="utf-8")
    with opened("#/run/dead") as page:
        errors = page.locator("[aria-label=Errors]")
        errors.wait_for(timeout=SOON)
        assert "To continue from its last checkpoint, run coterie run --resume" in errors.inner_text()
        until_tile(page, "Round", "2 / 5")
        assert "all present" not in page.locator("main").inner_text()


def test_names_cannot_run_anything(opened: Opened, tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>"
    six_peers(tmp_path / name)
    with opened() as page:
        page.locator(f"a:text-is('{name}')").click(timeout=SOON)
        until_tile(page, "Round", "2 / 5")
        assert page.locator("h1").inner_text() == name
        assert page.locator("main img").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_accessible(opened: Opened, tmp_path: Path, scheme: str) -> None:
    log = six_peers(tmp_path / "live")
    log.write(Offence(2, 2, 1.0, "peer-4", "'model' is not finite"))
    log.close()
    with opened("", "--control", color_scheme=scheme) as page:
        page.locator("a:text-is('live')").wait_for(timeout=SOON)
        assert axe_violations(page) == []
        page.locator("a:text-is('live')").click()
        until_tile(page, "Round", "2 / 5")
        assert axe_violations(page) == []
        page.get_by_role("button", name="Matrix").click()
        page.get_by_role("button", name="peer 3", exact=True).click()
        page.locator("path.line.mean.c4").wait_for(state="attached", timeout=SOON)
        assert axe_violations(page) == []


def test_it_fits_a_phone(opened: Opened, tmp_path: Path) -> None:
    six_peers(tmp_path / "a-run-with-a-rather-long-name-20261116-030747")
    with opened(viewport=PHONE) as page:
        page.locator("main a").first.wait_for(timeout=SOON)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        page.locator("main td a").first.click()
        until_tile(page, "Round", "2 / 5")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        assert axe_violations(page) == []


SLOW = """
import time

from coterie import Method


class Slow(Method):
    async def round(self, me):
        if me.id == 0:
            time.sleep(0.2)
"""


def test_start_pause_resume_and_stop_from_the_page(opened: Opened, tmp_path: Path) -> None:
    """A run of 2,000 rounds would take minutes: it is paused, goes on from its checkpoint, and is stopped."""
    (tmp_path / "slow.py").write_text(SLOW, encoding="utf-8")
    words = f"peers=8 rounds=2000 baseline= engine.models=false engine.checkpoint=5 method.name={tmp_path}/slow.py:Slow"
    with opened("", "--control") as page:
        page.fill("#experiment", "panm-digits")
        page.fill("#words", "method.nonsense=1")
        page.get_by_role("button", name="Start run").click()
        page.locator("text=method.nonsense: unknown key 'nonsense'").wait_for(timeout=60_000)
        page.fill("#words", words)
        page.get_by_role("button", name="Start run").click()
        page.locator(".chip.running").wait_for(timeout=60_000)
        page.locator("tr", has=page.locator(".chip.running")).locator("td a").click()
        page.wait_for_function(_passed(5), timeout=60_000)
        page.get_by_role("button", name="pause").click()
        page.locator(".head .chip.paused").wait_for(timeout=30_000)
        folder = tmp_path / page.locator("h1").inner_text()
        at = json.loads((folder / "state.json").read_text(encoding="utf-8"))["round"]
        assert at >= 5
        page.get_by_role("button", name="resume").click()
        page.locator(".head .chip.running").wait_for(timeout=60_000)
        page.wait_for_function(_passed(at + 3), timeout=60_000)
        page.get_by_role("button", name="stop").click()
        page.locator(".head .chip.stopped").wait_for(timeout=30_000)
        assert json.loads((folder / "state.json").read_text(encoding="utf-8"))["state"] == "stopped"
        assert page.locator("[aria-label=Errors]").is_hidden()


def _passed(round: int) -> str:
    """A condition for the page: its run is beyond this round. (A function: the page allows no text to be run.)"""
    return f"() => parseInt(document.querySelector('dl.tiles b').textContent.replace(',', '')) >= {round}"


@pytest.mark.slow
def test_a_killed_real_peer_is_shown_as_gone_and_then_as_back(opened: Opened, tmp_path: Path) -> None:
    words = ["panm-digits", "rounds=100000", "data.clusters=2", "method.l=2", "method.k=1", "--plain"]
    command = [sys.executable, "-m", "coterie", "up", "4", *words, "--out", str(tmp_path / "circle")]
    output = (tmp_path / "output.txt").open("wb")
    with output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as up:
        try:
            with opened("#/run/circle") as page:
                page.wait_for_function(_passed(3), timeout=180_000)
                row = page.locator("tr", has=page.get_by_role("button", name="peer-2", exact=True))
                status = json.loads((tmp_path / "circle/peers/peer-2/status.json").read_text(encoding="utf-8"))
                os.kill(status["process"], signal.SIGKILL)
                row.locator(".chip.gone").wait_for(timeout=SOON)
                assert "peer-2 (number 2) is gone." in page.locator("[aria-label=Errors]").inner_text()
                assert "peer-2 is gone" in page.locator("#news").inner_text()
                row.locator("text=rejoined").wait_for(timeout=120_000)
                page.get_by_role("button", name="peer-1", exact=True).click()
                page.locator("text=Sent by peer-1").wait_for(timeout=SOON)
                records = page.locator("[aria-label='Newest records'] tbody tr")
                assert records.count() > 10
                assert axe_violations(page) == []
        finally:
            up.send_signal(signal.SIGINT)
            up.wait(60)


COST = {"name": "cost", "label": "cost of decisions", "higher_is_better": False, "unit": ""}


def test_the_main_metric_and_a_choice_of_others(opened: Opened, tmp_path: Path) -> None:
    log = make_run(tmp_path / "live", peers=2, rounds=2, metrics=[COST], select="cost")
    for peer, cost in enumerate((0.25, 1.5)):
        log.write(PeerRound(peer, 1, 1.0, 0.5, 0.75, 1.0, scores={"cost": [cost, cost]}))
    log.close()
    with opened("#/run/live") as page:
        until_tile(page, "Mean validation cost of decisions", "0.875")
        chart = page.locator("section[aria-label='Metric over rounds']")
        assert chart.locator("h2").inner_text() == "Cost of decisions over rounds"
        assert "lower is better" in chart.inner_text()
        label = "Cost of decisions over rounds: mean validation 0.875 in round 1"
        assert chart.locator("svg").get_attribute("aria-label") == label
        assert "%" not in chart.locator("svg").text_content()
        peers = page.locator("[aria-label='Table of peers']")
        assert "Validation cost of decisions" in peers.inner_text()
        peers.locator("button:text-is('peer 1')").click()
        chart.get_by_text("peer 1").wait_for(timeout=SOON)
        chart.get_by_label("Metric").select_option("accuracy")
        assert chart.locator("h2").inner_text() == "Accuracy over rounds"
        assert (
            chart.locator("svg").get_attribute("aria-label") == "Accuracy over rounds: mean validation 50.0% in round 1"
        )
        assert "60%" in chart.locator("svg").text_content()
        assert axe_violations(page) == []


def test_a_page_writes_numbers_as_the_terminal_does(opened: Opened) -> None:
    values = [n / 64 for n in range(-200, 400)] + [n * 12.25 for n in range(200)] + [1e-5, 123_456.5, 0.0, 7.0]
    metric = MeasuredMetric("x", "X", higher_is_better=False, unit="label", label_unit="kg")
    script = """async ([metric, values]) => {
        const { metricText } = await import("/assets/format.js");
        return values.map((value) => metricText(metric, value));
    }"""
    with opened() as page:
        shown = page.evaluate(script, [vars(metric), values])
    as_number = [float(text.removesuffix(" kg").replace(",", "")) for text in shown]
    assert as_number == [float(metric.text(v).removesuffix(" kg").replace(",", "")) for v in values]
    assert shown[-2:] == ["0 kg", "7 kg"]
