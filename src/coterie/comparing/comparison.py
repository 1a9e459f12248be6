"""Collect the finished runs of a comparison from their folders into the lines of its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from coterie.comparing import naming
from coterie.comparing.naming import DEFAULT, Presentation
from coterie.comparing.plan import Job, Variant, local_twin, rerun_reasons, run_status
from coterie.comparing.statistics import Line, line, ranked
from coterie.core.errors import RunError
from coterie.core.events import read
from coterie.core.measured_metric import ACCURACY, MeasuredMetric
from coterie.core.run_folder import RunFolder
from coterie.core.summary import Summary
from coterie.report.summary import read_summary, summarise

NEEDED = {"bytes", "messages", "over_time", "validation"}


@dataclass(frozen=True)
class Block:
    """The variants that ran on the same splits, the best by validation first."""

    title: str  # the data settings of this block; "" where all blocks have the same
    lines: tuple[Line, ...]
    metrics: tuple[MeasuredMetric, ...] = (ACCURACY,)  # that some variant measured, the main one first

    @property
    def main(self) -> MeasuredMetric:
        return self.metrics[0]


@dataclass(frozen=True)
class Comparison:
    """The finished part of a requested comparison."""

    experiment: str
    words: tuple[str, ...]
    seeds: tuple[int, ...]
    blocks: tuple[Block, ...]
    missing: tuple[str, ...]  # runs that are not finished
    folders: Mapping[str, Sequence[Path]]  # the runs of each label, by seed
    # For each label, the label of its `local` baseline under the same settings.
    alone: Mapping[str, str] = field(default_factory=dict)
    outdated: tuple[str, ...] = ()  # runs whose inputs have changed since, and what changed
    presentation: Presentation = DEFAULT
    places: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # in a sweep's grid: key to value, by label

    def latex(self) -> str:
        """The table for LaTeX (with booktabs), as in comparison.tex."""
        from coterie.comparing import tables

        return tables.latex(self)

    def markdown(self) -> str:
        """The table for Markdown, as in comparison.md."""
        from coterie.comparing import tables

        return tables.markdown(self)

    @property
    def metrics(self) -> tuple[MeasuredMetric, ...]:
        """The metrics of its runs, the main one first."""
        return self.blocks[0].metrics if self.blocks else (ACCURACY,)

    @property
    def titles(self) -> dict[str, str]:
        """The title of each label in LaTeX and on pages."""
        return {entry.label: entry.title or entry.label for block in self.blocks for entry in block.lines}


def gather(
    experiment: str,
    words: Sequence[str],
    jobs: Sequence[Job],
    target: float | None = None,
    presentation: Presentation = DEFAULT,
) -> Comparison:
    """The comparison of the requested runs that are finished; some may be outdated."""
    statuses = [(job, run_status(job)) for job in jobs]
    done = {(job.variant.label, job.seed): job for job, status in statuses if status.done}
    runs: dict[str, dict[int, Summary]] = {}
    blocks: dict[Any, list[Variant]] = {}  # by the settings that determine the splits, except the seed
    for (label, seed), job in done.items():
        if label not in runs:
            blocks.setdefault((job.experiment.data, job.experiment.peers), []).append(job.variant)
        runs.setdefault(label, {})[seed] = summary(job.folder)
    metrics = metrics_of_runs(runs)
    names = naming.names(jobs, presentation.labels)
    labels = {key: label for key, (label, _) in names.items()}
    return Comparison(
        experiment,
        tuple(words),
        tuple(sorted({job.seed for job in jobs})),
        tuple(_block(variants, runs, names, metrics, target, len(blocks) > 1) for variants in blocks.values()),
        tuple(
            f"{labels[job.variant.label]}, seed {job.seed}"
            for job in jobs
            if (job.variant.label, job.seed) not in done
        ),
        {labels[key]: [done[key, seed].folder for seed in sorted(by_seed)] for key, by_seed in runs.items()},
        {
            labels[v.label]: labels[local_twin(v).label]
            for variants in blocks.values() for v in variants if local_twin(v).label in runs
        },
        tuple(rerun_reasons({job.name: s.outdated for job, s in statuses if s.done and s.outdated})),
        presentation,
        {labels[key]: place for key, place in presentation.places.items()},  # also those without a run
    )  # fmt: skip


def _block(
    variants: Sequence[Variant],
    runs: Mapping[str, Mapping[int, Summary]],
    names: Mapping[str, tuple[str, str]],
    metrics: tuple[MeasuredMetric, ...],
    target: float | None,
    titled: bool,
) -> Block:
    lines = [
        line(v.label, runs[v.label], runs.get(local_twin(v).label, {}), target, is_alone=v == local_twin(v))
        for v in variants
    ]
    data = [word for word in variants[0].words if word.startswith(("data.", "peers="))]
    entries = tuple(_named(entry, *names[entry.label]) for entry in ranked(lines, runs, metrics[0]))
    return Block(" ".join(data) if titled else "", entries, metrics)


def metrics_of_runs(runs: Mapping[str, Mapping[int, Summary]]) -> tuple[MeasuredMetric, ...]:
    """Every metric that some run measured, the main one first; raises RunError if runs have different main ones."""
    mains: dict[str, str] = {}  # to the first run with it
    found: dict[str, MeasuredMetric] = {}
    for label, by_seed in runs.items():
        for seed, run in by_seed.items():
            mains.setdefault(run.main_metric.name, f"{label}, seed {seed}")
            found |= {metric.name: metric for metric in run.metrics if metric.name not in found}
    if len(mains) > 1:
        (one, first), (other, second), *_ = mains.items()
        raise RunError(
            f"these runs cannot be compared: the main metric of {first} is {one}, and that of {second} is {other}. "
            "Give all variants the same evaluate.select, and data of the same task"
        )
    return tuple(found.values()) or (ACCURACY,)


def _named(entry: Line, label: str, title: str) -> Line:
    return replace(entry, label=label, title=title, key=entry.label)


def summary(folder: Path) -> Summary:
    """The summary of a run, recomputed from its events if an older version wrote it."""
    figures = read_summary(folder)
    if not figures.keys() >= NEEDED or figures.test.last is None:
        figures = summarise(list(read(RunFolder(folder).events)), figures.seconds)
    if figures.test.last is None or figures.validation.last is None:
        raise RunError(f"{folder} cannot be compared: no peer of this run was ever measured")
    return figures
