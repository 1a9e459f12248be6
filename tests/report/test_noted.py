"""Numbers that a method notes of its own: what is a number, and its chart, against values worked out by hand."""

from __future__ import annotations

import math
import re
from typing import Any
from xml.etree import ElementTree

import pytest

from coterie.core import notes
from coterie.core.events import Event, PeerRound, RunStarted
from coterie.report import NothingToDraw
from coterie.report.html import page
from coterie.report.noted import charts, custom_numbers
from coterie.report.run import Run
from coterie.report.summary import summarise

BAD = "</script><script>document.title='ran'</script>\"'&\ud800\x00\u202e"


def run_noting(*rounds: dict[int, dict[str, Any]], peers: int = 3) -> list[Event]:
    """Each round is what participants noted, by number."""
    start = RunStarted("mine.py:Mine", 0, peers, len(rounds), [], [], [], None)
    return [start, *(PeerRound(p, t, float(t), notes=n) for t, by in enumerate(rounds, 1) for p, n in by.items())]


def test_what_is_a_number_of_ones_own() -> None:
    found = notes.numbers(
        {
            "loss_x": 1.5, "steps": 3, "done": True, "nan": math.nan, "endless": -math.inf, "none": None,
            "huge": 10**400, "too large": 1e300, "tiny": 1e-300, "text": "1.0", "list": [1.0], "dict": {"a": 1.0},
            "weights": 1.0, "waited": 2.0, "stale": 1,
        }
    )  # fmt: skip
    assert found == {
        "loss_x": 1.5, "steps": 3.0, "done": 1.0, "nan": None, "endless": None, "none": None, "huge": None,
        "too large": None, "tiny": 0.0,
    }  # fmt: skip


def test_a_name_that_ends_in_a_dot_stands_for_all_that_begin_with_it() -> None:
    found = {"hop.cnn": 4, "hop.": 5, "hop": 1, "hops": 2, "step": 3, "step.cnn": 6}
    assert notes.numbers(found, without={"hop.", "step"}) == {"hop": 1.0, "hops": 2.0, "step.cnn": 6.0}


def test_means_and_band_by_hand() -> None:
    events = run_noting(
        {0: {"loss_x": 1.0}, 1: {"loss_x": 2.0}, 2: {"loss_x": 6.0}, 3: {"loss_x": 9.0}},  # 3 is the server
        {0: {"loss_x": 2.0}, 1: {"loss_x": math.nan}, 2: {}},
    )
    [entry] = custom_numbers(events)
    assert (entry.peers, entry.server) == ({1: [1.0, 2.0, 6.0], 2: [2.0]}, {1: 9.0})
    drawn, others = charts(events)
    figure = drawn["loss_x"]
    assert others == ""
    # From 1.2 (a fifth of the way from 1 to 2) to 9, and a twentieth of that to both sides.
    assert 'data-ends="1 2 0.81 9.39"' in figure.drawing
    height = {v: 280 - 42 - (v - 0.81) / 8.58 * (280 - 12 - 42) for v in (1.2, 2.0, 3.0, 5.2)}
    [line] = re.findall(r'class="line c0 mean" d="M(.*?)"', figure.drawing)
    assert _numbers(line) == pytest.approx([62, height[3.0], 424, height[2.0]], abs=0.01)  # 9 / 3, then 2
    [band] = re.findall(r'class="band c0" d="M(.*?)Z"', figure.drawing)
    wanted = [62, height[5.2], 424, height[2.0], 424, height[2.0], 62, height[1.2]]  # 5.2: four fifths from 2 to 6
    assert _numbers(band) == pytest.approx(wanted, abs=0.01)
    assert "Noted by 3 of 3 peers, in 2 rounds. 1 value left out: not finite" in figure.caption
    assert [key.text for key in figure.keys] == ["mean", "server"]


def _numbers(path: str) -> list[float]:
    return [float(v) for v in re.findall(r"-?[\d.]+", path)]


def test_a_run_without_such_notes(tiny: list[Event]) -> None:
    with pytest.raises(NothingToDraw, match="notes no custom numbers"):
        Run(tiny, summarise(tiny, 1.0)).notes()
    assert "Notes of the method" not in page(tiny, summarise(tiny, 1.0))
    only_odd = run_noting({0: {"loss_x": None}, 1: {"loss_x": math.nan}})
    assert custom_numbers(only_odd) == []


def test_any_name_is_only_text() -> None:
    names = [BAD, "", "a b", "a_b", "a/b", "x" * 500, "  ", "\n"]
    events = run_noting({0: dict.fromkeys(names, 1.0)}, {0: dict.fromkeys(names, 2.0)})
    written = page(events, summarise(events, 1.0))
    written.encode("utf-8", "strict")
    assert "<script>document" not in written
    found = Run(events, summarise(events, 1.0)).notes()
    assert list(found) == names
    assert len({figure.name for figure in found.values()}) == len(names)
    assert all(re.fullmatch(r"note-[\w.-]+", figure.name) for figure in found.values())
    assert all(1 <= len(figure.heading) <= 60 for figure in found.values())
    for figure in found.values():
        ElementTree.fromstring(figure.svg())


def test_many_names_are_bounded_and_the_others_listed() -> None:
    events = run_noting({0: {f"n{i}": float(i) for i in range(40)}})
    written = page(events, summarise(events, 1.0))
    assert written.count('data-file="note-') == notes.MOST == 24
    # n24 to n39 are left: ten are named, six more are not.
    assert "Of 40 names 24 are drawn; in events.jsonl alone are: n24, n25, " in written
    assert "n33 and 6 more." in written


@pytest.mark.parametrize("values", [[0.0, 0.0], [1e200, -1e200], [1e-199, 3e-199], [5.0, 5.0 + 1e-15], [7.0]])
def test_any_range_can_be_drawn(values: list[float]) -> None:
    events = run_noting(*({0: {"x": v}} for v in values), peers=1)
    svg = charts(events)[0]["x"].svg()
    assert "nan" not in svg
    assert "inf" not in svg
    heights = [float(y) for y in re.findall(r'<circle[^>]* cy="(.*?)"', svg)]
    assert heights
    assert all(12 <= y <= 238 for y in heights)


def test_tags_are_plain_and_differ() -> None:
    tags = notes.Tags()
    names = ["a b", "a_b", "a/b", BAD, ""]
    found = [tags.of(name) for name in names]
    assert found[:3] == ["a_b", "a_b_2", "a_b_3"]
    assert all(tag and re.fullmatch(r"[A-Za-z0-9_.-]{1,70}", tag) for tag in found)
    assert [tags.of(name) for name in names] == found  # it stays so
    assert [tags.of(f"x{i}") for i in range(30)][18:] == ["x18", *[None] * 11]  # 5 + 19 are 24


def test_a_mean_of_large_numbers_is_one() -> None:
    assert notes.mean([1e200, 1e200]) == 1e200
    assert notes.mean([1.0, 2.0, 6.0]) == 3.0
