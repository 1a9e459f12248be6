"""Find the runs of tables: one run serves every table that needs it, whatever its folder's name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from coterie.comparing.plan import Job, fingerprint
from coterie.config.loading import from_tables
from coterie.config.sections import Experiment
from coterie.core.errors import CoterieError
from coterie.core.run_folder import RunFolder, runs_in
from coterie.reproducing import papers
from coterie.reproducing.records import Record
from coterie.running import simulated


def known(out: Path) -> dict[str, Path]:
    """The runs in a folder, by fingerprint; of equal runs, the finished one."""
    by_fingerprint: dict[str, Path] = {}
    for folder in (run.path for run in sorted(runs_in(out), key=RunFolder.is_finished)):
        try:
            by_fingerprint[fingerprint(simulated.of_folder(folder))] = folder
        except CoterieError:  # damaged, or with settings that no longer exist: not a run of these tables
            continue
    return by_fingerprint


def key(job: Job) -> str:
    """The key of the job's run."""
    return fingerprint(job.experiment)


def placed(jobs: Sequence[Job], known: dict[str, Path]) -> list[Job]:
    """Each job with the folder that holds its run; if there is none yet, the job's own folder is added to `known`."""
    return [replace(job, folder=known.setdefault(key(job), job.folder)) for job in jobs]


def asked_for() -> Callable[[Record], bool]:
    """A predicate: whether a record belongs to a run of some table, under any seed, in full or small form."""
    wanted = {
        _without_seed(job.experiment)
        for table in papers.tables().values()
        for column in table.columns.values()
        for small in (False, True)
        for job in table.jobs(column, small, (0,), (), Path())
    }
    return lambda record: _without_seed(from_tables(dict(record.settings))) in wanted


def _without_seed(e: Experiment) -> str:
    return fingerprint(replace(e, seed=0))
