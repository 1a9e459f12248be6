"""README's table of all methods: its words are the code's, and one command makes it from a comparison."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from docs_support import ROOT

from coterie.methods import METHODS

sys.path.insert(0, str(ROOT / "docs" / "site"))
import measured
import side_by_side


def test_what_readme_says_of_each_method_is_what_the_code_says() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## The methods, side by side")[2]
    rows = measured.cells(text.partition("\n## ")[0])
    names = [name.split("`")[1] for name in rows]
    assert sorted(names) == sorted(METHODS)
    for name, row in zip(names, rows.values(), strict=True):
        assert tuple(row[head] for head in side_by_side.HEADS[:4]) == side_by_side.described(name)


def test_the_rows_are_made_from_a_comparison(tmp_path: Path) -> None:
    lines = [
        {"key": "fedpae", "last": {"mean": 0.84012, "half": 0.0204}, "hurt": 0.35, "bytes": 7_470_000.0},
        {"key": "local", "last": {"mean": 0.8234, "half": None}, "hurt": None, "bytes": 0.0},
    ]
    (tmp_path / "comparison.json").write_text(json.dumps({"blocks": [{"title": "", "lines": lines}]}))
    script = ROOT / "docs" / "site" / "side_by_side.py"
    made = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, check=True).stdout
    summary = METHODS["fedpae"].summary
    assert made.splitlines() == [
        "| method | in one line | server | several architectures | accuracy | hurt | exchanged |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        f"| [`fedpae`](docs/methods/fedpae.md) | {summary} | no | any model | 84.0 ±2.0 | 35% | 7.47 MB |",
        "| [`local`](docs/methods/local.md) | train alone; nothing is exchanged | no | yes | 82.3 | – | 0 B |",
    ]
