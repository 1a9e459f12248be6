"""A comparison in each of its written forms."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from coterie import methods
from coterie.cli import compare
from coterie.comparing import naming, plan, tables
from coterie.comparing.comparison import Block, Comparison, metrics_of_runs
from coterie.comparing.naming import Presentation
from coterie.comparing.plan import Job, Variant
from coterie.comparing.statistics import Difference, Estimate, Line
from coterie.config import loading
from coterie.core.errors import ConfigError, RunError
from coterie.core.measured_metric import ACCURACY, MeasuredMetric
from coterie.core.summary import Summary


def entry(label: str, against: Difference | None = None) -> Line:
    figure = Estimate(0.5, 0.01)
    return Line(label, (0, 1), figure, figure, 0.5, 0.1, 0.4, 0.25, 1e6, 10, 0.4, 2.0, 2, against)


LINES = (entry("best"), entry("a_b", Difference(Estimate(-0.1, 0.02), 0.0001)))
FOUND = Comparison("demo", (), (0, 1), (Block("", LINES),), (), {})


def test_latex_sets_every_sign_as_itself() -> None:
    text = tables.latex(FOUND, "coterie compare")
    assert r"a\_b & \textbf{50.00} $\pm$1.00" in text
    assert r"$-$10.00 $\pm$2.00 & $<$0.001 \\" in text  # a bare < is another sign there, a bare - a hyphen
    assert tables.latex(Comparison("demo", (), (0, 1), (Block("", (entry("k=-1"),)),), (), {}), "").count("k=-1") == 1


def test_the_csv_has_a_difference_for_all_but_the_best() -> None:
    best, other = csv.DictReader(tables.values(FOUND).splitlines())
    assert best.keys() == other.keys()
    assert "against_best" not in best
    assert best["against_best.p"] == ""
    assert float(other["against_best.estimate.mean"]) == -0.1


def test_splits_are_the_same_within_one_setting_of_the_data_alone() -> None:
    two = Comparison("demo", (), (0, 1), (Block("data.train=1", LINES), Block("data.train=2", LINES)), (), {})
    assert "on the same splits for all rows with the same data:" in tables.text(two)
    assert "on the same splits for all:" in tables.text(FOUND)


def test_what_is_missing_is_said_with_what_that_means() -> None:
    found = Comparison("demo", (), (0, 1), FOUND.blocks, ("best, seed 1",), {})
    assert "MISSING: best, seed 1. The mean of a row that lacks a seed is over fewer splits" in tables.text(found)


def test_latex_escapes_every_sign_that_means_something_to_it() -> None:
    odd = replace(entry("x"), title=r"50% & $1 #2 {a} ~ ^ \ <b>")
    text = tables.latex(Comparison("demo", (), (0,), (Block("", (odd,)),), (), {}))
    shown = r"50\% \& \$1 \#2 \{a\} \textasciitilde{} \textasciicircum{} \textbackslash{} $<$b$>$ & "
    assert shown in text


def test_the_columns_asked_for_in_their_order_in_latex_and_markdown_alone() -> None:
    found = replace(FOUND, presentation=Presentation(columns=("bytes", "last")))
    assert " & exchanged & last \\\\" in found.latex()
    assert "\\begin{tabular}{lrr}" in found.latex()
    assert "|  | exchanged | last |" in found.markdown()
    assert "worst 10%" in tables.text(found)


def test_an_unknown_column_is_an_error_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"columns: unknown column 'selectd'. Did you mean 'selected'\?"):
        tables.checked_columns(["last", "selectd"])
    assert tables.checked_columns(["p", "last", "p"]) == ("p", "last")
    assert tables.checked_columns(["auroc"], metrics=["auroc"]) == ("auroc",)


def test_the_help_names_every_column() -> None:
    assert compare.COLUMNS.split(",") == list(tables.COLUMNS)


def with_figures(label: str, last: float, **figures: float | None) -> Line:
    return replace(entry(label), last=Estimate(last, 0.01), **figures)  # type: ignore[arg-type]


def test_bold_is_the_best_as_printed() -> None:
    # 93.204 and 93.196 are both printed as 93.20; 93.19 is not. Fewer bytes are better, but no bytes do not compete;
    # a higher share of hurt is worse; a time that one of two seeds did not reach does not compete.
    block = Block(
        "",
        (
            with_figures("a", 0.93204, bytes=2e6, hurt=0.5, time=1.0, reached=1),
            with_figures("b", 0.93196, bytes=1e6, hurt=0.25, time=3.0),
            with_figures("c", 0.9319, bytes=0.0, hurt=None, time=2.0),
        ),
    )
    assert tables.best(block, "last") == {0, 1}
    assert tables.best(block, "bytes") == {1}
    assert tables.best(block, "hurt") == {1}
    assert tables.best(block, "time") == {2}
    assert tables.best(block, "difference") == tables.best(block, "p") == set()
    alone = Block("", block.lines[:1])
    assert tables.best(alone, "last") == set()
    shown = Comparison("demo", (), (0, 1), (block,), (), {}, presentation=Presentation(columns=("last", "bytes")))
    assert r"b & \textbf{93.20} $\pm$1.00 & \textbf{1 MB} \\" in shown.latex()
    assert r"c & 93.19 $\pm$1.00 & 0 B \\" in shown.latex()
    assert "| b | **93.20** ±1.00 | **1 MB** |" in shown.markdown()


def test_a_difference_of_nothing_has_no_minus() -> None:
    line = entry("a", Difference(Estimate(-1e-17, None), None))
    assert "+0.00" in tables.cells(line)


# -- what rows are called --------------------------------------------------------------------------

ROWS = plan.with_local([plan.of_method("panm"), plan.of_method("panm,k=3"), plan.of_method("some/where/mine.py:Mine")])


def test_labels_are_given_by_key_or_by_what_is_shown() -> None:
    words = ["panm=PANM (k=2)", "panm,k=3=PANM, three", "mine.py:Mine=Ours", "local=Alone"]
    given = naming.checked_labels(naming.labels_given(words, ROWS), ROWS)
    assert given == {
        "panm": "PANM (k=2)",
        "panm,k=3": "PANM, three",
        "some/where/mine.py:Mine": "Ours",
        "local": "Alone",
    }


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("pamn=X", "unknown row 'pamn'. Did you mean 'panm'?"),
        ("panm", "it needs ROW=TEXT"),
        ("panm=", "is not a printable name on one line"),
        ("panm=a\nb", "is not a printable name on one line"),
    ],
)
def test_a_label_that_cannot_be(word: str, why: str) -> None:
    with pytest.raises(ConfigError) as told:
        naming.checked_labels(naming.labels_given([word], ROWS), ROWS)
    assert why in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"gossip": "Local"}, "label of gossip: the row 'local' is already called 'Local'"),  # its title
        ({"gossip": "local"}, "label of gossip: the row 'local' is already called 'local'"),  # its label
        ({"gossip": "X", "local": "X"}, "label of gossip: the row 'local' is already called 'X'"),
    ],
)
def test_no_two_rows_have_one_name(own: dict[str, str], why: str) -> None:
    rows = plan.jobs("panm-digits", [plan.of_method("local"), plan.of_method("gossip")], [0], [], Path("nowhere"))
    with pytest.raises(ConfigError) as told:
        naming.names(rows, own)
    assert why in str(told.value)
    assert naming.names(rows, {"gossip": "Gossip"}) == {"local": ("local", "Local"), "gossip": ("Gossip", "Gossip")}


def test_what_is_outdated_is_said_without_a_word_on_options() -> None:
    """The files have it, too, and a run without --print whose repetition failed."""
    found = replace(FOUND, outdated=("mine.py changed: best, seed 0",))
    assert "OUTDATED: mine.py changed: best, seed 0." in tables.notes(found)


def test_the_rows_of_a_sweep_are_named_alike() -> None:
    rows = plan.with_local(plan.grid(["method.k=1", "train.lr=0.1,0.2"]))
    assert list(naming.default_labels(rows).values()) == ["k=1 lr=0.1", "k=1 lr=0.2", "local lr=0.1", "local lr=0.2"]
    clash = plan.with_local(plan.grid(["method.seen.k=1", "model.k=2"]))  # two keys that end alike stay whole
    assert list(naming.default_labels(clash).values()) == ["method.seen.k=1 model.k=2", "local model.k=2"]


def job(*words: str) -> Job:
    made = loading.load("panm-digits", ["baseline=", *words])
    return Job(Variant(" ".join(words), words), 0, made, Path("nowhere"))


def test_titles_are_the_proper_names_of_methods() -> None:
    rows = [job("method.name=mapl+"), job("method.name=gossip", "method.k=2"), job("train.lr=0.5")]
    labels = {row.variant.label: row.variant.label for row in rows}
    assert list(naming.titles(rows, labels).values()) == ["MAPL+", "Gossip, k=2", "lr=0.5"]
    same = [job("train.lr=0.5"), Job(Variant("again", ("train.lr=0.5",)), 0, rows[0].experiment, Path("nowhere"))]
    assert list(naming.titles(same, {"train.lr=0.5": "one", "again": "two"}).values()) == ["one", "two"]


def test_every_method_of_the_package_has_a_title_of_its_own() -> None:
    found = {name: naming.title_of(method) for name, method in methods.METHODS.items()}
    assert len(set(found.values())) == len(found)
    for name, title in found.items():  # the name, as its authors write it
        assert title.lower().replace(" ", "-") == name


def test_a_subclass_does_not_take_the_title_of_another_method() -> None:
    class Mine(methods.METHODS["mapl+"]):  # type: ignore[misc]
        pass

    assert naming.title_of(Mine) == "Mine"


# -- other metrics ---------------------------------------------------------------------------------

COST = MeasuredMetric("cost", "cost", higher_is_better=False, unit="")
AUROC = MeasuredMetric("auroc", "AUROC", higher_is_better=True, unit="%")


def by_cost(label: str, cost: float, auroc: float | None, against: Difference | None = None) -> Line:
    scores = {} if auroc is None else {"auroc": Estimate(auroc, 0.01)}
    return replace(entry(label, against), last=Estimate(cost, 0.25), worst_decile=2.5, target=1.5, scores=scores)


def test_the_main_metric_heads_the_table_and_the_others_are_columns() -> None:
    lines = (by_cost("a", 1.0, 0.9), by_cost("b", 1.25, None, Difference(Estimate(-0.25, None), None)))
    block = Block("", lines, (COST, AUROC))
    found = Comparison("demo", (), (0, 1), (block,), (), {}, presentation=Presentation(columns=("last", "auroc", "f1")))
    assert tables.head(block)[-1] == "AUROC, %"
    assert tables.head(block)[8] == "time to 1.5"
    assert tables.cells(lines[0], block.metrics)[1] == "1 ±0.25"
    assert tables.cells(lines[0], block.metrics)[4] == "2.5"
    assert tables.cells(lines[1], block.metrics)[-3:] == ["-0.25", "", "–"]
    assert tables.best(block, "last") == {0}  # less is better
    assert "| a | **1** ±0.25 | 90.00 ±1.00 | – |" in found.markdown()  # no run measured f1
    text = tables.text(found)
    assert "Test cost, mean over peers" in text
    assert "Lower is better." in text
    assert "Ordered by validation cost; nothing was selected by test cost." in text
    assert "Further metrics (AUROC): on test data" in text
    first, _ = csv.DictReader(tables.values(found).splitlines())
    assert (first["metric"], first["scores.auroc.mean"]) == ("cost", "0.9")


def test_runs_with_different_main_metrics_are_not_compared() -> None:
    spread = {"mean": 0.5, "per_peer": [0.5]}
    auroc = {"label": "AUROC", "higher_is_better": True, "unit": "%", "last": spread, "selected": spread}
    one = Summary.from_json({"accuracy": {"last": spread, "selected": spread}})
    other = Summary.from_json({"accuracy": {"last": spread}, "scores": {"auroc": auroc}, "main": "auroc"})
    told = (
        "the main metric of panm, seed 0 is accuracy, and that of gossip, seed 1 is auroc. Give all variants the same"
    )
    with pytest.raises(RunError, match=told):
        metrics_of_runs({"panm": {0: one}, "gossip": {1: other}})
    # A metric that some variants lack is a column with gaps.
    second = Summary.from_json({"accuracy": {"last": spread}, "scores": {"auroc": auroc}})
    assert metrics_of_runs({"panm": {0: one}, "gossip": {1: second}}) == (ACCURACY, AUROC)
