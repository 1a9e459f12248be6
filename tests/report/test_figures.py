"""Figures from Python, and what the figures of single methods are made of, against values worked out by hand."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from report_support import run_of_all_figures, written

import coterie.report
from coterie.cli import main
from coterie.core.errors import CoterieError, RunError
from coterie.core.events import Event, PeerRound, RunStarted
from coterie.methods.components.expert_walks import ROUTES
from coterie.methods.components.front_figure import FRONT
from coterie.report import NothingToDraw, fronts, walks
from coterie.report.embedding import in_plane
from coterie.report.interval import estimate
from coterie.report.layout import places
from coterie.report.marks import standalone
from coterie.report.run import Run
from coterie.report.seeds import Seeds, values_at
from coterie.report.summary import summarise

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(run_of_all_figures(), tmp_path / "run")


DRAW: dict[str, Callable[[Run], coterie.report.Figure]] = {
    "accuracy": lambda run: run.accuracy("validation"),
    "architectures": lambda run: run.architectures("validation"),
    "bytes": Run.bytes,
    "time": Run.time,
    "neighbours": Run.neighbours,
    "graph": lambda run: run.graph(round=3),
    "matrix": lambda run: run.matrix(round=3, kind="neighbours"),
    "classes": Run.classes,
    "embedding": lambda run: run.embedding(round=1),
    "prototypes": lambda run: run.embedding(of="prototypes"),
    "front": Run.front,
    "walks": Run.walks,
}


@pytest.mark.parametrize("name", DRAW)
def test_figures_for_notebooks(folder: Path, name: str, tmp_path: Path) -> None:
    figure = DRAW[name](coterie.report.open(folder))
    root = ElementTree.parse(figure.save(tmp_path / "figure.svg")).getroot()
    assert root.tag == f"{SVG}svg"
    assert root[0].tag == f"{SVG}title"
    assert not any("class" in e.attrib or "var(" in str(e.attrib.values()) for e in root.iter())
    marks = [e for e in root.iter() if e.tag in (f"{SVG}path", f"{SVG}circle", f"{SVG}rect")]
    assert all({"fill", "stroke"} & set(e.attrib) for e in marks)
    assert figure.caption in figure._repr_html_().replace("&#x27;", "'")


def test_a_folder_without_a_beginning_says_why(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").touch()
    with pytest.raises(RunError, match=r"events\.jsonl is incomplete"):
        coterie.report.open(tmp_path)
    (tmp_path / "peers").mkdir()  # a circle of real peers that has not ended
    with pytest.raises(RunError, match="coterie dashboard"):
        coterie.report.open(tmp_path)


def test_what_cannot_be_drawn_says_why(tmp_path: Path) -> None:
    run = coterie.report.open(written([RunStarted("local", 0, 2, 1, [], [], [], None)], tmp_path / "run"))
    for draw, why in (
        (run.accuracy, "No peer was measured"), (run.graph, "no averaging"), (run.embedding, "no prototypes"),
        (run.front, "does not choose"), (run.walks, "no walking experts"), (run.classes, "unknown"),
    ):  # fmt: skip
        with pytest.raises(NothingToDraw, match=why):
            draw()


def test_wrong_words_are_named(folder: Path, tmp_path: Path) -> None:
    run = coterie.report.open(folder)
    with pytest.raises(CoterieError, match=r"unknown split 'tests'\. Did you mean 'test'"):
        run.accuracy("tests")
    with pytest.raises(CoterieError, match="unknown kind of graph 'weight'"):
        run.graph(kind="weight")
    with pytest.raises(NothingToDraw, match="for round 1 and 12, not for round 5"):
        run.embedding(round=5)
    with pytest.raises(CoterieError, match=r"unknown embedding 'feature'\. Did you mean 'features'"):
        run.embedding(of="feature")
    with pytest.raises(CoterieError, match=r"figures are saved as \.svg, \.pdf, \.png"):
        run.classes().save(tmp_path / "classes.jpeg")
    with pytest.raises(CoterieError, match=r"has no events\.jsonl"):
        coterie.report.open(tmp_path)


def test_an_old_run_without_latent_features_shows_its_prototypes(tmp_path: Path) -> None:
    events: list[Event] = []
    for event in run_of_all_figures():
        if isinstance(event, PeerRound):
            event = replace(event, notes={k: v for k, v in event.notes.items() if k != "features"})
        events.append(event)
    run = coterie.report.open(written(events, tmp_path / "run"))
    assert run.embedding(round=1).name == "prototypes-1"
    with pytest.raises(NothingToDraw, match="no means of latent features"):
        run.embedding(of="features")


def test_latent_features_are_drawn_before_prototypes(folder: Path) -> None:
    run = coterie.report.open(folder)
    assert run.embedding().name == "embedding-12"
    assert "in the latent space that its head takes as input" in run.embedding().caption
    assert "prototype of a class" in run.embedding(of="prototypes").caption


def test_a_drawing_alone_carries_its_colours() -> None:
    drawn = standalone('<svg viewBox="0 0 9 9"><path class="line test mean" data-name="x" d="M0 0"/></svg>')
    path = ElementTree.fromstring(drawn)[1]
    # marks.css: the colour of test, by way of a variable; a mean is thicker, and comes after the plain line.
    assert (path.get("stroke"), path.get("stroke-width"), path.get("fill")) == ("#1f6fd0", "2.75", "none")
    assert path.get("data-name") is None


def test_the_command_makes_a_report_again(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["report", str(folder)]) == 0
    first = (folder / "report.html").read_text(encoding="utf-8")
    assert first.startswith("<!doctype html>")
    assert main.main(["report", str(folder), "--out", str(tmp_path / "again.html")]) == 0
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == first
    assert main.main(["report", str(tmp_path)]) == 2
    assert "is not a run folder" in capsys.readouterr().err


# -- what they are made of -------------------------------------------------------------------------


def test_two_principal_components() -> None:
    # Along the first axis 0 and 4, along the second 0 and 2, nothing along the third: all variance is in the plane.
    corners = np.array([[0, 0, 7], [4, 0, 7], [0, 2, 7], [4, 2, 7]], dtype=float)
    at, share = in_plane(corners)
    assert share == pytest.approx(1.0)
    assert at.tolist() == [pytest.approx(p) for p in ([-2, -1], [2, -1], [-2, 1], [2, 1])]
    # A third axis with spread 1: of variances 4, 1 and 0.25, all but the last are in the plane.
    both = np.concatenate([corners, corners + np.array([0, 0, 1])])
    assert in_plane(both)[1] == pytest.approx(5 / 5.25)


def test_peers_of_a_cluster_are_placed_nearer_than_others() -> None:
    weights = np.kron(np.eye(3), np.ones((4, 4))) - np.eye(12)  # three cliques of four
    at = places(weights, 400, 10)
    assert at.min() >= 10
    assert at.max() <= 390
    distance = np.sqrt(((at[:, None] - at[None]) ** 2).sum(2))
    kin = np.kron(np.eye(3), np.ones((4, 4))).astype(bool)
    assert distance[kin & ~np.eye(12, dtype=bool)].max() < distance[~kin].min()
    assert distance[~np.eye(12, dtype=bool)].min() > 20  # nodes do not lie upon each other
    assert (places(weights, 400, 10) == at).all()


@pytest.mark.parametrize("peers", [1, 2, 3])
def test_few_peers_have_places(peers: int) -> None:
    at = places(np.zeros((peers, peers)), 400, 10)
    assert at.shape == (peers, 2)
    assert np.isfinite(at).all()
    assert len({tuple(p) for p in at.tolist()}) == peers


def start(peers: int) -> RunStarted:
    return RunStarted("x", 0, peers, 3, [], [], [], None)


def test_the_way_of_an_expert() -> None:
    events: list[Event] = [
        start(3),
        PeerRound(2, 1, 0.0, notes={"hop.a": 1}),
        PeerRound(0, 3, 0.0, notes={"hop.a": 3, "found.a": 3, "hop.b.c": 1}),
        PeerRound(1, 2, 0.0, notes={"hop.a": 2}),
        PeerRound(3, 2, 0.0, notes={"hop.a": 9}),  # a server is no peer
    ]
    assert walks.routes(events, "hop") == {"a": [(1, 1, 2), (2, 2, 1), (3, 3, 0)], "b.c": [(3, 1, 0)]}
    assert walks.rows(events, ROUTES) == [["a", "3", "3", "1", "2, 1, 0"], ["b.c", "1", "1", "0", "0"]]


def test_the_last_search_of_each_peer() -> None:
    early = {"front": [[0.5, 0.5]], "place": [0.5, 0.5], "members": ["0/m"]}
    late = {"front": [[0.8, 0.1], [0.7, 0.2]], "place": [0.8, 0.1], "place_alone": [0.6, 0.0]}
    events: list[Event] = [
        start(2),
        PeerRound(0, 1, 0.0, notes=early),
        PeerRound(0, 2, 0.0, notes={**late, "members": ["0/m", "1/m", "1/n"], "together": 0.9, "alone": 0.75}),
        PeerRound(0, 3, 0.0, notes={"members": ["0/m", "1/m"], "together": 0.95, "alone": 0.75}),
        PeerRound(1, 1, 0.0, notes={"front": [[0.5, 0.5]]}),  # as runs of before told it
    ]
    [first, second] = fronts.choices(events, FRONT)
    assert (first.round, first.front, first.chosen, first.alone) == (
        2,
        [(0.7, 0.2), (0.8, 0.1)],
        (0.8, 0.1),
        (0.6, 0.0),
    )
    assert (second.chosen, second.alone) == (None, None)
    assert fronts.rows(events, FRONT) == [
        ["0", "2", "2", "own x1, peer 1 x1", "95.0%", "75.0%"],
        ["1", "1", "1", "–", "–", "–"],
    ]


def test_one_outlying_value_does_not_squeeze_the_others() -> None:
    # Quartiles 0.82 and 0.86: the fences are at 0.82 - 3 x 0.04 = 0.70 and 0.98.
    values = [0.80, 0.82, 0.84, 0.86, 0.88]
    assert fronts.axis_ends(values) == (0.80, 0.88)
    assert fronts.axis_ends([*values, 0.1]) == (0.80, 0.88)
    # Quartiles of six are 0.8050 and 0.855, so the fences are at 0.655 and 1.005: 0.72 is inside.
    assert fronts.axis_ends([*values, 0.72]) == (0.72, 0.88)
    # Of equal values the quartiles are the same: whatever differs is outlying.
    equal = [0.80] * 8
    assert fronts.axis_ends([*equal, 0.80]) == (0.80, 0.80)
    assert fronts.axis_ends([*equal, 0.64]) == (0.80, 0.80)
    # Two of seven are no longer few: a group of its own, which is shown.
    assert fronts.axis_ends([*values, 0.1, 0.1]) == (0.1, 0.88)
    assert fronts.axis_ends([0.5]) == (0.5, 0.5)


def test_a_mark_outside_the_axes_is_named_and_pointed_at() -> None:
    near = [[0.1 + 0.7, 0.31], *([0.80 + 0.01 * i, 0.30 - 0.02 * i] for i in range(8))]  # 0.7999999999999999 is inside
    events: list[Event] = [
        start(2),
        PeerRound(0, 1, 0.0, notes={"front": near, "place": near[3], "place_alone": [0.85, 0.2]}),
        PeerRound(1, 1, 0.0, notes={"front": near, "place": near[4], "place_alone": [0.11, 0.2]}),
    ]
    figure = fronts.fronts(events, FRONT)
    # Whole tenths around 0.80 to 0.87: without peer 1's own models.
    assert 'data-ends="0.8 0.9 ' in figure.drawing
    assert "a triangle at the edge: peer 1's own models at 11%, 0.2." in figure.caption
    # At the left edge (62), at the height of 0.2 of 1.05 x 0.31: the tip 2 from it, the foot 10.
    y = 280 - 42 - 0.2 / (1.05 * 0.31) * (280 - 12 - 42)
    [triangle] = re.findall(r'class="ring c1" d="M(.*?)Z"', figure.drawing)
    assert [float(v) for v in re.findall(r"[-\d.]+", triangle)] == pytest.approx(
        [64, y, 72, y - 4, 72, y + 4], abs=0.01
    )
    inside = fronts.fronts([events[0], events[1]], FRONT)
    assert "Outside" not in inside.caption
    assert len(re.findall(r'class="ring c1" d="M[^"]*h8v8h-8z"', inside.drawing)) == 1


def test_the_interval_over_seeds() -> None:
    # Of 1, 2 and 3 the deviation is 1; Student's t of 2 degrees of freedom is 4.3027 at 97.5%.
    assert estimate([1.0, 2.0, 3.0]).half == pytest.approx(4.3027 / 3**0.5, rel=1e-4)
    assert estimate([5.0]).half is None


def test_a_curve_holds_until_its_next_point() -> None:
    assert values_at([(1.0, 0.1), (3.0, 0.5)], np.array([1.0, 2.9, 3.0, 9.0])).tolist() == [0.1, 0.1, 0.5, 0.5]


def test_curves_of_two_seeds(tiny: list[Event], tmp_path: Path) -> None:
    """The first is `tiny` (test 1.6 / 3 in both rounds, at 2.0 and 4.5 s); the second has only its second round."""
    half = [tiny[0], *(e for e in tiny if isinstance(e, PeerRound) and e.round == 2)]
    seeds = Seeds("panm", [written(tiny, tmp_path / "0"), written(half, tmp_path / "1")])
    over_rounds = seeds.over_rounds("accuracy", "test")
    assert (over_rounds.xs, over_rounds.means, over_rounds.reach) == ([2.0], [pytest.approx(1.6 / 3)], [0.0])
    # Bytes by then: 1155 and 1150 in the first, 1150 in the second.
    assert seeds.over_bytes("accuracy", "test").xs == [(2305 + 1150) / 2]
    # All peers of the second are measured at 4.5; there the first one ends.
    assert seeds.over_time("accuracy", "test").xs == [4.5]
    assert seeds.per_peer("accuracy") == summarise(tiny, 0.0)["accuracy"]["selected"]["per_peer"] + [0.6, 0.9, 0.1]


def test_fronts_of_a_metric_that_is_lower_the_better_show_its_values() -> None:
    """Merits are negated errors: the axis and the table show the errors, in the unit of the label."""
    rmse = {"name": "rmse", "label": "RMSE", "higher_is_better": False, "unit": "label"}
    start = RunStarted(
        "fedpae", 0, 1, 1, ["mlp"], [9], [], None, metrics=[rmse], select="rmse", task="regression", label_unit="mg"
    )
    front = {"front": [[-54.0, 0.1], [-50.0, 0.05]], "place": [-50.0, 0.05]}
    notes = {**front, "members": ["0/model-0"], "together": -50.0}
    events = [start, PeerRound(0, 1, 1.0, notes=notes, scores={"rmse": [51.0, 52.0]})]
    figure = fronts.fronts(events, FRONT)
    assert "strength: mean validation RMSE of the members" in figure.drawing
    assert ">54 mg<" in figure.drawing
    assert ">-5" not in figure.drawing
    assert fronts.rows(events, FRONT) == [["0", "1", "2", "own x1", "50 mg", "–"]]
