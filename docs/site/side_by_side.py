"""Print README's table of all methods from the folder of its comparison.

python docs/site/side_by_side.py runs/compare-panm-digits-1a2b3c4d

Its command is beside the table in the README. Rows are in the comparison's order, by validation accuracy.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import regions

from coterie.core.formatting import NOTHING, size
from coterie.methods import METHODS, Method

HEADS = ("method", "in one line", "server", "several architectures", "accuracy", "hurt", "exchanged")


def described(name: str) -> tuple[str, str, str, str]:
    """The first columns: a method's properties, from the code."""
    kind = METHODS[name]
    page = next(p for p in sorted((regions.ROOT / "docs/methods").glob("*.md")) if name in regions.named(p))
    return f"[`{name}`](docs/methods/{page.name})", kind.summary, _server(kind), _architectures(kind)


def _server(kind: type[Method]) -> str:
    if kind.with_server is not Method.with_server:
        return "either"
    return "yes" if kind.server else "no"


def _architectures(kind: type[Method]) -> str:
    if kind.any_model:
        return "any model"
    if not kind.mixed:
        return "no"
    return "each apart" if kind.grouped and not kind.same_zoo else "yes"


def measured(line: Mapping[str, Any]) -> tuple[str, str, str]:
    """The last columns: a method's figures, from the comparison."""
    mean, half = 100 * line["last"]["mean"], line["last"]["half"]
    accuracy = f"{mean:.1f}" if half is None else f"{mean:.1f} ±{100 * half:.1f}"
    hurt = NOTHING if line["hurt"] is None else f"{line['hurt']:.0%}"
    return accuracy, hurt, size(round(line["bytes"]))


def table(comparison: Mapping[str, Any]) -> str:
    [block] = comparison["blocks"]  # all methods on the same data
    rows: list[Sequence[str]] = [(*described(line["key"]), *measured(line)) for line in block["lines"]]
    return regions.table(HEADS, rows)


def main() -> int:
    options = argparse.ArgumentParser(description="README's table of all methods, from a comparison's folder")
    options.add_argument(
        "folder", type=Path, help="the output folder of `coterie compare`, which has a comparison.json"
    )
    print(table(json.loads((options.parse_args().folder / "comparison.json").read_text(encoding="utf-8"))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
