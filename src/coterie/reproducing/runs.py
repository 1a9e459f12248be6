"""Where the runs of tables lie: one run serves every table that needs it, whatever its folder is called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from coterie.comparing.plan import Job, fingerprint
from coterie.config.loading import from_tables
from coterie.config.sections import Experiment
from coterie.core.errors import CoterieError
from coterie.reproducing import papers
from coterie.reproducing.records import Record
from coterie.running import simulated


def known(out: Path) -> dict[str, Path]:
    """The runs that are in a folder, by what was run; of equal ones that which is done."""
    found: dict[str, Path] = {}
    folders = [config.parent for config in sorted(out.glob("*/config.toml"))]
    for folder in sorted(folders, key=lambda folder: (folder / "summary.json").exists()):
        try:
            found[fingerprint(simulated.of_folder(folder))] = folder
        except CoterieError:  # damaged, or with settings that there are no more: no run of these tables
            continue
    return found


def key(job: Job) -> str:
    """By which its run is known."""
    return fingerprint(job.experiment)


def placed(jobs: Sequence[Job], there: dict[str, Path]) -> list[Job]:
    """Each job in the folder that has that very run; where there is none yet, its own is noted in `there`."""
    return [replace(job, folder=there.setdefault(key(job), job.folder)) for job in jobs]


def asked_for() -> Callable[[Record], bool]:
    """Whether a record is of a run that some table asks for, with whatever seed, in full or in its small form."""
    wanted = {
        _but_for_the_seed(job.experiment)
        for table in papers.tables().values()
        for column in table.columns.values()
        for small in (False, True)
        for job in table.jobs(column, small, (0,), (), Path())
    }
    return lambda record: _but_for_the_seed(from_tables(dict(record.settings))) in wanted


def _but_for_the_seed(e: Experiment) -> str:
    return fingerprint(replace(e, seed=0))
