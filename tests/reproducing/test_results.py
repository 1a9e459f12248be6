"""What is printed of runs that are there, from summaries made by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from results_support import summary, there, write

from coterie.core.errors import RunError
from coterie.core.summary import Summary
from coterie.reproducing import papers, runs
from coterie.reproducing.figures import FIGURES, RowRun, change, finite
from coterie.reproducing.results import Results, behind, notes, number, results, rows

Cells = dict[str, dict[str, str]]


def cells(found: Results) -> Cells:
    head, *body = rows(found)
    return {line[0]: dict(zip(head[1:], line[1:], strict=True)) for line in body}


def test_ours_beside_the_papers_with_the_difference(tmp_path: Path) -> None:
    # Local's figure on MNIST is 82.57. Mean of 80, 81 and 82: 81; deviation 1, t 4.3027 for two degrees of freedom.
    made = {("Local", seed): summary(0.80 + seed / 100, 0.85) for seed in range(3)}
    found = there(tmp_path, "panm-table2/mnist", {**made, ("Random", 0): summary(0.9)})
    shown = cells(found)
    assert list(shown) == ["Local", "Random"]  # rows without runs are left out
    local = shown["Local"]
    assert (local["paper"], local["ours, last round"]) == ("82.57 ±0.28", "81.00 ±2.48")  # 4.3027 / sqrt(3)
    assert (local["ours, validation-selected"], local["difference"]) == ("85.00 ±0.00", "-1.57")
    assert (local["seeds"], local["± peers"], local["MB per peer"]) == ("3", "4.0", "1.5")
    assert "seconds" not in local
    assert local["messages per peer"] == "2,500"
    assert (shown["Random"]["ours, last round"], shown["Random"]["seeds"]) == ("90.00", "1")  # one seed: no interval
    assert not {"precision", "own share", "helped", "messages of prototypes"} & local.keys()  # nothing to say
    assert (found.done, found.wanted) == (4, 24)
    assert behind(found)[0].startswith(
        "Behind it: 4 of 24 runs (Local with seeds 0, 1 and 2; Random with seed 0), made on 20"
    )
    assert behind(found)[0].endswith(" with coterie 1.2.")
    assert "The paper's ±: the deviation over three seeds." in notes(found)
    assert "peers=50" in " ".join(notes(found))


def test_a_table_of_validation_selected_figures(tmp_path: Path) -> None:
    found = there(tmp_path, "fedpae-table1/cifar10-0.1", {("FedPAE", 0): summary(0.80, 0.883)})
    shown = cells(found)["FedPAE"]
    assert (shown["ours, last round"], shown["ours, validation-selected"]) == ("80.00", "88.30")
    assert shown["difference"] == "+1.00"  # 88.3 - 87.3
    assert "alone" not in shown


def test_one_s_own_models_alone_stand_beside_the_ensemble(tmp_path: Path) -> None:
    beside = {"beside": {"alone": {"mean": 0.7825}}}
    shown = cells(there(tmp_path, "fedpae-long/cifar10-0.5", {("FedPAE", 0): summary(0.80, 0.80) | beside}))["FedPAE"]
    assert (shown["paper"], shown["ours, validation-selected"], shown["alone"]) == ("77.4 ±2.6", "80.00", "78.25")


def test_a_table_of_something_else_than_accuracy(tmp_path: Path) -> None:
    scores = {"neighbours": {"precision": 0.9, "recall": 0.25}}
    found = there(tmp_path, "panm-table3-precision/label-swap4", {("PENS", 0): summary(0.4) | scores})
    shown = cells(found)["PENS"]
    assert (shown["paper"], shown["ours, precision"], shown["difference"]) == ("70.83 ±4.17", "90.0", "+19.2")
    assert shown["recall"] == "25.0"
    assert "ours, last round" not in shown
    found = there(tmp_path, "mapl-table4-messages/scenario1", {("MAPL", 0): summary(0.5)})
    shown = cells(found)["MAPL"]
    assert (shown["ours, messages of prototypes"], shown["difference"]) == ("4,000", "-97,000")  # of 101,000


def test_changes_are_peer_by_peer_from_the_same_seeds_local_ensemble(tmp_path: Path) -> None:
    made = {
        ("LocalEnsemble", 0): summary(0.6, per_peer=[0.5, 0.8, None, 0.0]),
        ("FedKD", 0): summary(0.6, per_peer=[0.6, 0.6, 0.9, 0.9]),  # +20% and -25%; the others have no measure
        ("FedKD", 1): summary(0.6, per_peer=[1.0, 1.0, 1.0, 1.0]),  # no local ensemble of this seed
        ("FedPAE", 0): summary(0.6, per_peer=[0.5, 0.9, None, None])
        | {"beside": {"alone": {"change": {"least": -0.5, "most": 0.5}}}},
    }
    least = cells(there(tmp_path, "fedpae-table2-least/cifar10-0.1", made))
    assert (least["FedKD"]["paper"], least["FedKD"]["ours, least change"]) == ("-9.6", "-25.0")
    assert least["FedKD"]["difference"] == "-15.4"
    assert (least["FedPAE"]["ours, least change"], least["FedPAE"]["most change"]) == ("+0.0", "+12.5")
    assert least["LocalEnsemble"]["ours, least change"] == "+0.0"
    most = cells(there(tmp_path, "fedpae-table2-most/cifar10-0.1", {}))  # the same runs, found under their names
    assert (most["FedKD"]["ours, most change"], most["FedKD"]["difference"]) == ("+20.0", "+10.4")


def test_only_has_the_row_to_compare_with(tmp_path: Path) -> None:
    table, (column,) = papers.find("fedpae-table2-least/cifar10-0.1")
    jobs = table.jobs(column, True, (0,), [], tmp_path, ["FML"])
    assert [job.variant.label for job in jobs] == ["LocalEnsemble", "FML"]


def test_without_the_papers_figure_there_is_no_difference(tmp_path: Path) -> None:
    shown = cells(there(tmp_path, "panm-table5/fashion-mnist-rotation2", {("IFCA (c=3)", 0): summary(0.8)}))
    assert (shown["IFCA (c=3)"]["paper"], shown["IFCA (c=3)"]["difference"]) == ("", "")
    found = there(tmp_path, "compfl-figure7/classes5", {("server", 0): summary(0.8) | {"helped": 0.31}})
    assert cells(found)["server"]["helped"] == "31"
    assert not any("±:" in note for note in notes(found))


def test_nothing_there(tmp_path: Path) -> None:
    found = there(tmp_path / "none", "panm-table2/mnist", {})
    assert (found.done, found.kept, found.wanted) == (0, 0, 24)
    assert len(rows(found)) == 1


def test_a_run_is_found_under_any_name_and_the_whole_one_wins(tmp_path: Path) -> None:
    table, (column,) = papers.find("panm-table2/mnist")
    job = table.jobs(column, True, (0,), [], tmp_path, ["Local"])[0]
    write(job, summary(0.7))
    job.folder.rename(tmp_path / "zz-from-elsewhere")
    write(job, summary(0.1))
    (job.folder / "summary.json").unlink()  # one under way, in the folder of its own name
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.toml").write_text("no = such key\n")
    (placed,) = runs.placed([job], runs.known(tmp_path))
    assert placed.folder == tmp_path / "zz-from-elsewhere"


def test_two_jobs_of_one_run_share_a_folder(tmp_path: Path) -> None:
    one, other = (
        papers.find(place)[0].jobs(papers.find(place)[1][0], True, (0,), [], tmp_path, [label])
        for place, label in (("mapl-table1/scenario1", "MAPL (paper)"), ("mapl-table6/scenario1", "1 step"))
    )
    assert one[0].folder != other[0].folder
    first, second = runs.placed([*one, *other], {})
    assert first.folder == second.folder == one[0].folder


def test_another_run_in_the_way(tmp_path: Path) -> None:
    table, (column,) = papers.find("panm-table2/mnist")
    job = table.jobs(column, True, (0,), [], tmp_path, ["Local"])[0]
    write(job, summary(0.7))
    config = job.folder / "config.toml"
    config.write_text(config.read_text().replace("rounds = 60", "rounds = 61"))
    with pytest.raises(RunError, match="other settings: move it away"):
        results(table, column, True, runs.placed([job], runs.known(tmp_path)), {})


@pytest.mark.parametrize(
    "hostile",
    [
        "", "[]", "{}", "null", '"text"', '{"accuracy": 3, "bytes": 1, "messages": 2, "over_time": 0, "validation": 1}',
        json.dumps(summary(0.5) | {"accuracy": {"last": "high"}}),
        json.dumps(summary(0.5) | {"accuracy": {"last": {"mean": None}}}),
    ],
)  # fmt: skip
def test_a_summary_that_is_none_is_named(tmp_path: Path, hostile: str) -> None:
    with pytest.raises(RunError, match="panm-table2-mnist-small-Local-0"):
        there(tmp_path, "panm-table2/mnist", {("Local", 0): hostile})


def test_numbers_that_are_none_leave_their_cells_empty(tmp_path: Path) -> None:
    odd = {
        "bytes": {"total": "many"}, "messages": [1], "peers": 0, "neighbours": {"precision": None, "recall": True},
        "beside": {"alone": 5, "own_share": float("nan")}, "idle": None, "helped": "often", "seconds": {},
    }  # fmt: skip
    shown = cells(there(tmp_path, "panm-table2/mnist", {("Local", 0): summary(0.5) | odd}))["Local"]
    assert set(shown) == {
        "paper", "ours, last round", "ours, validation-selected", "difference", "± peers", "seeds"
    }  # fmt: skip
    assert shown["ours, last round"] == "50.00"
    lists = summary(0.5) | {"accuracy": {"last": {"mean": 0.5}, "selected": {"per_peer": ["x", [], 0.5]}}}
    made = {("LocalEnsemble", 0): summary(0.5, per_peer=[0.5, 0.5, 0.4]), ("FML", 0): lists}
    shown = cells(there(tmp_path, "fedpae-table2-least/cifar10-0.1", made))["FML"]
    assert shown["ours, least change"] == "+25.0"  # of the third peer, 0.5 / 0.4


def test_figures_by_hand() -> None:
    run = summary(0.5) | {
        "neighbours": {"mass": 0.25}, "beside": {"own_share": 0.5, "mixture": {"mean": 0.625}}, "idle": {"mean": 0.125},
        "helped": 0.3,
    }  # fmt: skip
    of_row = RowRun(Summary.from_json(run), 0, {"least": -0.1, "most": 0.2})
    expected = {
        "last": "50.00", "selected": "50.00", "± peers": "4.0", "mass": "0.250", "own share": "50", "mixture": "62.50",
        "helped": "30", "idle": "12", "least change": "-10.0", "most change": "+20.0", "messages per peer": "2,500",
        "messages of prototypes": "4,000", "MB per peer": "1.5", "seconds": "7",
    }  # fmt: skip
    found = {name: (figure, figure.find(of_row)) for name, figure in FIGURES.items()}
    assert {n: f.written(v) for n, (f, v) in found.items() if v is not None} == expected
    assert [finite(value) for value in (3, None, math.nan, math.inf)] == [3.0, None, None, None]
    nobody, somebody = (Summary.from_json(summary(0.5, per_peer=[accuracy])) for accuracy in (None, 0.5))
    assert change(nobody, somebody) == {}
    assert [number(text) for text in ("-7.0", "101,000", "82.57 ±0.28", "")] == [-7.0, 101000.0, 82.57, None]
