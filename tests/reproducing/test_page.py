"""The page of all tables: which runs are behind each, what has no records, and what is only defined."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from results_support import summary, there

from coterie.cli.main import FAILED, OK, main
from coterie.core.errors import ConfigError
from coterie.core.formatting import markdown
from coterie.reproducing import page as pages
from coterie.reproducing import papers, records, runs, states
from coterie.reproducing.page import command, page
from coterie.reproducing.results import SOURCES, Results, behind, results, rows
from coterie.reproducing.sections import EARLIER, Place, Section, parsed
from coterie.reproducing.states import ONLY_DEFINED, State

ROOT = Path(__file__).parents[2]
MNIST = Place("panm-table2", "mnist", small=True)
KEPT = Path("kept.jsonl")


def recorded(out: Path, place: str, made: dict[tuple[str, int], Any]) -> Results:
    """As if there were records of all runs that are there."""
    found = there(out, place, made)
    return replace(found, behind=tuple(replace(run, kept=True) for run in found.behind), outdated=())


def every_row(place: str, accuracy: float) -> dict[tuple[str, int], Any]:
    return {(row.label, seed): summary(accuracy) for row in papers.find(place)[0].rows for seed in range(3)}


def test_a_section_has_the_commands_the_table_and_the_runs_behind_it(tmp_path: Path) -> None:
    whole = there(tmp_path, "panm-table2/mnist", {("Local", 0): summary(0.8)}, small=False)
    small = recorded(tmp_path, "panm-table2/mnist", {("Local", 0): summary(0.7)})
    lines = [command(whole, (0, 1, 2), []), command(small, (0, 1), ["rounds=3"])]
    assert lines[0] == "coterie reproduce panm-table2/mnist"
    assert lines[1] == "coterie reproduce panm-table2/mnist --small --seeds 0,1 rounds=3"
    text = page(list(zip([whole, small], lines, strict=True)), "", Path("docs/page.md"), Path("docs/kept.jsonl"))
    assert text.startswith("# The papers' tables, run again\n")
    assert "`coterie reproduce all --print --record docs/kept.jsonl --page docs/page.md`" in text
    found, without = parsed(text)
    assert list(found) == [replace(MNIST, small=False), MNIST]
    assert not without
    first, second = found.values()
    assert f"<!-- not run: takes hours -->\n```sh\n{lines[0]}\n```\n" in first.text
    assert not first.recorded
    assert "There are no records of these runs: `--record FILE` keeps them." in first.text
    assert f"```sh\n{lines[1]}\n{lines[1]} --print --record docs/kept.jsonl   # prints this" in second.text
    assert markdown(rows(small)) in second.text
    head, rule, row = markdown(rows(small)).splitlines()
    assert head.startswith("|  | paper | ours, last round | ours, validation-selected | difference | ± peers |")
    assert rule.count("---") == head.count("|") - 1 == row.count("|") - 1
    assert row.startswith("| Local | 82.57 ±0.28 | 70.00 | 70.00 | -12.57 |")
    assert second.text.endswith("\n\nRecords: [docs/kept.jsonl](kept.jsonl).")
    assert all(line in " ".join(second.text.split()) for line in behind(small))  # wrapped
    assert second.runs == (1, 24)
    assert text.endswith("\n")


def test_how_far_the_sources_are_known(tmp_path: Path) -> None:
    unknown = recorded(tmp_path, "panm-table2/mnist", {("Local", 0): summary(0.8), ("Random", 0): summary(0.8)})
    assert behind(unknown)[1:] == [
        "Versions and own files: not recorded for these runs, so it is not known whether they changed since."
    ]
    one, other = unknown.behind
    known = replace(one, record=replace(one.record, made_with={"torch": "2"}))
    mixed = replace(unknown, behind=(known, other), outdated=("torch 2 -> 3 since today: Local, seed 0",))
    assert behind(mixed)[1:] == [
        "Versions and own files: OUTDATED, torch 2 -> 3 since today: Local, seed 0.",
        "Versions and own files: not recorded for 1 of these runs, so it is not known whether they changed since.",
    ]
    assert behind(replace(unknown, behind=(known,)))[1:] == ["Versions and own files: unchanged when this was written."]


def test_figures_without_records_stay_until_recorded_runs_replace_them_row_by_row(tmp_path: Path) -> None:
    """A page of the older form, in which nothing says which runs are behind a table."""
    made = {("Local", 0): summary(0.8), ("Random", 0): summary(0.75)}
    old = there(tmp_path / "a", "panm-table2/mnist", made)
    table = markdown(rows(old))
    before = (
        "# Old\n\n## panm-table2/mnist, small form\n\nA note.\n4 of 21 runs are there.\n\n<!-- not run: takes hours -->"
        f"\n```sh\ncoterie reproduce\n```\n\n{table}\n\nMade with coterie 0.1.0; 2026-11-15 to 2026-11-16.\n"
    )
    nothing = recorded(tmp_path / "none", "panm-table2/mnist", {})
    first = page([(nothing, "line")], before)
    found, without = parsed(first)
    assert not found
    assert [section.heading for section in without] == ["panm-table2/mnist, small form, without records"]
    assert without[0].text == (
        f"Measured on 2026-11-15 to 2026-11-16 {EARLIER}\n\nA note. 4 of 21 runs were made.\n\n{table}"
    )
    assert f"[`mnist`](#{without[0].anchor}) | small form: without records |" in first
    assert page([(nothing, "line")], first) == first
    assert page([], first) == first  # also when other tables are written

    local = recorded(tmp_path / "b", "panm-table2/mnist", {("Local", 1): summary(0.7)})
    second = page([(local, "line")], first, record=KEPT)
    found, without = parsed(second)
    assert list(found[MNIST].cells) == ["Local"]
    assert list(without[0].cells) == ["Random"]
    assert "| small form: 1 of 24 runs; other rows without records |" in second

    whole = recorded(tmp_path / "c", "panm-table2/mnist", every_row("panm-table2/mnist", 0.6))
    third = page([(whole, "line")], second, record=KEPT)
    assert not parsed(third)[1]
    assert "## Without records" not in third
    assert "| small form: all 24 runs |" in third


def test_a_table_whose_records_are_gone_is_marked_so(tmp_path: Path) -> None:
    made = {("Local", 0): summary(0.8), ("Random", 0): summary(0.75)}
    before = page([(recorded(tmp_path / "a", "panm-table2/mnist", made), "line")], record=KEPT)
    assert not parsed(before)[1]
    one_left = recorded(tmp_path / "b", "panm-table2/mnist", {("Random", 1): summary(0.7)})
    once = page([(one_left, "line")], before, record=KEPT)
    again = page([(recorded(tmp_path / "none", "panm-table2/mnist", {}), "line")], once, record=KEPT)
    found, without = parsed(again)
    assert not found
    # Of Random there is the newer figure, of Local the older one.
    figures = {label: cells["ours, last round"] for section in without for label, cells in section.cells.items()}
    assert figures == {"Random": "70.00", "Local": "80.00"}
    assert all(EARLIER in section.text for section in without)


def test_sections_come_in_the_papers_order_and_those_of_other_tables_stay(tmp_path: Path) -> None:
    mapl = recorded(tmp_path / "a", "mapl-table1/scenario1", {("Local", 0): summary(0.6)})
    panm = recorded(tmp_path / "a", "panm-table2/mnist", {("Local", 0): summary(0.8)})
    before = page([(panm, "first"), (mapl, "first")], record=KEPT)
    assert before.index("## mapl") < before.index("## panm")
    after = page([(recorded(tmp_path / "b", "panm-table2/mnist", {("Local", 1): summary(0.7)}), "second")], before)
    assert parsed(after)[0][Place("mapl-table1", "scenario1", small=True)].text in before
    assert "80.00" not in after


def test_a_section_of_a_table_that_is_gone_is_named(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("## panm-table0/mnist\n\n| a |\n| - |\n| b |\n")
    assert pages.write(path, []) == ["panm-table0/mnist is no longer a table: its section is left out"]
    assert "panm-table0" not in path.read_text(encoding="utf-8")


def test_the_index_has_every_column_and_what_is_left_out() -> None:
    text = states.index([])
    for table in papers.tables().values():
        line = next(line for line in text.splitlines() if line.startswith(f"| `{table.name}`. {table.about} |"))
        assert line.endswith(f"| *{ONLY_DEFINED}* |")
        assert re.findall(r"`([^`]+)`", line.split(" | ")[1]) == list(table.columns)
    assert all(f"Left out: {why}" in text for why in papers.left_out().values())
    assert len({table.paper for table in papers.tables().values()}) == len(papers.left_out()) == 4


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (State(), ""),
        (State(21, 21), "small form: all 21 runs"),
        (State(3, 15), "small form: 3 of 15 runs"),
        (State(3, 15, earlier=True), "small form: 3 of 15 runs; other rows without records"),
        (State(3, 3, recorded=False), "small form: all 3 runs, without records"),
        (State(earlier=True), "small form: without records"),
    ],
)
def test_states_in_words(state: State, told: str) -> None:
    assert state.in_words(small=True) == told
    assert state.in_words(small=False) == told.replace("small", "full")


def test_a_column_in_both_forms_leads_to_the_full_one() -> None:
    full, small = Section(replace(MNIST, small=False), "Behind it: 3 of 21 runs"), Section(MNIST, "Behind it: 1 run")
    found = states.index([full, small])
    assert "[`mnist`](#panm-table2mnist) | full form: 3 of 21 runs, without records; small form: 1 run, w" in found


def test_a_page_with_records_is_not_written_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("page.md")
    pages.check(path, None)  # there is none yet
    found = recorded(tmp_path, "panm-table2/mnist", {("Local", 0): summary(0.8)})
    pages.write(path, [(found, "line")], KEPT)
    with pytest.raises(ConfigError, match=r"page.md has tables with records.*--record FILE"):
        pages.check(path, None)
    pages.check(path, KEPT)
    before = path.read_bytes()
    assert main(["reproduce", "all", "--print", "--page", "page.md"]) == FAILED
    assert "--record FILE" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_a_page_that_cannot_be_written_shows_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a file").write_text("")
    Path("a folder").mkdir()
    for place in ("a file/page.md", "a folder", "/proc/page.md"):
        assert main(["reproduce", "panm-table2/mnist", "--small", "--print", "--page", place]) == FAILED
        assert f"{place} cannot be written" in capsys.readouterr().err
    assert not Path("runs").exists()
    pages.check(Path("new/folder/page.md"), None)
    pages.write(Path("new/folder/page.md"), [])


# The page that ships.


def ours() -> tuple[str, list[tuple[Results, str]]]:
    """The page, and what the records give of every column."""
    kept = records.read(ROOT / "docs" / "measured.jsonl")
    found = []
    for table in papers.tables().values():
        for column, small in product(table.columns.values(), (False, True)):
            jobs = runs.placed(table.jobs(column, small, papers.SEEDS, (), Path("no such folder")), {})
            of_column = results(table, column, small, jobs, kept)
            found.append((of_column, command(of_column, papers.SEEDS, ())))
    return (ROOT / "docs" / "reproduced.md").read_text(encoding="utf-8"), found


def without_sources(text: str) -> list[str]:
    """Whether sources changed since is as of the day on which the page was written."""
    return [line for line in text.splitlines() if not line.startswith(SOURCES)]


def test_the_page_that_ships_is_what_the_records_that_ship_give() -> None:
    """If not: coterie reproduce all --print --record docs/measured.jsonl --page docs/reproduced.md, scripts/docs."""
    text, found = ours()
    again = page(found, text, Path("docs/reproduced.md"), Path("docs/measured.jsonl"))
    assert without_sources(again) == without_sources(text)
    sections, without = parsed(text)
    assert all(section.recorded for section in sections.values())
    assert all("no records were kept" in section.text for section in without)


def test_the_command_below_a_table_prints_it_from_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    section = next(iter(parsed((ROOT / "docs" / "reproduced.md").read_text(encoding="utf-8"))[0].values()))
    line = re.search(r"^coterie (reproduce .* --record) (\S+) .*from the records$", section.text, re.MULTILINE)
    assert line is not None
    monkeypatch.chdir(tmp_path)  # without any folder of a run
    assert main([*line[1].split(), str(ROOT / line[2])]) == OK
    told = capsys.readouterr().out
    for label, cells in section.cells.items():
        shown = next(re.split(r"\s{2,}", text) for text in told.splitlines() if text.startswith(f"{label}  "))
        assert shown == [cell for cell in cells.values() if cell]
    # The lines that it names are those of the records.
    first = re.search(r"^Line numbers of their records: (.+?) (\d+)", told, re.MULTILINE)
    assert first is not None
    record = (ROOT / line[2]).read_text(encoding="utf-8").splitlines()[int(first[2]) - 1]
    assert '"seed": 0' in record
