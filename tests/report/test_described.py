"""Figures that a method describes: lines worked out by hand, and the method's file found or gone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coterie.core.errors import MethodError
from coterie.core.events import Event, PeerRound, RunStarted
from coterie.methods import find
from coterie.methods.drawn import PACKAGE, figures_of
from coterie.methods.figures import Lines
from coterie.report import NothingToDraw
from coterie.report.html import page
from coterie.report.noted import lines
from coterie.report.run import Run
from coterie.report.summary import summarise

METHOD = """
from coterie import Method
from coterie.methods.figures import Lines

class Mine(Method):
    figures = (Lines("mine", "Mine alone", (("up", "rising"), ("down", "falling")), "units"),)

    async def round(self, me, t):
        me.note(up=1.0, down=2.0)
"""
BOTH = Lines("mine", "Mine alone", (("up", "rising"), ("down", "falling")), "units")


def events_of(method: str) -> list[Event]:
    noted = [{"up": 0.0, "down": 10.0, "else": 1.0}, {"up": 4.0, "down": 0.0, "else": 1.0}]
    rounds = [PeerRound(p, t, float(t), notes=noted[t - 1]) for t in (1, 2) for p in (0, 1)]
    return [RunStarted(method, 0, 2, 2, [], [], [], None), *rounds]


def test_lines_by_hand() -> None:
    figure = lines(events_of("gone"), BOTH)
    # From 0 to 10, and a twentieth of that to both sides: -0.5 to 10.5.
    assert 'data-ends="1 2 -0.5 10.5"' in figure.drawing
    height = {v: 280 - 42 - (v + 0.5) / 11 * (280 - 12 - 42) for v in (0.0, 4.0, 10.0)}
    drawn = [
        [float(v) for v in re.findall(r"-?[\d.]+", d)]
        for d in re.findall(r'class="line [^"]*" d="M(.*?)"', figure.drawing)
    ]
    assert drawn[0] == pytest.approx([62, height[0.0], 424, height[4.0]], abs=0.01)
    assert drawn[1] == pytest.approx([62, height[10.0], 424, height[0.0]], abs=0.01)
    assert [key.text for key in figure.keys] == ["rising", "falling"]
    with pytest.raises(NothingToDraw, match="No peer noted x"):
        lines(events_of("gone"), Lines("x", "X", (("x", "x"),), ""))


def test_a_method_of_a_users_has_its_figure_while_its_file_exists(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(METHOD, encoding="utf-8")
    events = events_of(f"{file}:Mine")
    shown = page(events, summarise(events, 1.0))
    assert "Mine alone" in shown
    assert list(Run(events, summarise(events, 1.0)).notes()) == ["else"]  # the others are in its figure
    gone = events_of(f"{tmp_path / 'gone.py'}:Mine")
    assert "Mine alone" not in page(gone, summarise(gone, 1.0))
    assert list(Run(gone, summarise(gone, 1.0)).notes()) == ["up", "down", "else"]


def test_the_packages_figures_are_for_every_method() -> None:
    assert [figure.name for figure in PACKAGE] == ["embedding", "prototypes", "front", "walks"]
    assert figures_of("local") == figures_of("no such method") == PACKAGE
    assert [figure.name for figure in figures_of("compfl")] == ["walks", "embedding", "prototypes", "front"]


@pytest.mark.parametrize("wrong", ['figures = ("mine",)', "parts = (3,)", 'parts = "decoder"'])
def test_a_wrong_declaration_is_reported_before_the_run(wrong: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(f"{METHOD}\n\nclass Wrong(Mine):\n    {wrong}\n", encoding="utf-8")
    with pytest.raises(MethodError, match=rf"Wrong\.{wrong.split()[0]} must be a tuple of"):
        find(f"{file}:Wrong")
