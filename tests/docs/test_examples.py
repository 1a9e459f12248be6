"""What the pages tell the reader to run does run, in their order, in one folder a page.

Every `python` and `sh` block is run unless a comment right before it says why not; a `toml` block that begins with
`# file.toml` is that file, for the commands after it. Commands run in this process, for starting Python and torch takes
longer than they do.
"""

from __future__ import annotations

import itertools
import os
import re
import runpy
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from docs_support import PAGES, ROOT, blocks, name
from hospitals_support import write_hospitals

from coterie.cli import main
from coterie.data import catalog
from coterie.training.recording import Repeated

LANGUAGES = ("python", "sh", "toml")
HOSPITALS = "docs/tutorial-hospitals.md"
WITH_EXAMPLES = [page for page in PAGES if any(b.run and b.language in LANGUAGES for b in blocks(page))]
# A long page: its comparison has fewer seeds by default, and is as printed with the slow tests.
SHORTER = {"docs/tutorial-own-data.md": ("--seeds", "0,1"), HOSPITALS: ("--seeds", "0,1", "rounds=3")}
SET_UP = ("./scripts/setup && .venv/bin/coterie run", "./scripts/setup && ./scripts/test")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder with the examples in it, and whatever a run or an example sets put back."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Repeated, "USES_BEFORE_RECORDING", 1_000_000)  # pays in long runs alone; changes no number
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # so many threads a run takes by itself; tests share the machine
    before = dict(catalog.DOWNLOADED)
    yield tmp_path
    catalog.DOWNLOADED.clear()
    catalog.DOWNLOADED.update(before)
    torch.set_num_threads(1)


def save_if_named(text: str, ending: str) -> str:
    """A block that begins with `# file.py` is saved under that name; answers its first line."""
    first = text.split("\n", 1)[0]
    if re.fullmatch(rf"# [\w/.-]+{re.escape(ending)}", first):
        Path(first.removeprefix("# ")).write_text(text, encoding="utf-8")
    return first


def run_python(text: str) -> None:
    first = save_if_named(text, ".py")
    exec(compile(text, first, "exec", dont_inherit=True), {"__name__": "docs"})


def run_command(line: str, number: int, monkeypatch: pytest.MonkeyPatch, *more: str) -> None:
    command, *words = shlex.split(line)
    if command == "coterie":
        # By default a run's folder has the time in its name: two runs of one second would want the same.
        named = words[0] not in ("run", "up") or {"--out", "--resume"} & set(words)
        out = [] if named else ["--plain", "--out", f"runs/{number}"]
        more = more if words[0] == "compare" else ()
        assert main.main([*words, *more, *out]) == 0, f"failed: {line}"
    elif command == "python":
        monkeypatch.setattr(sys, "argv", words)
        runpy.run_path(words[0], run_name="__main__")
    else:
        pytest.fail(f"only coterie and python can be run here, not: {line}")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=name)
def test_examples_run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(page, monkeypatch, *SHORTER.get(name(page), ()))


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("page", SHORTER)
def test_long_examples_run_as_printed(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(ROOT / page, monkeypatch)


def run_page(page: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> None:
    if name(page) == HOSPITALS:
        write_hospitals(Path("hospitals"))
    number = itertools.count()
    for block in blocks(page):
        if block.run and block.language == "python":
            run_python(block.text)
        elif block.language == "toml":
            tomllib.loads(block.text)
            save_if_named(block.text, ".toml")
        elif block.run and block.language == "sh":
            for line in block.text.splitlines():
                run_command(line, next(number), monkeypatch, *more)


def test_readme_has_the_two_commands() -> None:
    excused = [b.text.strip() for b in blocks(ROOT / "README.md") if b.language == "sh" and not b.run]
    assert [text for text in excused if "scripts" in text] == list(SET_UP)


def test_examples_shown_are_the_files() -> None:
    shown: dict[str, str] = {}
    for block in [*blocks(ROOT / "CONTRIBUTING.md"), *blocks(ROOT / "docs/metrics.md")]:
        if block.text.startswith("# examples/"):
            file, text = block.text.split("\n", 1)
            shown[file.removeprefix("# ")] = text
    gossips = {"proximal_gossip", "median_gossip", "clipped_gossip", "reconstructing_gossip", "drifting_gossip"}
    assert set(shown) == {f"examples/{name}.py" for name in (*gossips, "cost_metric")}
    for file, text in shown.items():
        assert text == (ROOT / file).read_text(encoding="utf-8"), f"{file} and its page differ"
