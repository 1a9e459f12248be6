"""What the tables of papers have in common: run what is missing, and print ours beside the paper's figures."""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coterie import experiment, running
from coterie.errors import CoterieError
from coterie.experiment import Experiment

STUDENT_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # two-sided, by degrees of freedom
Summary = dict[str, Any]


# Columns that only some tables have.
MORE: dict[str, Callable[[Summary], float | None]] = {
    "own share": lambda s: s.get("beside", {}).get("own_share"),
    "least change": lambda s: s.get("beside", {}).get("alone", {}).get("change", {}).get("least"),
    "most change": lambda s: s.get("beside", {}).get("alone", {}).get("change", {}).get("most"),
    "mixture": lambda s: _percent(s.get("beside", {}).get("mixture", {}).get("mean")),
    "helped": lambda s: s.get("helped"),
    "idle": lambda s: s.get("idle", {}).get("mean"),
}


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


@dataclass(frozen=True)
class Row:
    """A line of a table: what to run, and what the paper says."""

    label: str
    words: tuple[str, ...]
    paper: str


def command(about: str, names: Mapping[str, Callable[[], tuple[str, Sequence[Row]]]]) -> None:
    """The command line that all tables have: NAME is one of `names`, each a preset and its rows."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(names))
    parser.add_argument("settings", nargs="*", metavar="key=value")
    parser.add_argument("--seeds", default="0,1,2", type=lambda text: [int(s) for s in text.split(",")])
    parser.add_argument("--out", type=Path, default=Path("runs/tables"))
    parser.add_argument("--only", default="", help="labels, comma-separated; default: all")
    parser.add_argument("--print", action="store_true", help="only the table of what is there")
    options = parser.parse_args()
    preset, rows = names[options.name]()
    rows = [row for row in rows if not options.only or row.label in options.only.split(",")]
    folders = {(r.label, s): options.out / f"{options.name}-{r.label}-{s}" for s in options.seeds for r in rows}
    if not options.print:
        for row in rows:
            for seed in options.seeds:
                words = ["baseline=", *row.words, f"seed={seed}", *options.settings]
                _run(preset, folders[row.label, seed], words)
    print(table(rows, {key: _summary(folder) for key, folder in folders.items()}))


def _run(preset: str, folder: Path, words: list[str]) -> None:
    wanted = experiment.load(preset, words)
    begun = (folder / "config.toml").exists()
    if begun and _what(running.of_folder(folder)) != _what(wanted):
        raise SystemExit(f"{folder} is a run with other settings: move it away, or choose another --out")
    if (folder / "summary.json").exists():
        return
    print(f"{folder.name} ...", flush=True)
    try:
        if begun:
            running.resume(folder)
        else:
            running.run(wanted, folder)
    except CoterieError as error:
        raise SystemExit(f"{folder}: {error}") from error


def _what(e: Experiment) -> Experiment:
    """All that the results depend on: not how many workers there are, nor what is written beside them."""
    return replace(e, engine=replace(e.engine, workers=1, checkpoint=0, models=True), baseline="")


def _summary(folder: Path) -> Summary | None:
    path = folder / "summary.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def table(rows: Sequence[Row], runs: Mapping[tuple[str, int], Summary | None]) -> str:
    head: tuple[str, ...] = (
        "method",
        "paper",
        "last",
        "validation-selected",
        "precision",
        "recall",
        "mass",
        "messages per peer",
    )
    more = {name: find for name, find in MORE.items() if any(find(run) for run in runs.values() if run)}
    head = (*head, "MB per peer", *more, "seconds", "seeds")
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in rows:
        done = [run for (label, _), run in sorted(runs.items()) if label == row.label and run]
        if not done:
            continue
        figures = [interval([100 * r["accuracy"][kind]["mean"] for r in done]) for kind in ("last", "selected")]
        scores = [
            _mean([r["neighbours"][k] for r in done if k in r.get("neighbours", {})], "{:.3f}") for k in head[4:7]
        ]
        messages = _mean([r["messages"]["total"] / r["peers"] for r in done], "{:.0f}")
        megabytes = _mean([r["bytes"]["total"] / r["peers"] / 1e6 for r in done], "{:.1f}")
        seconds = _mean([r["seconds"] for r in done], "{:.0f}")
        others = [_mean([found for r in done if (found := find(r)) is not None], "{:.2f}") for find in more.values()]
        cells = [row.label, row.paper, *figures, *scores, messages, megabytes, *others, seconds, str(len(done))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _mean(values: Sequence[float], form: str) -> str:
    return form.format(statistics.mean(values)) if values else ""


def interval(values: Sequence[float]) -> str:
    """Mean and the half-width of its 95% confidence interval over seeds (Student's t)."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return f"{mean:.2f}"
    half = STUDENT_95[min(len(values) - 2, len(STUDENT_95) - 1)] * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:.2f} ±{half:.2f}"
