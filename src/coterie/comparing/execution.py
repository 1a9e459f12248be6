"""A comparison from beginning to end: run what is missing, and write the table in every form."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from coterie.comparing import naming, plan, tables
from coterie.comparing.comparison import Comparison, gathered
from coterie.comparing.naming import Presentation
from coterie.comparing.plan import Job, Variant
from coterie.comparing.watching import RunSteps
from coterie.comparing.workers import Crew
from coterie.config.command_words import CommandWords, note, parse_words
from coterie.config.loading import DEMO, notices
from coterie.core.errors import ConfigError, DataError, RunError
from coterie.core.files import write_whole
from coterie.core.formatting import count
from coterie.data import available
from coterie.report.comparison import write_comparison


@dataclass(frozen=True)
class ComparisonOrder:
    """What is to be compared, and where the runs are. The command and Python make the same of the same request."""

    kind: str  # compare or sweep
    request: CommandWords
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...] = (0, 1, 2)
    over: tuple[str, ...] = ()  # what a sweep varies
    local: bool = True  # whether those who train alone run beside
    target: float | None = None
    folder: Path | None = None
    labels: Mapping[str, str] = field(default_factory=dict)  # the user's own names of rows
    columns: tuple[str, ...] = ()  # of the LaTeX and Markdown tables; none: all

    def __post_init__(self) -> None:
        if self.target is not None and not 0 < self.target <= 1:
            raise ConfigError(f"--target {self.target} is not an accuracy: it is a fraction of 1, such as 0.85")
        if not self.seeds or any(seed < 0 for seed in self.seeds):
            raise ConfigError(f"--seeds {self.seeds}: give one or more, none of them negative")
        object.__setattr__(self, "seeds", tuple(dict.fromkeys(self.seeds)))

    @cached_property
    def out(self) -> Path:
        return self.folder or plan.default_folder(self.kind, self.request.experiment, self.request.settings)

    @property
    def command(self) -> str:
        """The command line that makes this table."""
        words = (*self.request.methods, self.request.experiment, *self.request.settings)
        over = [word for axis in self.over for word in ("--over", axis)]
        target = [] if self.target is None else ["--target", str(self.target)]
        local = [] if self.local else ["--no-local"]
        seeds = ["--seeds", ",".join(map(str, self.seeds))]
        labels = [word for row, text in self.labels.items() for word in ("--label", f"{row}={text}")]
        columns = ["--columns", ",".join(self.columns)] if self.columns else []
        return shlex.join(["coterie", self.kind, *words, *over, *seeds, *target, *local, *labels, *columns])

    @property
    def rows(self) -> Sequence[Variant]:
        """All variants, with those who train alone where they run beside."""
        return plan.with_local(self.variants) if self.local else self.variants

    @property
    def presentation(self) -> Presentation:
        return Presentation(
            naming.checked_labels(self.labels, self.rows),
            tables.checked_columns(self.columns),
            plan.places(self.variants, self.over),
        )

    def jobs(self) -> list[Job]:
        return plan.jobs(self.request.experiment, self.rows, self.seeds, self.request.settings, self.out)


def compare(
    methods: Sequence[str],
    experiment: str = DEMO,
    words: Sequence[str] = (),
    *,
    seeds: Sequence[int] = (0, 1, 2),
    out: Path | None = None,
    at_once: int = 0,
    target: float | None = None,
    local: bool = True,
    run: bool = True,
    labels: Mapping[str, str] | None = None,
    columns: Sequence[str] = (),
) -> Comparison:
    """What `coterie compare` does, from Python: it runs what is missing (unless `run` is False), and writes the tables
    and the page. Where runs failed, RunsFailed has them, and the comparison of the others. `labels` are display names,
    by method: `{"panm": "PANM (ours)"}`; `columns` those of the LaTeX and Markdown tables: `["last", "bytes"]`.

    A script that calls it needs `if __name__ == "__main__":`, for runs are processes of their own.
    """
    request = parse_words([*methods, str(experiment), *words], with_methods=True)
    folder = None if out is None else Path(out)
    order = ComparisonOrder(
        "compare", request, tuple(plan.methods(request)), tuple(seeds), (), local, target, folder, labels or {},
        tuple(columns),
    )  # fmt: skip
    found, failed = carried_out(order, at_once, run)
    if found.blocks:
        write(found, order.out, order.command)
    if failed:
        raise RunsFailed(failed, found)
    if not found.blocks:
        raise RunError(f"{order.out} has no run of this yet: call it with run=True")
    return found


class RunsFailed(RunError):  # noqa: N818 (it says what happened)
    """Some runs of a comparison failed: `failed` says why, by name; `found` is the comparison of the others."""

    def __init__(self, failed: Mapping[str, str], found: Comparison) -> None:
        super().__init__("; ".join(f"{name} failed: {why}" for name, why in failed.items()))
        self.failed, self.found = failed, found


def carried_out(
    order: ComparisonOrder, at_once: int = 0, run: bool = True, plain: bool = True
) -> tuple[Comparison, dict[str, str]]:
    """Run what is missing, or only look (not `run`); what is there then, and what failed, by name."""
    shown, jobs = order.presentation, order.jobs()
    note(notices(job.experiment for job in jobs))
    naming.names(jobs, shown.labels)  # before hours of runs: two rows may have been given one name
    failed = carry_out(jobs, order.out, at_once, plain) if run else {}
    found = gathered(order.request.experiment, order.request.settings, jobs, order.target, shown)
    remedy = "" if run else ". Without --print (in Python, with run=True) they run again"
    note(f"OUTDATED: {line}{remedy}" for line in found.outdated)
    return found, failed


def carry_out(
    jobs: Sequence[Job],
    out: Path,
    at_once: int = 0,
    plain: bool = True,
    title: str = "",
    done: Callable[[Job], None] | None = None,
) -> dict[str, str]:
    """Run what is missing of them or outdated, all in one folder; returns what failed, by name. `title`: what for.

    `done` is called for each run that is whole, as soon as it is.
    """
    if at_once < 0:
        raise ConfigError(f"--jobs must be at least 1, not {at_once}")
    with _alone_in(out):
        standings = [(job, plan.standing(job)) for job in jobs]
        missing = [dataclasses.replace(job, anew=bool(how.outdated)) for job, how in standings if not how.current]
        if not missing:
            return {}
        _check_data(missing)
        outdated = {job.name: how.outdated for job, how in standings if how.outdated}
        note(f"runs again, because {line}" for line in plan.why_again(outdated))
        cores = os.cpu_count() or 1
        side_by_side = min(at_once or cores, len(missing))
        ready = [_with_workers(job, max(1, cores // side_by_side)) for job in missing]
        with RunSteps(missing, len(jobs) - len(missing), side_by_side, plain, title, done) as board:
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
    folders = {found.titles[label]: of_label for label, of_label in found.folders.items()}
    alone = {found.titles[label]: found.titles[local] for label, local in found.alone.items()}
    places = {found.titles.get(label, label): place for label, place in found.places.items()}
    write_comparison(out / "report.html", title, folders, head, rows, tables.notes(found), command, alone, places)
    return [*(out / name for name in forms), out / "report.html"]


def _plain(found: Comparison) -> dict[str, object]:
    blocks = [dataclasses.asdict(block) for block in found.blocks]
    runs = {label: [folder.name for folder in folders] for label, folders in found.folders.items()}
    return {
        "experiment": found.experiment, "settings": found.words, "seeds": found.seeds, "blocks": blocks,
        "missing": found.missing, "outdated": found.outdated, "runs": runs, "titles": found.titles,
        "alone": found.alone, "places": found.places,
    }  # fmt: skip
