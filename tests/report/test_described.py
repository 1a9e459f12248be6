"""Figures that a method describes: lines worked out by hand, and the method's file found or gone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coterie.core.errors import CoterieError, MethodError
from coterie.core.events import Event, PeerRound, RunStarted
from coterie.core.summary import Summary
from coterie.methods import find
from coterie.methods.declared import PACKAGE, figures_of, no_curves, notes_of
from coterie.methods.figures import Lines
from coterie.methods.notes import Note
from coterie.report import NothingToDraw
from coterie.report.html import page
from coterie.report.noted import lines
from coterie.report.run import Run
from coterie.report.summary import summarise
from coterie.terminal.display import results

METHOD = """
from coterie import Method
from coterie.methods.figures import Lines

class Mine(Method):
    figures = (Lines("mine", "Mine alone", (("up", "rising"), ("down", "falling")), "units"),)

    async def round(self, me):
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


@pytest.mark.parametrize("wrong", ['figures = ("mine",)', "parts = (3,)", 'parts = "decoder"', 'notes = ("up",)'])
def test_a_wrong_declaration_is_reported_before_the_run(wrong: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(f"{METHOD}\n\nclass Wrong(Mine):\n    {wrong}\n", encoding="utf-8")
    with pytest.raises(MethodError, match=rf"Wrong\.{wrong.split()[0]} must be a tuple of"):
        find(f"{file}:Wrong")


NOTING = """
from coterie.methods.local import Local
from coterie.methods.notes import Note, Predictor

class Mine(Local):
    notes = (
        Predictor("twin", "two of its models"),
        Note("warmth", summary="last", label="final temperature", form=".2f"),
        Note("won", curve=False, summary="mean", label="rounds won", form=".0%"),
        Note("gap.", summary="mean", label="gap by part"),
        Note("share", curve=False, summary="beside"),
        Note("helped"),
    )
"""


def noting(method: str) -> list[Event]:
    """Two peers and a server, peer 2; the last record is not measured."""
    return [
        RunStarted(method, 0, 2, 3, [], [], [], None),
        PeerRound(0, 1, 1.0, 0.5, 0.5, 1.0, notes={"warmth": 9.0, "won": True, "gap.b": 1.0, "helped": 1}),
        PeerRound(1, 1, 1.0, 0.5, 0.5, 1.0, notes={"warmth": 4.0, "won": False, "gap.a": 2.0, "share": 0.25}),
        PeerRound(2, 1, 1.0, notes={"warmth": 99.0, "won": True, "gap.a": 99.0}),
        PeerRound(1, 2, 2.0, 0.5, 0.5, 1.0, notes={"warmth": None, "won": False, "gap.b": 5.0, "share": "much"}),
        PeerRound(0, 2, 2.0, 0.5, 0.5, 1.0, notes={"won": False, "share": 0.5, "beside": {"twin": {"test": 0.25}}}),
        PeerRound(0, 3, 3.0, notes={"warmth": 2.0, "won": False, "share": 0.75}),
    ]


@pytest.fixture
def mine(tmp_path: Path) -> str:
    file = tmp_path / "noting.py"
    file.write_text(NOTING, encoding="utf-8")
    return f"{file}:Mine"


def test_a_method_of_ones_own_declares_what_enters_the_summary(mine: str) -> None:
    """warmth: peer 0's last is 2, peer 1's last number is 4. won: 1 of 5 records of peers. gap: a 2; b (1 + 5) / 2.

    share: of the last measured rounds (both 2) only peer 0's is a number. The server's notes do not count.
    """
    summary = summarise(noting(mine), 1.0)
    assert summary.noted == {"warmth": 3.0, "won": 0.2, "gap": {"a": 2.0, "b": 3.0}}
    assert summary.beside.noted == {"share": 0.5}
    written = list(summary)
    assert written[written.index("beside") :] == ["beside", "warmth", "won", "gap"]
    assert Summary.from_json(summary.to_json()).noted == summary.noted
    text = results(summary, Path("x"))
    assert "  final temperature                   3.00\n" in text
    assert "  rounds won                          20%\n" in text
    assert "  gap by part                         a 2, b 3\n" in text
    assert "  with two of its models              25.0%, relative change per peer +100.0% to +100.0%\n" in text  # 0.5


def test_a_declared_note_is_a_curve_or_not(mine: str) -> None:
    events = noting(mine)
    assert list(Run(events, summarise(events, 1.0)).notes()) == ["warmth", "gap.b", "helped", "gap.a"]
    assert "With two of its models" in page(events, summarise(events, 1.0))


def test_without_the_file_its_notes_are_those_of_any_method(mine: str, tmp_path: Path) -> None:
    gone = noting(f"{tmp_path}/absent.py:Mine")
    summary = summarise(gone, 1.0)
    assert (summary.noted, summary.beside.noted) == ({"helped": 1.0}, {})  # CompFL's; `mine` declares another
    assert list(Run(gone, summary).notes()) == ["warmth", "won", "gap.b", "gap.a", "share"]
    assert "  with twin  " in results(summary, Path("x"))
    assert notes_of(mine)[4] == Note("helped")
    assert "helped" not in {note.name for note in notes_of(mine)[5:]}


def test_what_the_packages_methods_note_is_no_curve_of_any_method() -> None:
    reads = {
        "features",
        "prototypes",
        "front",
        "place",
        "place_alone",
        "members",
        "together",
        "alone",
        "hop.",
        "found.",
    }
    assert no_curves("local") == no_curves("no such method") == {*reads, "own_share", "helped", "cluster"}


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("Note('x', summary='men')", "summary of Note.'x'.* 'men'. Did you mean 'mean'"),
        ("Note('accuracy', summary='mean')", "summary.json has a field 'accuracy' already. Rename the note"),
        ("Note('bytes.', summary='last')", "summary.json has a field 'bytes' already. Rename the note"),
        ("Note('x.', summary='beside')", "the table `beside` has single numbers. Use summary = 'last'"),
        ("Note('x', form='.2y')", "form = '.2y' formats no number"),
    ],
)
def test_a_wrong_note_is_reported_before_the_run(declared: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong_note.py"
    file.write_text(NOTING.replace('Note("helped")', declared), encoding="utf-8")
    with pytest.raises(CoterieError, match=said):
        find(f"{file}:Mine")
