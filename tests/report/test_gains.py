"""A run beside its baseline: who gains and who loses, against values worked out by hand; and what folders may lack."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from report_support import written

import coterie.report
from coterie.cli import main
from coterie.comparing import statistics
from coterie.core.errors import CoterieError
from coterie.core.events import Event, PeerRound, RunStarted
from coterie.core.measured_metric import ACCURACY
from coterie.core.summary import Summary
from coterie.report import NothingToDraw, gains
from coterie.report.comparison import sections, write_comparison
from coterie.report.html import page_of
from coterie.report.seeds import Seeds
from coterie.report.summary import summarise, write_json
from coterie.terminal.display import comparison as as_text

# `tiny` ends with 0.6, 0.9 and 0.1, and selects 0.6, 0.7 and 0.5. Alone these peers have, in both rounds:
ALONE = [0.5, 0.9, 0.4]


def alone_of(tiny: list[Event], method: str = "local", **changes: object) -> list[Event]:
    start = tiny[0]
    assert isinstance(start, RunStarted)
    rounds = (PeerRound(p, t, float(t), 0.5, test, 1.0) for t in (1, 2) for p, test in enumerate(ALONE))
    return [replace(start, method=method, **changes), *rounds]  # type: ignore[arg-type]


def with_baseline(tiny: list[Event], folder: Path, method: str = "local", **changes: object) -> Path:
    """A folder as `coterie run` leaves it."""
    written(tiny, folder)
    beside = written(alone_of(tiny, method, **changes), folder / f"baseline-{method}")
    write_json(beside / "summary.json", summarise(alone_of(tiny, method), 1.0))
    return folder


def bars(figure: coterie.report.Figure) -> list[tuple[str, str]]:
    """The colour and the name of each bar, from left to right."""
    return re.findall(r'class="gain (c\d)" d="[^"]*" data-name="(.*?)"', figure.drawing)


def test_gains_by_hand(tiny: list[Event], tmp_path: Path) -> None:
    run = coterie.report.open(with_baseline(tiny, tmp_path / "run"))
    assert run.baseline is not None
    # 0.6 - 0.5, 0.9 - 0.9 and 0.1 - 0.4.
    found = gains.gains(run.summary, run.baseline.summary)
    assert found == {0: pytest.approx(0.1), 1: 0.0, 2: pytest.approx(-0.3)}
    assert gains.counts(found.values()) == (1, 1, 1)
    # 0.6 - 0.5, 0.7 - 0.9 and 0.5 - 0.4.
    selected = gains.gains(run.summary, run.baseline.summary, "selected")
    assert [round(selected[p], 9) for p in range(3)] == [0.1, -0.2, 0.1]
    # The mean is (0.1 + 0 - 0.3) / 3.
    said = "Against local, 1 of 3 peers gain, 1 lose, 1 neither; the mean is -6.7 points."
    assert gains.gain_sentence(found.values(), "local", ACCURACY) == said
    figure = run.gains()
    assert bars(figure) == [("c0", "peer 0"), ("c0", "peer 1"), ("c1", "peer 2")]
    assert "<title>peer 2: -30.0 points (10.0%; local 40.0%)</title>" in figure.drawing
    assert figure.heading == "Gain per peer against local"
    assert figure.caption.startswith(said)
    assert bars(run.gains("selected")) == [("c0", "peer 0"), ("c0", "peer 2"), ("c1", "peer 1")]  # of equals by number
    with pytest.raises(CoterieError, match=r"unknown choice of rounds 'lst'\. Did you mean 'last'"):
        run.gains("lst")
    # Who is hurt in the table of a comparison is who loses here.
    assert statistics.hurt(run.summary, run.baseline.summary) == [False, False, True]


def test_the_ends_of_the_axis_are_round_and_around_zero() -> None:
    assert gains.around([0.04, 0.12], ACCURACY) == (0.0, 15.0)  # points: steps of 5
    assert gains.around([-0.031, 0.012], ACCURACY) == (-4.0, 2.0)  # steps of 1
    assert gains.around([0.0], ACCURACY) == (-1.0, 1.0)


def test_the_report_shows_the_baseline(tiny: list[Event], tmp_path: Path) -> None:
    run = coterie.report.open(with_baseline(tiny, tmp_path / "run"))
    page = page_of(run)
    # (0.5 + 0.9 + 0.4) / 3 = 60.0%, its worst peer 40.0%; nothing sent; 2 simulated seconds, never idle.
    cells = "".join(f"<td>{cell}</td>" for cell in ("60.0%", "60.0%", "40.0%", "0 B", "0.0%", "2 s"))
    assert f'<th scope="row" class="name">local</th>{cells}' in page
    assert page.count("baseline local") == 4  # test and validation over rounds, bytes, time
    assert 'data-name="local, mean"' in page
    assert "<td>-30.0</td>" in page  # in the table of peers
    assert "Gain per peer against local" in page
    assert "This run has no baseline" not in page


def test_a_baseline_that_is_not_local_is_named(tiny: list[Event], tmp_path: Path) -> None:
    run = coterie.report.open(with_baseline(tiny, tmp_path / "run", "fedavg"))
    assert run.gains().heading == "Gain per peer against fedavg"
    assert "minus that in the run of fedavg" in run.gains().caption


def test_without_a_baseline_the_report_says_how_to_get_one(tiny: list[Event], tmp_path: Path) -> None:
    run = coterie.report.open(written(tiny, tmp_path / "run"))
    with pytest.raises(NothingToDraw, match="`baseline=local`"):
        run.gains()
    assert "Gain per peer: This run has no baseline. With `baseline=local`" in page_of(run)
    alone = coterie.report.open(written(alone_of(tiny), tmp_path / "alone"))
    assert "no baseline" not in page_of(alone)  # it is the baseline of others


def test_a_baseline_that_cannot_be_used_is_reported(tiny: list[Event], tmp_path: Path) -> None:
    def why(folder: Path) -> str:
        run = coterie.report.open(folder)
        assert run.baseline is None
        page_of(run)  # the report is written nevertheless
        with pytest.raises(NothingToDraw) as said:
            run.gains()
        return str(said.value)

    assert "its peers, data or seed differ" in why(with_baseline(tiny, tmp_path / "seed", seed=8))
    assert "cannot be compared" in why(with_baseline(tiny, tmp_path / "samples", samples=[1, 2, 3]))
    unfinished = with_baseline(tiny, tmp_path / "unfinished")
    (unfinished / "baseline-local" / "summary.json").unlink()
    assert f"has not finished. Resume it with `coterie run --resume {unfinished}`" in why(unfinished)
    damaged = with_baseline(tiny, tmp_path / "damaged")
    (damaged / "baseline-local" / "events.jsonl").write_text("?\n?\n", encoding="utf-8")
    assert "baseline-local cannot be read" in why(damaged)


def test_peers_that_were_not_measured_in_both_are_counted(tiny: list[Event], tmp_path: Path) -> None:
    gone = [e for e in tiny if not (isinstance(e, PeerRound) and e.peer == 1)]
    figure = coterie.report.open(with_baseline(gone, tmp_path / "run")).gains()
    assert [name for _, name in bars(figure)] == ["peer 0", "peer 2"]
    assert "1 of 2 peers gain, 1 lose;" in figure.caption
    assert "Left out because not measured in both runs: 1 peer." in figure.caption


def test_many_bars_are_thinned() -> None:
    def summary(shift: float) -> Summary:
        per_peer = [p / 1000 + shift for p in range(1000)]
        return Summary.from_json({"accuracy": {"last": {"per_peer": per_peer}}})

    figure = gains.bars(summary(0.1), summary(0.0), "local")
    assert len(bars(figure)) == gains.MAX_BARS
    assert "400 of 1,000 bars are drawn" in figure.caption
    assert "1000 of 1,000 peers gain" in figure.caption


def test_the_terminal_says_who_gains(tiny: list[Event]) -> None:
    text = as_text([summarise(tiny, 1.0), summarise(alone_of(tiny), 1.0)])
    assert "panm trails local by 6.7 points: 1 of 3 peers gain, 1 lose, 1 neither" in text


@pytest.fixture
def two_seeds(tiny: list[Event], tmp_path: Path) -> dict[str, list[Path]]:
    """Of both methods two runs, which differ in their seed alone."""
    assert isinstance(tiny[0], RunStarted)
    again = [replace(tiny[0], seed=8), *tiny[1:]]
    return {
        "panm": [written(tiny, tmp_path / "p7"), written(again, tmp_path / "p8")],
        "local": [written(alone_of(tiny, seed=8), tmp_path / "l8"), written(alone_of(tiny), tmp_path / "l7")],
    }


def test_gains_in_a_comparison(two_seeds: dict[str, list[Path]], tmp_path: Path) -> None:
    write_comparison(tmp_path / "page.html", "Two", two_seeds, ["", "last"], [["panm", "1"], ["local", "2"]])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    # Twice the gains 0.1, 0 and -0.3, seed by seed whatever the order of the folders.
    cells = "".join(f"<td>{cell}</td>" for cell in ("6", "2", "2", "2", "-6.7", "-30.0", "+10.0"))
    assert f'<th scope="row" class="name">panm</th>{cells}' in page
    assert 'data-file="gain-last"' in page
    assert 'data-file="gain-selected"' in page
    assert '<th scope="row" class="name">local</th><td>6</td>' not in page  # against itself there is nothing to show


def test_a_comparison_without_local_says_so(two_seeds: dict[str, list[Path]]) -> None:
    found = [Seeds("panm", two_seeds["panm"]), Seeds("local", two_seeds["local"])]
    assert any("no runs of `local`" in said for said in sections(found[:1]).missing)
    assert any("no runs of `local`" in said for said in sections(found, alone={}).missing)
    assert not sections(found, alone={"panm": "local", "local": "local"}).missing


def test_the_run_command_shows_its_baseline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["peers=3", "rounds=2", "data.clusters=2", "data.train=10", "data.validation=5", "data.test=5"]
    words += ["model.hidden=[4]", "method.name=gossip", "method.k=1", "engine.workers=1", "baseline=local"]
    assert main.main(["run", "panm-digits", *words, "--out", str(tmp_path / "run"), "--plain"]) == 0
    report = tmp_path / "run" / "report.html"
    first = report.read_text(encoding="utf-8")
    assert "Gain per peer against local" in first
    assert re.search(r"local by [\d.]+ points: \d of 3 peers gain, \d lose", capsys.readouterr().out)
    assert main.main(["report", str(tmp_path / "run")]) == 0
    assert report.read_text(encoding="utf-8") == first
