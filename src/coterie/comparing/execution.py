"""Carry out a comparison: run what is missing, and write the table in every format."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from coterie.comparing import naming, plan, tables
from coterie.comparing.comparison import Comparison, gather
from coterie.comparing.naming import Presentation
from coterie.comparing.plan import Job, Variant
from coterie.comparing.watching import RunSteps
from coterie.comparing.workers import WorkerPool
from coterie.config.command_words import CommandWords, note, parse_words
from coterie.config.loading import DEMO, notices
from coterie.config.sections import DataSettings
from coterie.core.cores import machine_cores
from coterie.core.errors import ConfigError, DataError, RunError
from coterie.core.files import locked, write_whole
from coterie.core.formatting import count
from coterie.core.measured_metric import ACCURACY, SHARE
from coterie.core.run_folder import ComparisonFolder
from coterie.core.task import CLASSIFICATION
from coterie.data import available
from coterie.data.catalog import OF_NUMBERS
from coterie.metrics import METRICS, find
from coterie.metrics.evaluation import AUTO
from coterie.report.comparison import write_comparison


@dataclass(frozen=True)
class ComparisonOrder:
    """What to compare, and where the runs are. The command line and Python create the same order."""

    kind: str  # compare or sweep
    request: CommandWords
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...] = (0, 1, 2)
    over: tuple[str, ...] = ()  # the axes of a sweep
    local: bool = True  # whether to add `local` as a baseline
    target: float | None = None
    folder: Path | None = None
    labels: Mapping[str, str] = field(default_factory=dict)  # the user's names of rows
    columns: tuple[str, ...] = ()  # of the LaTeX and Markdown tables; empty: all

    def __post_init__(self) -> None:
        if not self.seeds or any(seed < 0 for seed in self.seeds):
            raise ConfigError(f"--seeds {self.seeds}: give one or more seeds, none negative")
        object.__setattr__(self, "seeds", tuple(dict.fromkeys(self.seeds)))

    @cached_property
    def out(self) -> Path:
        return self.folder or plan.default_folder(self.kind, self.request.experiment, self.request.settings)

    @property
    def command(self) -> str:
        """The command line that creates this table."""
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
        """All variants, including the `local` baselines if requested."""
        return plan.with_local(self.variants) if self.local else self.variants

    @property
    def presentation(self) -> Presentation:
        return Presentation(
            naming.checked_labels(self.labels, self.rows),
            tables.checked_columns(self.columns, self._metrics()),
            plan.places(self.variants, self.over),
        )

    def _metrics(self) -> set[str]:
        """The names of metrics that may be columns: those of the package, and those that the experiments name."""
        given = {name for job in self.jobs() for name in job.experiment.evaluate.metrics} if self.columns else set()
        return {*METRICS, *(find(name).name for name in given)}

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
    """Compare methods on the same splits: run what is missing, and write the tables and the page.

    The same as `coterie compare`. A script that calls it needs ``if __name__ == "__main__":``, because each run is a
    separate process.

    Args:
        methods: names such as ``"panm"``, with parameters after commas: ``"panm,metric=grad"``; or ``"file.py:Class"``.
        experiment: a preset, or the path of a .toml file.
        words: `key=value` settings for all of them.
        seeds: each method runs once per seed.
        out: the folder; default: below ``runs/``.
        at_once: the number of runs at a time; 0: one per core.
        target: for the column "time to target", in the unit of the main metric; default: that of training alone.
        local: whether `local` runs as the baseline.
        run: whether missing runs are run; False only reads those that exist.
        labels: display names by method: ``{"panm": "PANM (ours)"}``.
        columns: of the LaTeX and Markdown tables: ``["last", "bytes"]``.

    Returns:
        The comparison: its rows, and the differences between methods.

    Raises:
        RunsFailed: some runs failed; it has the reasons, and the comparison of the others.
        CoterieError: a method or setting is wrong.
    """
    request = parse_words([*methods, str(experiment), *words], with_methods=True)
    folder = None if out is None else Path(out)
    order = ComparisonOrder(
        "compare", request, tuple(plan.methods(request)), tuple(seeds), (), local, target, folder, labels or {},
        tuple(columns),
    )  # fmt: skip
    comparison, failed = run_comparison(order, at_once, run)
    if comparison.blocks:
        write(comparison, order.out, order.command)
    if failed:
        raise RunsFailed(failed, comparison)
    if not comparison.blocks:
        raise RunError(f"{order.out} has no run of this comparison yet: call it with run=True")
    return comparison


class RunsFailed(RunError):  # noqa: N818 (the name says what happened)
    """Some runs of a comparison failed: `failed` has the reasons by name, `found` the comparison of the others."""

    def __init__(self, failed: Mapping[str, str], found: Comparison) -> None:
        super().__init__("; ".join(f"{name} failed: {reason}" for name, reason in failed.items()))
        self.failed, self.found = failed, found


def run_comparison(
    order: ComparisonOrder, at_once: int = 0, run: bool = True, plain: bool = True
) -> tuple[Comparison, dict[str, str]]:
    """Run what is missing (only if `run`). Returns the comparison of all finished runs, and failures by name."""
    shown, jobs = order.presentation, order.jobs()
    _check_target(order.target, jobs)
    note(notices(job.experiment for job in jobs))
    naming.names(jobs, shown.labels)  # fail before hours of runs if two rows share a name
    failed = run_jobs(jobs, order.out, at_once, plain) if run else {}
    comparison = gather(order.request.experiment, order.request.settings, jobs, order.target, shown)
    remedy = "" if run else ". To run them again, omit --print (in Python: run=True)"
    note(f"OUTDATED: {line}{remedy}" for line in comparison.outdated)
    return comparison, failed


def _check_target(target: float | None, jobs: Sequence[Job]) -> None:
    """A target must be a possible value of the main metric, as far as the settings say which one that is."""
    if target is None or 0 < target <= 1:
        return
    by_class = [job.experiment for job in jobs if _surely_classifies(job.experiment.data)]
    for select in sorted({experiment.evaluate.select for experiment in by_class}):
        metric = METRICS.get(ACCURACY.name if select == AUTO else select)
        if metric is not None and metric.unit == SHARE:
            raise ConfigError(
                f"--target {target} is no {metric.label}: give a fraction of 1, such as 0.85; or name the metric that "
                "it is a value of as evaluate.select"
            )


def _surely_classifies(data: DataSettings) -> bool:
    """Whether the task is known without reading the data: that of your own file follows from its labels."""
    named = data.name in available() and data.name not in OF_NUMBERS
    return data.task == CLASSIFICATION or (data.task == AUTO and named)


def run_jobs(
    jobs: Sequence[Job],
    out: Path,
    at_once: int = 0,
    plain: bool = True,
    title: str = "",
    done: Callable[[Job], None] | None = None,
) -> dict[str, str]:
    """Run the missing and outdated jobs, all in one folder. Returns the failures by name. `title` names their purpose.

    `done` is called for each run as soon as it finishes.
    """
    if at_once < 0:
        raise ConfigError(f"--jobs must be at least 1, not {at_once}")
    with _locked(out):
        statuses = [(job, plan.run_status(job)) for job in jobs]
        missing = [dataclasses.replace(job, overwrite=bool(s.outdated)) for job, s in statuses if not s.current]
        if not missing:
            return {}
        _check_data(missing)
        outdated = {job.name: status.outdated for job, status in statuses if status.outdated}
        note(f"runs again, because {line}" for line in plan.rerun_reasons(outdated))
        side_by_side = min(at_once or machine_cores(), len(missing))
        with RunSteps(missing, len(jobs) - len(missing), side_by_side, plain, title, done) as steps:
            return WorkerPool(missing, side_by_side, steps).run()


def _check_data(jobs: Sequence[Job]) -> None:
    """Fail once here instead of in every run."""
    on_disk = available()
    for name in sorted({job.experiment.data.name for job in jobs}):
        if not on_disk.get(name, True):
            raise DataError(f"{name} is not on this machine: run `coterie data get {name}`")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the folder: two comparisons in it would overwrite each other's runs."""
    folder.mkdir(parents=True, exist_ok=True)
    path = ComparisonFolder(folder).lock
    path.touch()
    with locked(path, "wait for it, or choose another --out", what=str(folder)):
        yield


def write(comparison: Comparison, out: Path, command: str) -> list[Path]:
    """Write the tables in every format, and the page with the curves. Returns the files."""
    files = ComparisonFolder(out)
    texts = {
        files.table("md"): tables.markdown(comparison, command),
        files.table("tex"): tables.latex(comparison, command),
        files.table("csv"): tables.values(comparison),
        files.record: json.dumps({"command": command, **_plain(comparison)}, indent=2) + "\n",
    }
    for path, text in texts.items():
        write_whole(path, text)
    head, rows = tables.all_rows(comparison)
    amounts = f"{len(comparison.folders)} variants, {count(len(comparison.seeds), 'seed')}"
    title = f"{Path(comparison.experiment).stem}: {amounts}"
    folders = {comparison.titles[label]: runs for label, runs in comparison.folders.items()}
    alone = {comparison.titles[label]: comparison.titles[local] for label, local in comparison.alone.items()}
    places = {comparison.titles.get(label, label): place for label, place in comparison.places.items()}
    write_comparison(files.report, title, folders, head, rows, tables.notes(comparison), command, alone, places)
    return [*texts, files.report]


def _plain(comparison: Comparison) -> dict[str, object]:
    blocks = [dataclasses.asdict(block) for block in comparison.blocks]
    runs = {label: [folder.name for folder in folders] for label, folders in comparison.folders.items()}
    return {
        "experiment": comparison.experiment, "settings": comparison.words, "seeds": comparison.seeds, "blocks": blocks,
        "missing": comparison.missing, "outdated": comparison.outdated, "runs": runs, "titles": comparison.titles,
        "alone": comparison.alone, "places": comparison.places,
    }  # fmt: skip
