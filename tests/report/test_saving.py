"""Figures as files for papers: with their legend, on white, in every form, at the size and the resolution promised."""

from __future__ import annotations

import json
import re
import struct
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from report_support import run_of_all_figures, written

import coterie
import coterie.report
from coterie.cli import main
from coterie.core.errors import CoterieError, RunError
from coterie.core.events import Event, PeerRound, RunStarted
from coterie.report import Figure, forms
from coterie.report.legend import Key, with_legend
from coterie.report.marks import standalone
from coterie.report.matrix import Scale
from coterie.report.svg import figure, text_width

SVG = "{http://www.w3.org/2000/svg}"
OF_RUN = ["accuracy-test", "accuracy-validation", "accuracy-architectures-test", "accuracy-architectures-validation",
          "accuracy-bytes", "accuracy-time", "neighbours", "graph", "matrix",
          "embedding-1", "embedding-12", "prototypes-1", "prototypes-12", "front", "walks", "classes"]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(run_of_all_figures(), tmp_path / "run")


@pytest.fixture
def compared(tmp_path: Path) -> Path:
    """The folder of a comparison of two labels, with two seeds each."""
    place = tmp_path / "compared"
    place.mkdir()
    runs: dict[str, list[str]] = {"panm": [], "panm method.k=3": []}
    for i, names in enumerate(runs.values()):
        for seed in (0, 1):
            names.append(written(run_of_all_figures(), place / f"{i}-{seed}").name)
    (place / "comparison.json").write_text(json.dumps({"command": "coterie compare", "runs": runs}), encoding="utf-8")
    return place


def made() -> Figure:
    """440 x 100 units, with a line in the colours of a page."""
    drawing = figure(440, 100, "a line", ['<path class="line test" d="M0 50L440 50"/>'])
    return Figure("made", "Made", drawing, "A caption.", (Key("test", "the <b>mean</b>"), Key("c3", "chosen", "star")))


def root_of(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def texts(root: ElementTree.Element) -> list[str]:
    return [e.text or "" for e in root.iter(f"{SVG}text")]


def phys(png: bytes) -> tuple[int, int, int]:
    """Dots a unit in both directions, and the unit (1: a metre)."""
    at = png.index(b"pHYs")
    x, y, unit = struct.unpack(">IIB", png[at + 4 : at + 13])
    return x, y, unit


# -- the legend --------------------------------------------------------------------------------------


def test_the_legend_is_in_the_picture() -> None:
    root = root_of(made().svg())
    assert texts(root) == ["the <b>mean</b>", "chosen"]
    # One row of 17 units, 8 below the drawing.
    assert root.get("viewBox") == "0 0 440 125"
    line, star = root.find(f".//{SVG}line"), root.find(f".//{SVG}circle")
    assert line is not None
    assert star is not None
    assert line.get("stroke") == "#1f6fd0"
    assert star.get("fill") == "#b57700"


def test_entries_go_on_in_the_next_row() -> None:
    # In units: 38 for the mark, and 12 * 0.62 = 7.44 for each "a": 30 of them are 38 + 223.2 wide, so two do not fit
    # beside each other in 440, and 60 of them (446.4) not into one line.
    drawing = figure(440, 100, "x", [])
    assert text_width("a" * 30) == pytest.approx(223.2)
    two = with_legend(drawing, [Key("c0", "a" * 30), Key("c1", "a" * 30)])
    assert 'viewBox="0 0 440 142"' in two  # 100 + 8 + 2 * 17
    assert re.findall(r"translate\((\S+) (\S+)\)", two) == [("8", "108"), ("8", "125")]
    long = with_legend(drawing, [Key("c0", "a" * 60), Key("c1", "b")])
    assert [len(t) for t in re.findall(r"<text[^>]*>(a+)</text>", long)] == [52, 8]  # 394 / 7.44 is 52.9
    assert with_legend(drawing, []) == drawing


@pytest.mark.parametrize("name", OF_RUN)
def test_every_figure_has_its_legend_inside(folder: Path, name: str) -> None:
    drawn = coterie.report.figures(folder)[name]
    assert drawn.keys, name
    assert {key.text for key in drawn.keys} <= set(texts(root_of(drawn.svg())))
    assert drawn.keys[0].text in drawn._repr_html_()


# -- the background, and the size --------------------------------------------------------------------


def test_white_or_transparent() -> None:
    white, clear = root_of(made().svg()), root_of(made().svg(background="transparent"))
    back = white[1]
    assert (back.tag, back.get("fill"), back.get("width"), back.get("height")) == (
        f"{SVG}rect",
        "#ffffff",
        "440",
        "125",
    )
    assert clear.find(f"{SVG}rect") is None
    # The halo of a line is white as well, and texts are dark.
    halo = root_of(standalone('<svg viewBox="0 0 9 9"><path class="halo" d="M0 0"/><text>x</text></svg>'))
    assert halo[1].get("stroke") == "#ffffff"
    assert halo[2].get("fill") == "#52514e"


def test_as_wide_as_a_column() -> None:
    root = root_of(made().svg())
    # 440 x 125 units on 89 mm: 89 * 125 / 440 = 25.28.
    assert (root.get("width"), root.get("height")) == ("89mm", "25.28mm")
    assert root_of(made().svg(width=178)).get("width") == "178mm"


def test_letters_that_no_file_can_hold_are_marked() -> None:
    drawn = Figure("x", "x", figure(100, 20, "x", []), "", (Key("c0", "a\x00b\ud800"),))
    assert texts(root_of(drawn.svg())) == ["a\ufffdb\ufffd"]


# -- PDF and PNG --------------------------------------------------------------------------------------


def test_png_at_300_dpi(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    png = made().save(tmp_path / "made.png").read_bytes()
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    # 89 mm are 89 / 25.4 * 300 = 1051.2 dots, 25.28 mm are 298.6; 300 dots an inch are 11811 a metre.
    assert struct.unpack(">II", png[16:24]) == pytest.approx((1051, 298.6), abs=1)
    assert phys(png) == (11811, 11811, 1)


def test_the_background_of_a_png(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    from PIL import Image

    with Image.open(made().save(tmp_path / "white.png")) as white:
        assert white.convert("RGBA").getpixel((5, 5)) == (255, 255, 255, 255)
        assert white.info["dpi"] == pytest.approx((300, 300), abs=0.1)
    with Image.open(made().save(tmp_path / "clear.png", background="transparent")) as clear:
        pixel = clear.convert("RGBA").getpixel((5, 5))
        assert isinstance(pixel, tuple)
        assert pixel[3] == 0


def test_pdf_is_of_vectors_with_its_fonts_inside(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    pdf = made().save(tmp_path / "made.pdf").read_bytes()
    assert pdf.startswith(b"%PDF-")
    box = re.search(rb"/MediaBox\s*\[([\d. ]+)\]", pdf)
    assert box
    # 89 mm are 252.3 points, 25.28 mm are 71.7.
    assert [float(v) for v in box[1].split()] == pytest.approx([0, 0, 252.3, 71.7], abs=0.1)
    assert b"/FontFile" in pdf
    assert b"/Subtype /Image" not in pdf


def test_without_the_extra_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    for form in ("pdf", "png"):
        with pytest.raises(CoterieError, match=r"pip install 'vl-convert-python>=1\.7'"):
            made().save(tmp_path / f"made.{form}")
    assert made().save(tmp_path / "made.svg").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["made.svg"]  # nothing is left half done


# -- whole folders --------------------------------------------------------------------------------------


def test_all_figures_of_a_run(folder: Path) -> None:
    assert [path.name for path in coterie.figures(folder)] == [f"{name}.svg" for name in OF_RUN]
    assert (folder / "figures" / "graph.svg").exists()


def test_the_figures_of_a_comparison(compared: Path, tmp_path: Path) -> None:
    out = tmp_path / "paper" / "figures"
    files = coterie.figures(compared, out=out, only=["test-round", "peers"])
    assert files == [out / "test-round.svg", out / "peers.svg"]
    assert {"panm", "panm method.k=3"} <= set(texts(ElementTree.parse(files[0]).getroot()))
    assert "test-bytes" in coterie.report.figures(compared)


def test_a_sweep_with_a_place_without_a_run(compared: Path) -> None:
    path = compared / "comparison.json"
    told = json.loads(path.read_text(encoding="utf-8"))
    places = {label: {"method.k": str(k)} for k, label in enumerate([*told["runs"], "failed"])}
    path.write_text(json.dumps({**told, "titles": {"panm": "PANM"}, "places": places}), encoding="utf-8")
    assert "No finished run: method.k=2." in coterie.report.figures(compared)["sweep-method.k-validation"].caption


def test_the_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("vl_convert")
    out = tmp_path / "out"
    order = ["figures", str(folder), "--out", str(out), "--format", "svg, PDF,png", "--only", "graph,matrix"]
    assert main.main([*order, "--only", "classes", "--width", "120", "--background", "transparent"]) == 0
    names = sorted(f"{name}.{form}" for name in ("graph", "matrix", "classes") for form in forms.FORMS)
    assert sorted(path.name for path in out.iterdir()) == names
    assert f"written: {out / 'classes.png'}" in capsys.readouterr().out
    assert 'width="120mm"' in (out / "graph.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--format", "jpeg"], "unknown format 'jpeg'"),
        (["--format", ""], "no format given; choose from svg, pdf, png"),
        (["--only", "accuracy-tst"], "unknown figure 'accuracy-tst'. Did you mean 'accuracy-test'"),
        (["--background", "whit"], "unknown background 'whit'. Did you mean 'white'"),
        (["--width", "0"], "a figure cannot be 0 mm wide: give a width from 20 to 1000 mm"),
        (["--width", "nan"], "a figure cannot be nan mm wide"),
    ],
)
def test_what_cannot_be_saved_is_named(
    folder: Path, words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["figures", str(folder), *words]) == 2
    assert why in capsys.readouterr().err
    assert not (folder / "figures").exists() or not list((folder / "figures").iterdir())


def test_a_run_of_a_comparison_that_is_gone(compared: Path) -> None:
    (compared / "1-0" / "events.jsonl").unlink()
    with pytest.raises(RunError, match=r"compared: its run 1-0 no longer exists\. Run it again: coterie compare"):
        coterie.figures(compared)


def test_invisible_lines_are_not_saved(tmp_path: Path) -> None:
    """With more than 200 peers, a line shows on the page only when it is highlighted."""
    events: list[Event] = [RunStarted("x", 0, 201, 2, [], [], [], None)]
    events += [PeerRound(p, t, float(t), 0.5, 0.5, 1.0) for t in (1, 2) for p in range(201)]
    drawn = coterie.report.open(written(events, tmp_path / "many")).accuracy()
    assert drawn.drawing.count('class="line') == 202
    paths = root_of(drawn.svg()).findall(f"{SVG}path")
    assert len([path for path in paths if path.get("stroke") == "#1f6fd0"]) == 1  # the mean
    assert [key.text for key in drawn.keys] == ["mean"]


def test_folders_that_have_no_figures(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run folder"):
        coterie.figures(tmp_path)
    (tmp_path / "comparison.json").write_text("{}", encoding="utf-8")
    with pytest.raises(RunError, match=r"comparison\.json does not name the runs it compares"):
        coterie.figures(tmp_path)


# -- heat maps ------------------------------------------------------------------------------------------


def test_numbers_of_a_colour_bar() -> None:
    assert Scale(0.25, "weight").numbers() == [
        (0.0, "0"), (0.2, "0.05"), (0.4, "0.1"), (0.6, "0.15"), (0.8, "0.2"), (1.0, "0.25"),
    ]  # fmt: skip
    assert Scale(1.0, "neighbour", whole=True).numbers() == [(0.0, "0"), (1.0, "1")]
    assert Scale(0.0, "nothing").numbers()[0] == (0.0, "0")


def test_a_matrix_has_a_colour_bar_and_the_numbers_of_peers(folder: Path) -> None:
    run = coterie.report.open(folder)
    found = texts(root_of(run.matrix().svg()))
    # By cluster: even peers, then odd ones; down the rows, then along the columns.
    peers = ["0", "2", "4", "6", "1", "3", "5", "7"]
    assert found[:16] == peers * 2
    # Three others and itself, a quarter each.
    assert found[16:23] == ["0", "0.05", "0.1", "0.15", "0.2", "0.25", "averaging weight"]
    assert {"peer that takes", "peer it takes from", "true cluster 0", "true cluster 1"} <= set(found)
    lists = texts(root_of(run.matrix(kind="neighbours").svg()))
    assert lists[16:19] == ["0", "1", "a neighbour (1) or not (0)"]
    held = texts(root_of(run.classes().svg()))
    assert held[:12] == ["0", "1", "2", "3", *peers]
    assert held[12:15] == ["0%", "50%", "share"]  # of two classes each, the half


def test_numbers_of_many_peers_are_thinned_out(tmp_path: Path) -> None:
    run = coterie.report.open(written(run_of_all_figures(peers=100, rounds=2), tmp_path / "large"))
    root = root_of(run.matrix().svg())
    rows = [e for e in root.iter(f"{SVG}text") if e.get("x") == "-9"]
    # 4 units a row, 14 for a text: every fourth; 4 for a column, two digits of 14 * 0.62 and 4 between: every sixth.
    assert [e.text for e in rows[:3]] == ["0", "8", "16"]
    columns = [e for e in root.iter(f"{SVG}text") if e.get("y") == "-9"]
    assert [e.text for e in columns[:3]] == ["0", "12", "24"]
