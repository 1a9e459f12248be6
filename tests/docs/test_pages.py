"""The pages are whole: their links lead somewhere, and every method, parameter, key, dataset and module is told of."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from docs_support import PAGES, ROOT, name

from coterie import data
from coterie.cli.listing import needs
from coterie.config import parsing
from coterie.config.sections import ClockSettings, DataSettings, NetworkSettings
from coterie.core.events import PeerRound, RunStarted
from coterie.core.topology import TopologySettings
from coterie.methods import METHODS
from coterie.report.summary import summarise
from coterie.running.real_peer import PeerSettings

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
METHOD_PAGES = {page.name: page for page in PAGES if page.parent.name == "methods"}


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def without_code(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that the usual renderers make of a page's headings."""
    headings = HEADING.findall(without_code(text_of(page)))
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def page_of(method: str) -> Path:
    """The page with a line that says `method.name = "<method>"`."""
    said = re.compile(rf'^`method\.name = .*"{re.escape(method)}"', re.MULTILINE)
    found = [page for page in METHOD_PAGES.values() if said.search(text_of(page))]
    assert len(found) == 1, f'{method}: exactly one page of docs/methods must begin with `method.name = "{method}"`'
    return found[0]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_resolve(page: Path) -> None:
    for link in LINK.findall(without_code(text_of(page))):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.is_relative_to(ROOT), f"{link} leaves the repository"
        assert path.exists(), f"{link}: there is no {path}"
        assert not anchor or anchor in anchors(path), f"{link}: {target or page.name} has no such heading"


PAGES_OF_SETTINGS = [
    ("data.md", DataSettings),
    ("clock.md", ClockSettings),
    ("graphs.md", TopologySettings),
    ("network.md", NetworkSettings),
    ("network.md", PeerSettings),
]


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_has_a_page_with_its_parameters(method: str) -> None:
    page = page_of(method)
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", text_of(page), re.MULTILINE))
    for field in dataclasses.fields(METHODS[method]):
        assert field.name in rows, f"{page.name} has no row for {field.name} in its table of parameters"
        default = parsing.literal(field.default)
        assert rows[field.name] == f"`{default}`", f"{page.name}: {field.name} is {default} by default"


@pytest.mark.parametrize("page", METHOD_PAGES.values(), ids=name)
def test_every_method_page_answers_the_same_questions(page: Path) -> None:
    if page.name == "index.md":
        return
    headings = re.findall(r"^## (.+)$", without_code(text_of(page)), re.MULTILINE)
    wanted = ["The idea", "What is exchanged", "What that reveals", "A round", "Parameters", "Paper", "Deviations"]
    for heading in [*wanted, "Measured"]:
        assert any(found.startswith(heading) for found in headings), f"{page.name} has no section '{heading}'"


def test_the_readme_and_the_list_agree_on_servers_and_architectures() -> None:
    words = {
        "yes": "mixed architectures", "no": "one architecture", "any model": "any models",
        "each apart": "several architectures, each averaged separately",
    }  # fmt: skip
    servers = {"yes": "with a server", "no": "without a server", "either": "with or without a server"}
    rows = re.findall(
        r"^\| \[`([\w+-]+)`\]\(docs/methods/.*? \| .*? \| (\w+) \| ([\w ]+) \|",
        text_of(ROOT / "README.md"),
        re.MULTILINE,
    )
    said = {method: f"{servers[server]}; {words[models]}" for method, server, models in rows}
    assert said == {method: needs(kind).rpartition("; ")[0] for method, kind in METHODS.items()}


def test_no_two_pages_have_one_title() -> None:
    titles = [
        HEADING.findall(text_of(page))[0] for page in PAGES if page.name != "index.md"
    ]  # index.md is README's twin
    assert sorted(titles) == sorted(set(titles))


def test_figures_of_the_choice_are_on_the_pages_that_it_names() -> None:
    """A row of figures names the page that they are from: if that page changes, so must the choice."""
    page, rows = ROOT / "docs/which-method.md", 0
    for line in text_of(page).splitlines():
        source = re.search(r"\[\w+, measured\]\((methods/[\w-]+\.md)#measured\) \|$", line)
        if source:
            rows += 1
            there = text_of(page.parent / source[1])
            for figure in re.findall(r"(?<=\| )\d[\d.,]*(?= \|)", line[: source.start()] + "|"):
                assert re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d])", there), (
                    f"{source[1]} has no {figure}: {line}"
                )
    assert rows > 5


def test_figures_of_the_small_form_and_those_without_records_are_marked_on_the_methods_pages() -> None:
    rows = 0
    for page in (ROOT / "docs/methods").glob("*.md"):
        for anchor, said in re.findall(
            r"^\| \[.*?\]\(\.\./reproduced\.md#(\S+)\)(.*?) \|", text_of(page), re.MULTILINE
        ):
            rows += 1
            assert ("-small-form" in anchor) == (", small form" in said), f"{page.name}: {anchor}"
            assert anchor.endswith("-without-records") == said.endswith(", without records"), f"{page.name}: {anchor}"
    assert rows > 20


@pytest.mark.parametrize(("page", "kind"), PAGES_OF_SETTINGS)
def test_every_key_is_on_its_page(page: str, kind: type) -> None:
    told = set(re.findall(r"`(?:\w+\.)?(\w+)`", text_of(ROOT / "docs" / page)))
    assert {f.name for f in dataclasses.fields(kind)} <= told


def test_every_dataset_and_partition_is_on_the_data_page() -> None:
    told = set(re.findall(r"^\| `([\w-]+)` \|", text_of(ROOT / "docs/data.md"), re.MULTILINE))
    assert {*data.available(), *data.PARTITIONS} <= told


def test_every_module_is_in_the_architecture() -> None:
    table = text_of(ROOT / "docs/architecture.md").split("## Where things live")[1].split("##")[0]
    told = set(re.findall(r"`(\w+)/?`", table))
    package = ROOT / "src/coterie"
    top = {path.stem for path in package.iterdir() if path.is_dir() or path.suffix == ".py"}
    listed = ("core", "engines", "simulation", "network", "running", "training")
    inside = {path.stem for part in listed for path in (package / part).glob("*.py")}
    assert (top | inside) - {"__init__", "__pycache__", "__main__", "presets", "papers", "py"} <= told


def test_every_field_of_a_summary_is_in_the_readme() -> None:
    beside = {"beside": {"alone": {"test": 0.5}}, "own_share": 1.0}
    notes = {"helped": 1.0, "neighbours": [1], "weights": {"0": 0.5, "1": 0.5}, **beside}
    record = PeerRound(0, 1, 1.0, validation=0.5, test=0.5, loss=1.0, bytes={"model": 8}, notes=notes)
    started = RunStarted("panm", 0, 2, 1, ["mlp", "mlp"], [5, 5], [[5], [5]], clusters=[0, 0])
    section = text_of(ROOT / "README.md").split("`summary.json` has these fields")[1].split("##")[0]
    told = {word.split(".")[0] for word in re.findall(r"`([\w.]+)`", section)}
    assert set(summarise([started, record], 1.0)) <= told


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_path_of_one_machine(page: Path) -> None:
    assert not re.search(r"(?<![\w.~])/(work|home|root|Users|tmp)/", text_of(page))
