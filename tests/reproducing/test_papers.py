"""The tables of the papers as they ship: every column and row of every one can be run, and every figure is a number."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from results_support import summary, there

from coterie.cli.main import OK, main
from coterie.comparing.plan import fingerprint
from coterie.config.loading import load, presets
from coterie.core.errors import ConfigError
from coterie.core.formatting import aligned
from coterie.methods.mapl import MAPL
from coterie.methods.pens import PENS
from coterie.reproducing import papers
from coterie.reproducing.figures import FIGURES
from coterie.reproducing.page import page
from coterie.reproducing.papers import Table
from coterie.reproducing.results import number, rows
from coterie.reproducing.sections import Place, parsed

TABLES = papers.tables()
OUT = Path("runs")
FIGURE = re.compile(r"(-?\d+(\.\d+)?( ±\d+\.\d+)?|\d{2,3},000)?")


def small(table: str, column: str, label: str, words: tuple[str, ...] = ()) -> str:
    """What a row runs in a column's small form, with seed 1."""
    found = TABLES[table].jobs(TABLES[table].columns[column], True, (1,), words, OUT, [label])
    return fingerprint(next(job.experiment for job in found if job.variant.label == label))


def test_the_tables_that_there_are() -> None:
    expected = {
        "panm": "table2 table3 table3-precision table3-recall table4 table5 table6 table6-costs figure2 figure3",
        "mapl": "table1 table2 table3 table4 table4-messages table5 table6 table9",
        "fedpae": "table1 long table2-least table2-most table3 own-share",
        "compfl": "table2 table2-budgets table3 table5 figure4 figure5 figure6 figure7 long heads choices",
    }
    assert set(TABLES) == {f"{paper}-{name}" for paper, names in expected.items() for name in names.split()}


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_every_column_and_row_is_an_experiment_in_both_forms(table: Table) -> None:
    for column in table.columns.values():
        assert {column.preset, column.small or column.preset} <= presets().keys()
        forms = [{fingerprint(j.experiment) for j in table.jobs(column, form, (0,), [], OUT)} for form in (False, True)]
        assert forms[0].isdisjoint(forms[1]), f"{table.name}/{column.name}: its small form is the whole one"
        jobs = table.jobs(column, True, (0, 1), [], OUT)
        assert len({job.folder for job in jobs}) == len(jobs) == 2 * len(table.rows)


@pytest.mark.parametrize("is_small", [False, True])
@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_no_two_rows_are_the_same_run(table: Table, is_small: bool) -> None:
    """But for compfl-choices, where either answer to a question is a row, and one of them is what is done anyway."""
    for column in table.columns.values():
        found = Counter(fingerprint(job.experiment) for job in table.jobs(column, is_small, (0,), [], OUT))
        if table.name == "compfl-choices":
            assert sum(many > 1 for many in found.values()) == 1, "more than the row 'as it is' is there twice"
        else:
            assert set(found.values()) == {1}, column.name


def test_compfl_is_as_printed_in_full_and_ours_in_the_small_form() -> None:
    """Except for the epochs of heads, the same for all rows of Table 2, and the teachers, which are the paper's."""
    printed = {"per_feature": False, "reinit": True, "kl": "printed", "teachers": "held", "adapt_epochs": 10}
    ours = {"per_feature": True, "reinit": False, "kl": "usual", "teachers": "held", "adapt_epochs": 10}
    for column in TABLES["compfl-table2"].columns:
        for is_small, expected in ((False, printed), (True, ours)):
            found = of_row("compfl-table2", column, "CompFL", is_small)
            assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize("table", ["mapl-table1", "mapl-table5", "mapl-table9"])
def test_the_baselines_of_mapl_take_nothing_over_from_it(table: str) -> None:
    """FedClassAvg has a temperature, too: it is not the paper's MAPL's in one form, and our MAPL's in the other."""
    for column in TABLES[table].columns:
        assert {of_row(table, column, "FedClassAvg", is_small)["tau"] for is_small in (False, True)} == {0.5}


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_every_figure_is_a_number_or_absent(table: Table) -> None:
    labels = [row.label for row in table.rows]
    assert len(set(labels)) == len(labels)
    assert all(label.isascii() and "," not in label for label in labels), "--only needs words that one can type"
    assert table.value in FIGURES
    assert table.against in ("", *labels)
    for row in table.rows:
        assert row.paper.keys() <= table.columns.keys()
        for figure in row.paper.values():
            assert FIGURE.fullmatch(figure), f"{table.name}, {row.label}: {figure}"
            assert (number(figure) is None) == (figure == "")
        for figure in row.paper.values() if table.value in ("last", "selected", "precision", "recall") else ():
            assert number(figure) is None or 1 < (number(figure) or 0) <= 100, "in per cent"


def test_no_figure_of_a_paper_is_lost() -> None:
    """Each label of figures is that of a row, or one says that it is printed under it."""
    for file in (Path(papers.__file__).parents[1] / "papers").glob("*.toml"):
        for name, given in tomllib.loads(file.read_text(encoding="utf-8"))["tables"].items():
            figures = [
                (block["columns"][i], cell)
                for block in given.get("figures", ())
                for label, cells in block.items()
                if label != "columns"
                for i, cell in enumerate(cells)
                if cell
            ]
            shown = {(column, cell) for row in TABLES[name].rows for column, cell in row.paper.items()}
            assert set(figures) <= shown, name


def test_a_row_may_have_the_figures_of_another_label_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper has one MAPL, of which there may be two forms here."""
    read = {
        "paper": "P (2024)", "spread": "over seeds", "left_out": "nothing.",
        "rows": {
            "Local": "method.name=local", "PANM": {"words": "method.metric=grad", "printed": ""},
            "PANM (paper)": {"words": "method.metric=loss", "printed": "PANM"},
        },
        "tables": {
            "t": {
                "about": "T.", "rows": ["Local", "PANM (paper)", "PANM"], "columns": {"digits": "rounds=2"},
                "preset": "panm-digits",
                "figures": [{"columns": ["digits"], "Local": ["80.00 ±1.00"], "PANM": ["90.00"]}],
            }
        },
    }  # fmt: skip
    monkeypatch.setattr(papers, "_files", lambda: [read])
    monkeypatch.setattr(papers, "tables", papers.tables.__wrapped__)
    made = {(label, 0): summary(0.85) for label in ("Local", "PANM (paper)", "PANM")}
    found = there(tmp_path, "t/digits", made, small=False)
    head, *body = rows(found)
    assert [[*line[:3], line[head.index("difference")]] for line in body] == [
        ["Local", "80.00 ±1.00", "85.00", "+5.00"],
        ["PANM (paper)", "90.00", "85.00", "-5.00"],
        ["PANM", "", "85.00", ""],
    ]
    assert "PANM          " in aligned(rows(found))
    section = parsed(page([(found, "line")]))[0][Place("t", "digits", small=False)]
    assert section.cells["PANM"]["paper"] == ""
    assert section.cells["PANM (paper)"]["paper"] == "90.00"
    only = papers.find("t/digits")[0].jobs(found.column, False, (0,), (), tmp_path, ["PANM (paper)"])
    assert [job.variant.label for job in only] == ["PANM (paper)"]
    assert len({job.folder for job in found.table.jobs(found.column, False, (0,), (), tmp_path)}) == 3


def test_the_list_names_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "list"]) == OK
    told = capsys.readouterr().out
    for table in TABLES.values():
        assert f"  {table.name}: {table.about}" in told
        assert set(table.columns) <= set(re.split(r"[\s,]+", told))


# What rows run, against the same experiments said directly.


@pytest.mark.parametrize(
    ("table", "column", "label", "preset", "words"),
    [
        ("mapl-table9", "scenario2", "pFedSim", "mapl-scenario2-small",
         ["model.zoo=resnet8", "method.name=pfedsim", "method.t_warm=20"]),
        ("mapl-table1", "scenario3-mnist", "FedProto", "mapl-scenario3-small",
         ["data.name=mnist", "method.name=fedproto", "method.lam=0.1"]),
        ("fedpae-table1", "cifar10-0.3", "FedGH", "fedpae-cifar10-small",
         ["data.alpha=0.3", "method.name=fedgh", "model.d_z=64"]),
        ("compfl-figure7", "classes3", "walks p=0.6", "compfl-cifar10-small",
         ["data.classes_per_peer=3", "method.setting=device-by-device", "rounds=209", "evaluate.every=19",
          "graph.kind=erdos-renyi", "graph.p=0.6"]),
        ("panm-table2", "cifar10", "Random", "panm-cifar10-short", ["method.name=gossip"]),
        # the column's k is Random's, too; its l, t1 and tau are not Random's to have
        ("panm-table4", "l20-k10", "Random", "panm-cifar10-short",
         ["data.train=100", "method.name=gossip", "method.k=10"]),
    ],
)  # fmt: skip
def test_a_row_runs_what_it_should(table: str, column: str, label: str, preset: str, words: list[str]) -> None:
    assert small(table, column, label) == fingerprint(load(preset, [*words, "baseline=", "seed=1"]))


@pytest.mark.parametrize(
    ("table", "column", "as_small", "threshold"),
    [
        ("panm-table2", "cifar10", False, 15), ("panm-table2", "mnist", False, 8), ("panm-table2", "cifar10", True, 2),
        ("panm-table4", "l20-k10", False, 30), ("panm-table3", "rotation4", True, 3),
    ],
)  # fmt: skip
def test_pens_has_the_threshold_of_panms_paper(table: str, column: str, as_small: bool, threshold: int) -> None:
    """ceil(T1 (l + k) / n): 100 * 15 / 100; 100 * 15 / 200 = 7.5; 8 * 15 / 100 = 1.2; 100 * 30 / 100; 8 * 9 / 24."""
    jobs = TABLES[table].jobs(TABLES[table].columns[column], as_small, (0,), [], OUT, ["PENS"])
    [e] = [job.experiment for job in jobs if job.variant.label == "PENS"]
    assert isinstance(e.method, PENS)
    assert e.method.threshold(e.peers - 1) == threshold


def test_panm_as_printed_is_a_row_and_a_preset() -> None:
    table = TABLES["panm-table2"]
    for name, column in table.columns.items():
        [job] = table.jobs(column, False, (0,), [], OUT, ["PANMLoss (as printed)"])
        printed = load(f"panm-{name}-printed", ["seed=0"])
        assert fingerprint(job.experiment) == fingerprint(printed)
        assert (printed.method.similarity, printed.method.em) == ("inverse", "printed")  # type: ignore[attr-defined]


def test_one_run_serves_several_tables() -> None:
    mapl = small("mapl-table1", "scenario1", "MAPL (paper)")
    assert small("mapl-table2", "scenario1", "g-c-u") == mapl
    assert small("mapl-table3", "scenario1", "S gamma l2") == mapl
    assert small("mapl-table4-messages", "scenario1", "MAPL") == mapl
    assert small("mapl-table5", "scenario1-10", "MAPL (paper)") == mapl
    assert small("mapl-table6", "scenario1", "1 step") == mapl
    assert small("mapl-table6", "scenario1", "2 steps") != mapl


def of_row(table: str, column: str, label: str, is_small: bool) -> dict[str, Any]:
    """The parameters of a row's method, and the ReLU and the blur beside them."""
    (job,) = TABLES[table].jobs(TABLES[table].columns[column], is_small, (1,), [], OUT, [label])
    e = job.experiment.tables()
    return {**e["method"], "relu": e["model"]["relu"], "blur": e["data"]["blur"]}


@pytest.mark.parametrize("is_small", [False, True])
@pytest.mark.parametrize(
    ("table", "column", "plus"),
    [("mapl-table1", "scenario1", ""), ("mapl-table5", "scenario2-10", ""), ("mapl-table9", "scenario4", ""),
     ("mapl-table9", "scenario1", "+")],
)  # fmt: skip
def test_mapl_is_there_as_in_the_paper_and_as_ours_in_both_forms(
    table: str, column: str, plus: str, is_small: bool
) -> None:
    """Whatever the presets of the two forms say of it."""
    chosen = ("tau", "tau_proto", "losses", "graph_step", "likeness", "keep_own", "revisit")
    paper, ours = (of_row(table, column, f"MAPL{plus}{of}", is_small) for of in (" (paper)", ""))
    assert [paper[key] for key in chosen] == [100.0, 1.0, "paper", "projected", "rows", False, 0]
    assert [ours[key] for key in chosen] == [getattr(MAPL(), key) for key in chosen]
    rest = paper.keys() - {*chosen}
    assert {key: paper[key] for key in rest} == {key: ours[key] for key in rest}


def test_the_full_form_of_mapls_rows_is_that_of_the_presets() -> None:
    for label, preset in (("MAPL (paper)", "mapl-scenario1"), ("MAPL (authors)", "mapl-scenario1-authors")):
        e = load(preset).tables()
        of_preset = {**e["method"], "relu": e["model"]["relu"], "blur": e["data"]["blur"]}
        assert of_row("mapl-table1", "scenario1", label, is_small=False) == of_preset


@pytest.mark.parametrize("table", ["mapl-table2", "mapl-table3", "mapl-table4", "mapl-table4-messages", "mapl-table6"])
def test_the_ablations_are_of_the_papers_form(table: str) -> None:
    assert "MAPL (paper)" in TABLES[table].remark
    for is_small in (False, True):
        for row in TABLES[table].rows:
            found = of_row(table, "scenario2", row.label, is_small)
            assert (found["tau"], found["tau_proto"], found["likeness"], found["revisit"]) == (100.0, 1.0, "rows", 0)


def test_the_users_words_win_but_for_what_a_row_says_of_its_method() -> None:
    table = TABLES["compfl-figure7"]
    words = ["rounds=2", "method.warmup=1", "method.setting=server"]
    jobs = table.jobs(table.columns["classes3"], True, (0,), words, OUT)
    found = {job.variant.label: job.experiment for job in jobs}
    assert {e.rounds for e in found.values()} == {2}
    assert {e.tables()["method"]["warmup"] for e in found.values()} == {1}
    assert found["walks p=0.6"].tables()["method"]["setting"] == "device-by-device"
    plain = table.jobs(table.columns["classes3"], True, (0,), [], OUT)
    assert not {job.folder for job in jobs} & {job.folder for job in plain}


@pytest.mark.parametrize("word", ["seed=3", "method.name=local", "baseline=local"])
def test_what_the_table_decides_is_not_the_users(word: str) -> None:
    table = TABLES["panm-table2"]
    with pytest.raises(ConfigError, match="--only"):
        table.jobs(table.columns["mnist"], True, (0,), [word], OUT)


def test_names_that_do_not_exist() -> None:
    with pytest.raises(ConfigError, match="panm-table2"):
        papers.find("panm-tabel2")
    with pytest.raises(ConfigError, match="cifar10"):
        papers.find("panm-table2/cifar")
    table = TABLES["panm-table2"]
    with pytest.raises(ConfigError, match="Local"):
        table.jobs(table.columns["mnist"], True, (0,), [], OUT, ["local"])
    assert [column.name for column in papers.find("panm-table2/cifar10")[1]] == ["cifar10"]
    assert len(papers.find("mapl-table1")[1]) == 20
