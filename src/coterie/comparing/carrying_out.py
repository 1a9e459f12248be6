"""A comparison from beginning to end: run what is missing, and write the table in every form."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from coterie.command_line import Request
from coterie.comparing import plan, tables
from coterie.comparing.comparison import Comparison, gathered
from coterie.comparing.plan import Job, Variant
from coterie.comparing.watching import Board
from coterie.comparing.workers import Crew
from coterie.data import available
from coterie.errors import ConfigError, DataError, RunError
from coterie.experiment import DEMO
from coterie.files import write_whole
from coterie.report.comparison import write_comparison
from coterie.report.words import count


@dataclass(frozen=True)
class Order:
    """What is to be compared, and where the runs are."""

    experiment: str
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    words: tuple[str, ...]
    out: Path
    target: float | None = None

    def __post_init__(self) -> None:
        if self.target is not None and not 0 < self.target <= 1:
            raise ConfigError(f"--target {self.target} is not an accuracy: it is a fraction of 1, such as 0.85")

    def jobs(self) -> list[Job]:
        return plan.jobs(self.experiment, self.variants, self.seeds, self.words, self.out)


def compare(
    methods: Sequence[str],
    experiment: str = DEMO,
    words: Sequence[str] = (),
    *,
    seeds: Sequence[int] = (0, 1, 2),
    out: Path | None = None,
    at_once: int = 0,
    target: float | None = None,
) -> Comparison:
    """What `coterie compare` does, from Python. A script that calls it needs `if __name__ == "__main__":`, for runs
    are processes of their own."""
    request = Request(experiment, tuple(methods), tuple(words))
    variants = plan.with_local(plan.methods(request))
    place = out or plan.default_folder("compare", experiment, words)
    order = Order(experiment, tuple(variants), tuple(seeds), tuple(words), place, target)
    jobs = order.jobs()
    failed = carry_out(jobs, place, at_once)
    if failed:
        raise RunError("; ".join(f"{name}: {why}" for name, why in failed.items()))
    return gathered(experiment, words, jobs, target)


def carry_out(jobs: Sequence[Job], out: Path, at_once: int = 0, plain: bool = True) -> dict[str, str]:
    """Run what is missing of them, all in one folder; returns what failed, by name."""
    if at_once < 0:
        raise ConfigError(f"--jobs must be at least 1, not {at_once}")
    with _alone_in(out):
        missing = [job for job in jobs if not plan.is_done(job)]
        if not missing:
            return {}
        _check_data(missing)
        cores = os.cpu_count() or 1
        side_by_side = min(at_once or cores, len(missing))
        ready = [_with_workers(job, max(1, cores // side_by_side)) for job in missing]
        with Board(len(jobs), len(jobs) - len(missing), plain) as board:
            return Crew(ready, side_by_side, board).run()


def _check_data(jobs: Sequence[Job]) -> None:
    """Once, instead of in every run."""
    there = available()
    for name in sorted({job.experiment.data.name for job in jobs}):
        if not there.get(name, True):
            raise DataError(f"{name} is not on this machine: run `coterie data get {name}`")


def _with_workers(job: Job, workers: int) -> Job:
    """As many workers as cores are left for it: runs side by side must not fight for them. Results stay the same."""
    engine = dataclasses.replace(job.experiment.engine, workers=workers)
    return dataclasses.replace(job, experiment=dataclasses.replace(job.experiment, engine=engine))


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Two at work in one folder would write over each other's runs."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(f"somebody is at work in {folder} already: wait for it, or choose another --out") from None
        yield


def write(found: Comparison, out: Path, command: str) -> list[Path]:
    """The tables, in every form, and the page with the curves; returns the files."""
    forms = {
        "comparison.md": tables.markdown(found, command),
        "comparison.tex": tables.latex(found, command),
        "comparison.csv": tables.values(found),
        "comparison.json": json.dumps({"command": command, **_plain(found)}, indent=2) + "\n",
    }
    for name, text in forms.items():
        write_whole(out / name, text)
    head, rows = tables.all_rows(found)
    title = f"{Path(found.experiment).stem}: {len(found.folders)} variants, {count(len(found.seeds), 'seed')}"
    write_comparison(out / "report.html", title, found.folders, head, rows, tables.notes(found), command, found.alone)
    return [*(out / name for name in forms), out / "report.html"]


def _plain(found: Comparison) -> dict[str, object]:
    blocks = [dataclasses.asdict(block) for block in found.blocks]
    runs = {label: [folder.name for folder in folders] for label, folders in found.folders.items()}
    return {
        "experiment": found.experiment, "settings": found.words, "seeds": found.seeds, "blocks": blocks,
        "missing": found.missing, "runs": runs,
    }  # fmt: skip
