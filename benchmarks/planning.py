"""Accuracy of plans: plans three workloads, then runs them. Prints planned over actual, for docs/planning.md.

python benchmarks/planning.py [w1|w2|w3 ...]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from workloads import PRESET, ROUNDS, words

from coterie.cli.main import main as coterie
from coterie.cli.plan import compared
from coterie.config.loading import load
from coterie.planning.plan import plan
from coterie.report.summary import read_summary


def check(name: str, folder: Path) -> None:
    settings = words(name, folder)
    planned = plan(load(PRESET, settings))
    if coterie(["run", PRESET, *settings, "--plain", "--out", str(folder / name)]):
        raise SystemExit(f"{name}: the run failed")
    print(f"\n{name}: {compared(planned, read_summary(folder / name))}\n", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or ROUNDS:
            check(name, Path(folder))


if __name__ == "__main__":
    main()
