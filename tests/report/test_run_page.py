"""report.html: what it shows, that it is whole, and that it holds when things are missing."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from coterie.core.events import Event, PeerAway, PeerRound, RunStarted
from coterie.core.formatting import duration, short_name, size
from coterie.core.summary import Summary
from coterie.report import graphs, matrix, measures, ordering, svg
from coterie.report.figure import NothingToDraw
from coterie.report.html import page, write_report
from coterie.report.summary import summarise

VOID = {"meta", "br"}


class Reader(HTMLParser):
    """Checks that every element is closed, and keeps the tables' rows."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.rows: list[list[str]] = []
        self.text = ""
        self.size = 0  # of the file

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not any(name.startswith("on") or name in ("src", "href", "style") for name, _ in attrs)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1].append(data)
        if not {"style", "script"} & set(self.open):
            self.text += data + "\n"


def look(events: list[Event]) -> Reader:
    """The page of these events, read, with all its drawings checked."""
    written = page(events, summarise(events, 1.0))
    reader = Reader()
    reader.size = len(written.encode())
    reader.feed(written)
    reader.close()
    assert not reader.open
    assert not reader.tags & {"link", "img", "iframe", "object"}
    assert written.count("<script") == written.count("</script>") == 2  # its data, and its own script
    assert "nan" not in re.sub(r"<(style|script)>.*?</\1>", "", written, flags=re.DOTALL).lower()
    for drawing in re.findall(r"<svg.*?</svg>", written, flags=re.DOTALL):
        root = ElementTree.fromstring(drawing)
        if root.get("class") == "key":
            continue
        title = root.find("title")
        assert root.get("role") == "img"
        assert title is not None
        assert title.text == root.get("aria-label")
    return reader


def start_of(events: list[Event]) -> RunStarted:
    assert isinstance(events[0], RunStarted)
    return events[0]


def rounds_of(events: list[Event]) -> list[PeerRound]:
    return [e for e in events if isinstance(e, PeerRound)]


def drawings(events: list[Event]) -> int:
    return page(events, summarise(events, 1.0)).count('<svg role="img"')


def test_the_figures_are_there(tiny: list[Event]) -> None:
    seen = look(tiny)
    for text in (
        "panm · seed 7 · 3 peers · 2 rounds",
        "53.3%", "60.0%", "± 33.0 points", "± 8.2 points", "worst tenth 10.0%",
        "2.31 kB", "model 2.3 kB, probe 5 B", "13", "4.5 s", "75.0%", "100.0%", "87.5%", "Neighbour mass",
        "against the true clusters, last round; mean over rounds 54.2%", "of the weight inside the true cluster, last",
        "Over all rounds: precision 54.2%, recall 75.0%, mass 68.8%.",
        "data: digits, rotation; true clusters known; coterie 0.1.0.", "finally precision 75%, recall 100%, mass 88%",
    ):  # fmt: skip
        assert text in seen.text
    # Test, validation, both by architecture, bytes, time, neighbours, drawing, matrix, classes.
    assert drawings(tiny) == 10
    assert ["cnn", "1", "90.0%", "70.0%"] in seen.rows
    assert ["mlp", "2", "35.0%", "55.0%"] in seen.rows
    assert "finally cnn 90.0%, mlp 35.0%" in seen.text
    assert ["0", "mlp", "40", "0", "60.0%", "60.0%"] in seen.rows
    assert ["1", "cnn", "50", "0", "90.0%", "70.0%"] in seen.rows
    # Quantiles of 0.1, 0.6 and 0.9: a fifth of the way, and four fifths.
    assert ["2", "3", "63.3%", "53.3%", "20.0% to 84.0%", "2.31 kB", "75.0%", "100.0%", "87.5%"] in seen.rows


def test_a_summary_of_an_older_version_has_no_means(tiny: list[Event]) -> None:
    old = {key: value for key, value in summarise(tiny, 1.0).items() if key != "neighbours_mean"}
    written = page(tiny, Summary.from_json(old))
    assert "against the true clusters, last round<" in written
    assert "Over all rounds" not in written


def test_the_file_is_written_whole(tiny: list[Event], tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    write_report(tiny, summarise(tiny, 1.0), path)
    written = path.read_text(encoding="utf-8")
    assert written.startswith("<!doctype html>")
    assert written.endswith("</html>\n")
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|url\(|@import", written)  # the name of SVG is no address
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_hostile_names_are_only_text(tiny: list[Event]) -> None:
    bad = "<script>alert(1)</script>\"'&"
    start = replace(start_of(tiny), method=bad, architectures=[bad] * 3, version=bad)
    rounds = [replace(r, bytes={bad: 3}, messages={bad: 1}) for r in rounds_of(tiny)]
    seen = look([start, *rounds])
    assert f"{short_name(bad)} · seed 7" in seen.text
    assert f"{bad} 24 B" in seen.text


@pytest.mark.parametrize(
    ("notes", "figure"),
    [
        ({"prototypes": 7}, "prototypes"),
        ({"prototypes": {"0": [1.0, 2.0], "1": [1.0]}}, "prototypes"),
        ({"front": [1, 2]}, "front, place"),
        ({"front": [[0.5, 0.5]], "place": 3}, "front, place"),
        ({"front": [[0.5, 0.5]], "members": 3}, ""),
        ({"hop.x": "far"}, "hop, found"),
        ({"hop.": None}, "hop, found"),
    ],
)
def test_notes_of_another_form_do_not_keep_a_report_from_being_written(
    tiny: list[Event], notes: dict[str, Any], figure: str
) -> None:
    seen = look([start_of(tiny), *(replace(r, notes=notes) for r in rounds_of(tiny))])
    assert f"The notes {figure} do not have the expected form" in seen.text or not figure


def test_no_clusters(tiny: list[Event]) -> None:
    events: list[Event] = [replace(start_of(tiny), clusters=None), *tiny[1:]]
    seen = look(events)
    assert "The true clusters are not known." in seen.text
    assert "Neighbour recall" not in seen.text
    assert "ordered by most frequent class" in seen.text
    assert ["0", "mlp", "40", "–", "60.0%", "60.0%"] in seen.rows
    assert drawings(events) == 9


def test_a_method_that_tells_nothing_and_sends_nothing(tiny: list[Event]) -> None:
    events: list[Event] = [
        start_of(tiny),
        *(replace(r, bytes={}, messages={}, notes={}) for r in rounds_of(tiny)),
    ]
    seen = look(events)
    for text in ("Nothing was exchanged.", "no averaging between peers", "keeps no neighbour lists"):
        assert text in seen.text
    assert drawings(events) == 6  # test, validation, both by architecture, time, classes


def test_lists_without_weights_and_weights_without_lists(tiny: list[Event]) -> None:
    def noting(what: str) -> list[Event]:
        rounds = [replace(r, notes={k: v for k, v in r.notes.items() if k == what}) for r in rounds_of(tiny)]
        return [start_of(tiny), *rounds]

    lists, weights = look(noting("neighbours")), look(noting("weights"))
    assert "finally precision 75%, recall 100%\n" in lists.text
    assert "mass" not in lists.text.lower()
    assert "finally mass 88%\n" in weights.text
    assert "recall" not in weights.text.lower()
    assert ["2", "3", "63.3%", "53.3%", "20.0% to 84.0%", "2.31 kB", "87.5%"] in weights.rows
    assert drawings(noting("neighbours")) == drawings(noting("weights")) == 10


def test_nothing_but_a_beginning() -> None:
    events: list[Event] = [RunStarted("local", 0, 1, 1, [], [], [], None)]
    seen = look(events)
    assert "No peer was measured." in seen.text
    assert "class counts of some peers are unknown" in seen.text
    assert ["0", "–", "–", "–", "–", "–"] in seen.rows
    assert drawings(events) == 0


def test_one_peer_one_round() -> None:
    events: list[Event] = [
        RunStarted("local", 0, 1, 1, ["mlp"], [4], [[4]], [0]),
        PeerRound(0, 1, 0.5, 1.0, 1.0, 0.1, notes={"weights": {"0": 1.0}, "neighbours": []}),
    ]
    assert "local · seed 0 · 1 peer · 1 round" in look(events).text


def test_rounds_that_were_not_measured(tiny: list[Event]) -> None:
    rounds = [replace(r, validation=None, test=None, loss=None) if r.round == 1 else r for r in rounds_of(tiny)]
    found = measures.points([start_of(tiny), *rounds], "accuracy", "test")
    assert [(p.round, p.bytes) for p in found] == [(2, 2305)]  # the bytes of both rounds
    look([start_of(tiny), *rounds])


def test_peers_that_left(tiny: list[Event]) -> None:
    """One before it was ever measured: the others keep their own figures."""
    stayed = [r for r in rounds_of(tiny) if r.peer != 0]
    away = [PeerAway(0, 1, 0.5, None), PeerAway(2, 2, 2.0, 2.5)]
    seen = look([start_of(tiny), *away, *stayed])
    assert "1 peer left for good" in seen.text
    assert "1 round missed" in seen.text
    assert ["0", "mlp", "40", "0", "–", "–", "1"] in seen.rows
    assert ["1", "cnn", "50", "0", "90.0%", "70.0%", "–"] in seen.rows


def test_the_graph_round_by_round(tiny: list[Event]) -> None:
    graph = graphs.Graph(tiny, "weights")
    assert graph.rounds == [1, 2]
    assert graph.matrix(1).tolist() == [[0, 0, 0.5], [0, 0, 0], [0, 0, 0]]  # neither itself nor the server
    assert graph.matrix(2).tolist() == [[0, 0.5, 0.25], [1, 0, 0], [0, 0, 0]]
    assert graph.most == 1.0
    # Cells by number, row after row: 0 takes half of the largest from 1 and a quarter from 2, 1 all from 0.
    assert graph.frames() == [(1, [2], [50]), (2, [1, 2, 3], [50, 25, 100])]
    with pytest.raises(NothingToDraw, match="in round 3; 2 rounds have some, from round 1 to 2"):
        graph.matrix(3)


def test_the_graph_of_neighbour_lists(tiny: list[Event]) -> None:
    graph = graphs.Graph(tiny, "neighbours")
    assert graph.matrix(1).tolist() == [[0, 0, 1], [1, 0, 0], [1, 0, 0]]  # peer 1 lists itself, too
    assert graph.matrix(2).tolist() == [[0, 1, 1], [1, 0, 0], [0, 0, 0]]


def test_peers_are_placed_by_the_last_tenth(tiny: list[Event]) -> None:
    many = [PeerRound(0, t, 0.0, notes={"weights": {"1": t / 20}}) for t in range(1, 21)]
    once = PeerRound(1, 20, 0.0, notes={"weights": {"0": 0.5}})
    graph = graphs.Graph([start_of(tiny), *many, once], "weights")
    assert graph.at_last[0, 1] == pytest.approx(0.975)  # of 20 rounds the last two
    assert graph.at_last[1, 0] == 0.25  # in the first of them it took nothing


def test_a_graph_with_much_in_it_keeps_some_rounds(tiny: list[Event], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MAX_ENTRIES", 20)  # a round has four: five rounds fit
    full = {"weights": {"1": 0.5, "2": 0.5}}
    rounds = [PeerRound(p, t, 0.0, notes=full) for t in range(1, 11) for p in range(3)]
    graph = graphs.Graph([start_of(tiny), *rounds], "weights")
    assert graph.matrix(1).astype(bool).sum() == 4  # peers 1 and 2 do not take from themselves
    assert graph.kept == [1, 3, 5, 7, 10]
    assert "5 of 10 rounds, evenly spaced" in look([start_of(tiny), *rounds]).text


def test_peers_are_ordered_by_cluster(tiny: list[Event]) -> None:
    start = replace(start_of(tiny), clusters=[1, 0, 1])
    assert ordering.order(start) == ([1, 0, 2], "by true cluster")
    assert ordering.order(replace(start, clusters=None, classes=[[0, 9], [5, 1], [1, 2]]))[0] == [1, 0, 2]


def test_a_thousand_peers() -> None:
    n = 1000
    start = RunStarted("gossip", 0, n, 1, ["mlp"] * n, [9] * n, [[p % 3, 1, 1] for p in range(n)], None)
    rounds = (
        PeerRound(p, 1, 1.0, 0.5, 0.5, 1.0, {"model": 9}, {"model": 1}, {"weights": {str((p + 7) % n): 0.5}})
        for p in range(n)
    )
    events: list[Event] = [start, *rounds]
    seen = look(events)
    assert seen.size < 1_000_000
    assert "each cell is the mean of 5 neighbouring peers" in seen.text
    assert "Highlight a peer to see its line; 1,000 lines would hide each other." in seen.text
    assert "The first 200 of 1,000 peers" in seen.text
    assert "200" not in {row[0] for row in seen.rows}


def test_thinning_keeps_the_mean() -> None:
    whole = np.arange(401.0 * 3).reshape(401, 3)
    thin = matrix.thinned(whole)
    assert thin.shape == (134, 3)
    assert thin[0].tolist() == [3.0, 4.0, 5.0]  # of rows 0, 1 and 2
    assert thin[-1].tolist() == [1198.5, 1199.5, 1200.5]  # of rows 399 and 400


def test_a_heat_map_is_strokes_of_equal_cells() -> None:
    drawn = matrix.heat_map(np.array([[0.0, 1.0, 1.0], [0.5, 0.0, 0.0]]), (30, 20), "x", ("a", "b"))
    assert [found for found in re.findall(r'opacity="(.*?)" d="(.*?)"', drawn) if found[1]] == [
        ("0.50", "M0 1.5h1"),
        ("1.00", "M1 0.5h2"),
    ]


def test_ticks_are_round_numbers() -> None:
    assert svg.ticks(0, 1) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert svg.ticks(1, 3, whole=True) == [1, 2, 3]
    assert svg.ticks(1, 300, about=6, whole=True) == [50, 100, 150, 200, 250, 300]
    assert svg.ticks(2, 2) == [2]


def test_numbers_as_people_read_them() -> None:
    sizes = {0: "0 B", 999: "999 B", 1000: "1 kB", 2305: "2.31 kB", 999_600: "1 MB", 123_456_789: "123 MB"}
    assert {n: size(n) for n in sizes} == sizes
    times = {0.0: "0 s", 7.36: "7.36 s", 107.0: "1 min 47 s", 7384.0: "2 h 3 min"}
    assert {s: duration(s) for s in times} == times
