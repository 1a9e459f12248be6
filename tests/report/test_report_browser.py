"""The pages in a real browser: every figure is drawn and answers, nothing leaves the page, and everybody can use it."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from browser_support import axe_violations, browser, launch
from PIL import Image
from playwright.sync_api import Browser, expect
from report_support import large_run, run_of_all_figures, written

from coterie.report.comparison import write_comparison
from coterie.report.html import write_report
from coterie.report.run import Run
from coterie.report.summary import summarise

FIGURES = ["accuracy-test", "accuracy-validation", "accuracy-architectures-test", "accuracy-architectures-validation",
           "accuracy-bytes", "accuracy-time", "neighbours", "graph", "matrix",
           "embedding-1", "embedding-12", "prototypes-1", "prototypes-12", "front", "walks", "classes"]  # fmt: skip
SWITCHED = {"accuracy-validation": "Accuracy on", "accuracy-architectures-validation": "By architecture, accuracy on"}
OF_COMPARISON = ["test-round", "validation-round", "test-bytes", "validation-bytes", "test-simulated",
                 "validation-simulated", "peers"]  # fmt: skip
SVG = "{http://www.w3.org/2000/svg}"
LOOKS = {
    "light": {},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 740}},
}
Opened = Callable[..., AbstractContextManager[Any]]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def run() -> Run:
    events = run_of_all_figures()
    return Run(events, summarise(events, 1.0))


@pytest.fixture(scope="module")
def report(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "report.html"
    write_report(run.events, run.summary, path)
    return path


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three labels, of which one has a name that is long and hostile; two seeds each."""
    folder = tmp_path_factory.mktemp("comparison")
    variants: dict[str, list[Path]] = {}
    for label, rounds in (("local", 10), ("panm", 12), ("<b>panm</b> method.k=3 and so on", 12)):
        for seed in (0, 1):
            run = folder / f"{label.count('<')}-{rounds}-{seed}"
            events = run_of_all_figures(rounds=rounds)
            write_report(events, summarise(events, 1.0), written(events, run) / "report.html")
            variants.setdefault(label, []).append(run)
    figures = ["82.67 ±16.57", "82.00 ±17.22", "7.4", "68.0%", "54%", "106 MB", "15,400", "15.16 s (1 of 2)"]
    rows = [[label, *figures, "-12.56 ±19.23", "0.449"] for label in variants]
    head = ["", "last", "selected", "± peers", "worst 10%", "hurt", "exchanged", "messages", "time to 81.7%"]
    head += ["against best", "p"]
    path, command = folder / "comparison.html", "coterie compare <b>panm</b>"
    write_comparison(path, "A comparison", variants, head, rows, ["Of two seeds."], command)
    return path


@contextmanager
def opened(chromium: Browser, path: Path, **options: Any) -> Iterator[Any]:
    """The page at this path; at the end, nothing went wrong and nothing was asked for."""
    with launch(chromium, **options) as page:
        page.goto(path.as_uri())
        yield page
        assert page.errors == []
        assert page.outside == []


@pytest.fixture
def open_page(chromium: Browser) -> Opened:
    return partial(opened, chromium)


def drawing(page: Any, name: str) -> Any:
    return page.locator(f"figure[data-file='{name}'] .drawing > svg")


@pytest.mark.parametrize("look", LOOKS)
def test_every_figure_is_drawn_and_accessible(open_page: Opened, report: Path, look: str) -> None:
    with open_page(report, **LOOKS[look]) as page:
        assert page.locator("figure").evaluate_all("all => all.map(f => f.dataset.file)") == FIGURES
        for name in FIGURES:
            if name in SWITCHED:
                choice = page.get_by_role("group", name=SWITCHED[name], exact=True)
                choice.get_by_role("radio", name="Validation").check()
            box = drawing(page, name).bounding_box()
            assert box["width"] > 200, name
            assert box["height"] > 60, name
            assert drawing(page, name).get_attribute("aria-label"), name
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it must not scroll sideways"
        for details in page.locator("details").all():
            details.locator("summary").click()
        assert axe_violations(page) == []


def test_the_slider_moves_drawing_and_matrix(open_page: Opened, report: Path, run: Run) -> None:
    def strokes(svg: str, css: str) -> list[str]:
        found = (e.get("d", "") for e in ElementTree.fromstring(svg).iter() if e.get("class") == css)
        return list(found)

    paths = "all => all.map(p => p.getAttribute('d'))"
    with open_page(report) as page:
        slider = page.get_by_role("slider", name="Round")
        slider.focus()
        shown = []
        for key, times, round in (("End", 1, 12), ("ArrowLeft", 6, 6), ("Home", 1, 1)):
            for _ in range(times):
                page.keyboard.press(key)
            assert slider.get_attribute("aria-valuetext") == f"round {round}"
            assert f"round {round}:" in drawing(page, "graph").get_attribute("aria-label")
            edges = drawing(page, "graph").locator(".edges path").evaluate_all(paths)
            cells = drawing(page, "matrix").locator(".cells path").evaluate_all(paths)
            # What the page's script draws is what Python draws, up to how a last digit is rounded.
            for mine, theirs in ((edges, run.graph(round)), (cells, run.matrix(round))):
                wanted = strokes(theirs.drawing, "edge" if mine is edges else "cell")
                assert [re.sub(r"[-\d.]+", "", d) for d in mine] == [re.sub(r"[-\d.]+", "", d) for d in wanted]
                numbers = [[float(x) for x in re.findall(r"-?[\d.]+", "".join(d))] for d in (mine, wanted)]
                assert numbers[0] == pytest.approx(numbers[1], abs=0.011)
            shown.append((edges, cells))
        assert shown[0] != shown[1] != shown[2]
        places = drawing(page, "graph").locator(".node").evaluate_all("all => all.map(n => n.getAttribute('cx'))")
        assert places == re.findall(r'class="node[^"]*" cx="(.*?)"', run.graph(1).drawing)  # they have not moved


def test_it_plays_and_pauses(open_page: Opened, report: Path) -> None:
    with open_page(report) as page:
        page.get_by_role("button", name="Play").click()
        expect(page.locator(".where")).to_have_text(re.compile(r"round [2-9]$"))
        page.get_by_role("button", name="Pause").click()
        stopped = page.locator(".where").text_content()
        page.wait_for_timeout(500)
        assert page.locator(".where").text_content() == stopped


def test_it_plays_slowly_for_who_wants_less_motion(open_page: Opened, report: Path) -> None:
    with open_page(report, reduced_motion="reduce") as page:
        page.get_by_role("button", name="Play").click()
        page.wait_for_timeout(600)
        assert page.locator(".where").text_content() == "round 1"


def test_weights_or_neighbour_lists(open_page: Opened, report: Path) -> None:
    with open_page(report) as page:
        # Three averaged with of each peer's cluster; all other three of the cluster are on the list: 8 x 3 of both.
        assert "24 averaging weights" in drawing(page, "graph").get_attribute("aria-label")
        page.get_by_role("slider", name="Round").focus()
        page.keyboard.press("Home")
        page.get_by_label("Show").select_option("Neighbour lists")
        assert "56 neighbour lists" in drawing(page, "graph").get_attribute("aria-label")  # at first, everybody


def test_a_peer_is_picked_out_by_keyboard(open_page: Opened, report: Path) -> None:
    with open_page(report) as page:
        page.get_by_label("Highlight").select_option("peer 3")
        for name in ("accuracy-test", "graph", "embedding-12", "front"):
            marks = drawing(page, name).locator(".picked").evaluate_all("all => all.map(m => m.dataset.name)")
            assert set(marks) == {"peer 3"}, name
        said = page.locator(".said-of-graph").text_content()
        assert re.fullmatch(
            r"peer 3 in round 12 takes from 1 \(0\.25\), 5 \(0\.25\), 7 \(0\.25\) \(solid\); "
            r".+ take from it \(dashed\)\.",
            said,
        )
        assert drawing(page, "graph").locator(".own .takes").get_attribute("d").count("M") == 3


def test_a_line_is_named_by_pointer_and_by_focus(open_page: Opened, report: Path) -> None:
    with open_page(report) as page:
        chart = drawing(page, "accuracy-test")
        chart.scroll_into_view_if_needed()
        box = chart.bounding_box()
        # Peer 0 in round 1 is the lowest: at 0.3 of an axis from 0.3 to 1. The legend makes it 305 high instead of 280.
        page.mouse.move(box["x"] + box["width"] * 66 / 440, box["y"] + box["height"] * 236 / 305)
        assert chart.locator(".said").text_content() == "peer 0: 30.0% at round 1"
        page.mouse.move(0, 0)
        assert chart.locator(".said").count() == 0
        chart.locator("[tabindex='0']").focus()
        assert chart.locator(".said").text_content().startswith("mean of all peers: ")
        page.keyboard.press("ArrowDown")
        assert chart.locator(".said").text_content() == "peer 7: 95.0% at round 12"
        page.keyboard.press("Enter")
        assert page.get_by_label("Highlight").input_value() == "peer 7"


def save(page: Any, name: str, form: str, place: Path) -> bytes:
    """What the button of a figure gives."""
    with page.expect_download() as download:
        page.locator(f"figure[data-file='{name}']").get_by_role("button", name=form).click()
    assert download.value.suggested_filename == f"{name}.{form.lower()}"
    download.value.save_as(place / download.value.suggested_filename)
    return (place / download.value.suggested_filename).read_bytes()


def pdf_texts(pdf: bytes) -> list[str]:
    return [bytes.fromhex(found.decode()).decode("cp1252") for found in re.findall(rb"<([0-9a-f]+)> Tj", pdf)]


LEGENDS = {
    "accuracy-test": ["mean", "one peer"],
    "graph": ["true cluster 0", "true cluster 1"],
    "matrix": ["0.25", "averaging weight", "true cluster 1"],  # with its colour bar
    "classes": ["50%", "share", "true cluster 1"],
    "embedding-12": ["true cluster 0"],
    "front": ["chosen", "its own models alone"],
    "walks": ["lost, sent on again"],
}


@pytest.mark.parametrize("name", LEGENDS)
def test_figures_are_saved_for_a_paper(open_page: Opened, report: Path, tmp_path: Path, name: str) -> None:
    """From a dark page: on white, with dark texts, as wide as a column, with the legend."""
    with open_page(report, color_scheme="dark") as page:
        svg, pdf, png = (save(page, name, form, tmp_path) for form in ("SVG", "PDF", "PNG"))
        width, height = (float(v) for v in drawing(page, name).get_attribute("viewBox").split()[2:])
        assert page.locator(".stage").count() == 0  # what it was drawn on is gone
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    assert (root.get("width"), root.get("height")) == ("89mm", f"{89 * height / width:.2f}mm")
    assert all(e.get("class") is None and e.get("style") is None for e in root.iter())
    marks = [e for e in root.iter() if e.tag.endswith(("path", "circle", "rect", "line"))]
    colours = {e.get(key) for e in marks[1:] for key in ("fill", "stroke")} - {"none", None}
    assert colours
    assert all(str(c).startswith("rgb") for c in colours), "colours are written out, not named by variables"
    assert (root[1].tag, root[1].get("fill")) == (f"{SVG}rect", "rgb(255, 255, 255)")
    texts = [e for e in root.iter(f"{SVG}text") if e.text]
    assert set(LEGENDS[name]) <= {e.text for e in texts}
    soft = [e.get("fill") for e in texts if e.text in LEGENDS[name]]
    assert set(soft) == {"rgb(82, 81, 78)"}  # of the light theme
    # 89 mm at 300 dots an inch are 1051 dots; 300 dots an inch are 11811 a metre.
    assert png.startswith(b"\x89PNG\r\n")
    assert struct.unpack(">II", png[16:24]) == pytest.approx((1051, 1051 * height / width), abs=1)
    with Image.open(tmp_path / f"{name}.png") as image:  # reads every chunk, and checks its sum
        assert image.info["dpi"] == pytest.approx((300, 300), abs=0.1)
        assert image.convert("RGB").getpixel((2, image.height - 3)) == (255, 255, 255)
        assert len(image.convert("RGB").getcolors(1_000_000)) > 10  # not empty
    assert pdf.startswith(b"%PDF-")
    assert set(LEGENDS[name]) <= set(pdf_texts(pdf))
    assert b"/Image" not in pdf  # vectors alone
    box = [float(v) for v in re.search(rb"/MediaBox\[(.*?)\]", pdf)[1].split()]
    assert box == pytest.approx([0, 0, 252.283, 252.283 * height / width], abs=0.01)


@pytest.mark.parametrize(
    "names", [["accuracy-test", "graph", "matrix", "classes"], pytest.param(FIGURES, marks=pytest.mark.slow)]
)
def test_a_pdf_is_what_the_page_shows(open_page: Opened, report: Path, tmp_path: Path, names: list[str]) -> None:
    """The file as a program reads it: the same picture as the PNG, but for how letters look."""
    if shutil.which("pdftoppm") is None:
        pytest.skip("no pdftoppm found: install poppler-utils")
    with open_page(report) as page:
        for name in names:
            if not page.locator(f"figure[data-file='{name}']").is_visible():
                continue
            for form in ("PDF", "PNG"):
                save(page, name, form, tmp_path)
            call = ["pdftoppm", "-r", "300", "-png", "-singlefile", f"{name}.pdf", "pdf"]
            done = subprocess.run(call, cwd=tmp_path, check=True, capture_output=True, text=True)
            assert done.stderr == "", name
            with Image.open(tmp_path / "pdf.png") as one, Image.open(tmp_path / f"{name}.png") as other:
                small = [
                    image.convert("RGB").resize((130, 130 * other.height // other.width)) for image in (one, other)
                ]
            off = np.abs(np.asarray(small[0], dtype=float) - np.asarray(small[1], dtype=float)).max(axis=2)
            assert (off > 96).mean() < 0.005, name  # single pixels of letters


@pytest.mark.parametrize(
    ("background", "corner"), [("as on screen", (25, 25, 24, 255)), ("without background", (0,) * 4)]
)
def test_other_backgrounds(
    open_page: Opened, report: Path, tmp_path: Path, background: str, corner: tuple[int, ...]
) -> None:
    with open_page(report, color_scheme="dark") as page:
        page.get_by_label("Save figures").select_option(background)
        png, svg, pdf = (save(page, "accuracy-test", form, tmp_path) for form in ("PNG", "SVG", "PDF"))
    with Image.open(tmp_path / "accuracy-test.png") as image:
        assert image.convert("RGBA").getpixel((2, image.height - 3)) == corner
    assert png
    assert (b"<rect" in svg) == (background == "as on screen")
    assert (b" re f" in pdf) == (background == "as on screen")
    ink = {e.get("fill") for e in ElementTree.fromstring(svg).iter(f"{SVG}text")}
    assert ink == {"rgb(195, 194, 183)" if background == "as on screen" else "rgb(82, 81, 78)"}


def test_a_pdf_with_letters_of_other_alphabets(open_page: Opened, tmp_path: Path) -> None:
    """What Helvetica cannot write is painted; what it can stays text."""
    events = run_of_all_figures(name="方法 – é")
    write_report(events, summarise(events, 1.0), tmp_path / "report.html")
    with open_page(tmp_path / "report.html") as page:
        pdf = save(page, "walks", "PDF", tmp_path)
    assert pdf.count(b"/ImageMask true") == 1
    assert {"cnn", "round", "lost, sent on again"} <= set(pdf_texts(pdf))


def test_the_slider_moves_the_colour_bar(open_page: Opened, report: Path) -> None:
    with open_page(report) as page:
        bar = drawing(page, "matrix").locator(".scale")
        numbers = "all => all.map(t => t.textContent)"
        assert bar.locator("text").evaluate_all(numbers) == [
            "0",
            "0.05",
            "0.1",
            "0.15",
            "0.2",
            "0.25",
            "averaging weight",
        ]
        page.get_by_label("Show").select_option("Neighbour lists")
        assert bar.locator("text").evaluate_all(numbers) == ["0", "1", "a neighbour (1) or not (0)"]


def test_figures_of_a_comparison_are_saved(open_page: Opened, comparison: Path, tmp_path: Path) -> None:
    with open_page(comparison) as page:
        svg, pdf, png = (save(page, "test-round", form, tmp_path) for form in ("SVG", "PDF", "PNG"))
    labels = {"local", "panm", "<b>panm</b> method.k=3 and so on"}
    assert labels <= {e.text for e in ElementTree.fromstring(svg).iter(f"{SVG}text")}
    assert labels <= set(pdf_texts(pdf))
    assert b"pHYs" in png


def test_hostile_names_run_nothing(open_page: Opened, tmp_path: Path) -> None:
    bad = "</script><script>document.title='ran'</script><img src=x onerror=\"document.title='ran'\">'\"&\ud800"
    events = run_of_all_figures(name=bad)
    write_report(events, summarise(events, 1.0), tmp_path / "report.html")
    with open_page(tmp_path / "report.html") as page:
        page.get_by_label("Highlight").select_option("peer 1")
        page.wait_for_timeout(100)
        assert page.title() != "ran"
        assert page.title().startswith("script><script>")  # of what looks like a path, the end
        assert page.locator("img").count() == 0
        assert page.locator("script").count() == 2
        assert drawing(page, "walks").locator("path.line").count() == 2


def test_only_its_own_script_may_run(open_page: Opened, report: Path, chromium: Browser, tmp_path: Path) -> None:
    """The policy itself: the browser blocks a script that was injected into the file."""
    changed = tmp_path / "changed.html"
    text = report.read_text(encoding="utf-8")
    changed.write_text(text.replace("</main>", "<script>document.title='ran'</script></main>"), encoding="utf-8")
    with launch(chromium) as page:
        page.goto(changed.as_uri())
        assert page.title() != "ran"
        assert any("Content Security Policy" in error for error in page.errors)
    with open_page(report) as page:
        assert page.evaluate("typeof pick") == "function"


@pytest.mark.parametrize("look", LOOKS)
def test_a_comparison(open_page: Opened, comparison: Path, look: str) -> None:
    with open_page(comparison, **LOOKS[look]) as page:
        assert page.locator("figure").evaluate_all("all => all.map(f => f.dataset.file)") == OF_COMPARISON
        assert drawing(page, "test-round").locator("path.line").count() == 3
        assert drawing(page, "test-round").locator("path.band").count() == 0  # the seeds are equal: nothing between
        assert drawing(page, "peers").locator("circle").count() == 3 * 2 * 8
        page.get_by_label("Highlight").select_option("panm")
        assert drawing(page, "test-round").locator(".picked").get_attribute("data-name") == "panm"
        dashes = (
            drawing(page, "test-round")
            .locator("path.line")
            .evaluate_all("all => all.map(l => getComputedStyle(l).strokeDasharray)")
        )
        assert len(set(dashes)) == 3  # not by colour alone
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        if look != "phone":  # there is room for all columns of `coterie compare`
            assert page.get_by_role("region", name="Comparison").evaluate("e => e.scrollWidth <= e.clientWidth")
        assert page.get_by_role("region", name="Comparison").evaluate("e => getComputedStyle(e).maxHeight") == "none"
        assert page.locator("code").inner_text() == "coterie compare <b>panm</b>"
        assert axe_violations(page) == []
        page.get_by_role("link", name="panm, seed 0").first.click()
        assert page.title() == "panm · seed 0 · 8 peers · 12 rounds"


def test_the_last_column_of_a_table_with_long_names_is_in_sight(open_page: Opened, tmp_path: Path) -> None:
    run = written(run_of_all_figures(), tmp_path / "run")
    labels = [
        "panm,metric=loss,t1=30,k=4",
        "./methods/a_method_of_my_own_with_a_long_name.py",
        "name=panm lr=0.01 clusters=4",
    ]
    figures = ["47.75 ±130.24", "47.75 ±130.24", "12.5", "82.0%", "100%", "16.5 MB", "15,400", "15.16 s (1 of 2)"]
    rows = [[label, *figures, "-42.00 ±152.47", "<0.001"] for label in labels]
    rows[0][-2:] = ["best by validation", ""]
    head = ["", "last", "selected", "± peers", "worst 10%", "hurt", "exchanged", "messages", "time to 81.7%"]
    head += ["against best", "p"]
    path = tmp_path / "comparison.html"
    write_comparison(path, "A comparison", {label: [run] for label in labels}, head, rows)
    with open_page(path, viewport={"width": 1400, "height": 900}) as page:
        region = page.get_by_role("region", name="Comparison")
        assert region.evaluate("e => e.scrollWidth <= e.clientWidth")
        cell, place = page.get_by_role("cell", name="<0.001").first.bounding_box(), region.bounding_box()
        assert cell["x"] + cell["width"] <= place["x"] + place["width"] + 1
        assert place["x"] + place["width"] <= 1400
        lines = (
            "e => { const all = document.createRange(); all.selectNodeContents(e); return all.getClientRects().length }"
        )
        assert page.get_by_role("columnheader", name="exchanged").evaluate(lines) == 1  # words stay whole


@pytest.mark.slow
@pytest.mark.parametrize(("peers", "rounds"), [(100, 300), (1000, 50)])
def test_large_runs_open_and_answer(open_page: Opened, tmp_path: Path, peers: int, rounds: int) -> None:
    events = large_run(peers, rounds)
    path = tmp_path / "report.html"
    write_report(events, summarise(events, 1.0), path)
    assert path.stat().st_size < 10_000_000
    with open_page(path) as page:
        page.get_by_role("slider", name="Round").focus()
        page.keyboard.press("ArrowLeft")
        page.get_by_label("Highlight").select_option("peer 7")
        assert "takes from" in page.locator(".said-of-graph").text_content()
        assert page.evaluate("document.querySelectorAll('*').length") < 20_000  # what makes a page slow
