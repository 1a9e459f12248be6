"""The axes of charts: bytes on a logarithmic one with a place for nothing, and one axis of accuracy for a page."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from report_support import written

import coterie.report
from coterie.core.events import Event, PeerRound, RunStarted
from coterie.report.byte_axis import ByteAxis
from coterie.report.comparison import sections
from coterie.report.html import page_of
from coterie.report.run import Run
from coterie.report.seeds import Seeds
from coterie.report.summary import summarise
from coterie.report.svg import Plot, tick


def named(amounts: list[float]) -> list[str]:
    """What stands below the axis, from left to right."""
    axis = ByteAxis(amounts)
    plot = Plot(axis.ends, (0.0, 1.0))
    axis.draw(plot, "bytes", "", tick)
    return re.findall(r'text-anchor="middle">(.*?)<', "".join(plot.parts))[:-1]  # without the axis' own name


@pytest.mark.parametrize(
    ("amounts", "names"),
    [
        ([1e3, 1e5], ["1 kB", "2 kB", "5 kB", "10 kB", "20 kB", "50 kB", "100 kB"]),
        ([900, 2.2e6], ["1 kB", "10 kB", "100 kB", "1 MB"]),  # too many for every second and fifth
        ([3.0, 4e14], ["10 B", "1 kB", "100 kB", "10 MB", "1 GB", "100 GB", "10 TB"]),  # every second power
        ([1.2e6, 1.9e6], ["1 MB", "2 MB"]),  # no round number between: those around
        ([7e6], ["5 MB", "10 MB"]),
        ([5e6], ["5 MB", "10 MB"]),
        ([0.0, 1e6, 1e7], ["0", "1 MB", "2 MB", "5 MB", "10 MB"]),
        ([0.0], ["0", "1 B", "2 B"]),
    ],
)
def test_round_numbers_of_bytes(amounts: list[float], names: list[str]) -> None:
    assert named(amounts) == names


def test_a_power_of_ten_is_as_long_anywhere() -> None:
    axis = ByteAxis([0, 100, 1000, 10_000])
    assert axis.at(1000) - axis.at(100) == pytest.approx(axis.at(10_000) - axis.at(1000))
    # Two powers of ten, and nothing a seventh of that to the left of them.
    assert axis.ends == (pytest.approx(2 - 0.14 * 2), 4.0)
    assert axis.at(0) == axis.ends[0]
    assert ByteAxis([100, 1000]).ends == (2.0, 3.0)


def test_who_has_sent_nothing_yet_is_left_of_the_break(tiny: list[Event]) -> None:
    """The first round of `tiny` without its bytes: the means are 1.9 / 3 and 1.6 / 3 in both rounds."""
    quiet = [replace(e, bytes={}) if isinstance(e, PeerRound) and e.round == 1 else e for e in tiny]
    figure = Run(quiet, summarise(quiet, 1.0)).bytes()
    lines = re.findall(r'class="line test" d="M(.*?)" data-name="test"', figure.drawing)
    assert [line.count("L") for line in lines] == [0, 0]  # a point before, a point after, and no line between
    xs = [float(line.split(" ")[0]) for line in lines]
    # 1150 bytes alone are between 1 and 2 kB: 14% of that for the break, then log(1.15) / log(2) of the rest.
    share = (0.14 + math.log(1.15, 2)) / 1.14
    assert xs == [62.0, pytest.approx(62 + share * 362, abs=0.01)]
    assert figure.drawing.count("l4 -8") == 2  # the break
    assert "Left of the break, at 0: nothing exchanged yet." in figure.caption
    assert "left of the break" not in Run(tiny, summarise(tiny, 1.0)).bytes().caption


def ends_of_y(drawn: str) -> set[tuple[str, ...]]:
    """The ends of the axis of accuracy of all charts, by what they say of themselves."""
    found = re.findall(r'data-ends="(.*?)" data-x="(.*?)"([^>]*)data-shares', drawn)
    return {tuple(ends.split(" ")[2:]) for ends, _, _ in found}


def test_one_axis_of_accuracy_for_a_run(tiny: list[Event], tmp_path: Path) -> None:
    run = coterie.report.open(written(tiny, tmp_path / "run"))
    # Validation is 0.5 to 0.8, test 0.1 to 0.9.
    assert run.axis() == (0.1, 0.9)
    drawn = [f.drawing for f in (run.accuracy(), run.accuracy("validation"), run.bytes(), run.time())]
    assert [ends_of_y(one) for one in drawn] == [{("0.1", "0.9")}] * 4
    # A baseline that is worse than anybody: its means are on the page, too.
    assert isinstance(tiny[0], RunStarted)
    low = [tiny[0], *(PeerRound(p, t, 1.0 * t, 0.02, 0.01, 1.0) for t in (1, 2) for p in range(3))]
    both = Run(tiny, summarise(tiny, 1.0), Run(low, summarise(low, 1.0)))
    assert both.axis() == (0.0, 0.9)
    assert ends_of_y(both.time().drawing) == {("0", "0.9")}


def test_one_axis_of_accuracy_for_a_comparison(tiny: list[Event], tmp_path: Path) -> None:
    better = [replace(e, test=1.0) if isinstance(e, PeerRound) and e.peer < 3 else e for e in tiny]
    found = [Seeds("a", [written(tiny, tmp_path / "a")]), Seeds("b", [written(better, tmp_path / "b")])]
    page = sections(found).html()
    # The least shown is (0.6 + 0.7 + 0.1) / 3: at 4.0 s two peers are in round 2, one in round 1. The most is 1.
    assert ends_of_y(page) == {("0.4", "1")}
    assert 'data-ends="0.4 1 1.5 -0.5" data-x="test accuracy"' in page  # of the dots, along x


def test_nothing_measured_has_an_axis(tiny: list[Event]) -> None:
    run = Run(tiny[:1], summarise(tiny[:1], 1.0))
    assert run.axis() == (0.0, 1.0)
    page_of(run)
