"""Make the missing runs of a table, and record each as soon as it finishes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coterie.comparing.execution import run_jobs
from coterie.comparing.plan import Job, rerun_reasons
from coterie.config.command_words import note
from coterie.core.errors import RunError
from coterie.reproducing import records, results, runs


class Maker:
    """Makes runs in a folder and keeps their records in a file, if one is given."""

    def __init__(self, out: Path, record: Path | None, print_only: bool) -> None:
        self.out, self.record = out, record
        self.kept: records.Records = {}
        if record is not None:  # fail now, not after hours of runs, if the file cannot be written
            self.kept = records.read(record) if print_only else records.add(record, {})
        self.added = 0  # records of runs that existed before
        self._known = runs.known(out)

    def placed(self, jobs: Sequence[Job]) -> list[Job]:
        return runs.placed(jobs, self._known)

    def make(self, jobs: Sequence[Job], at_once: int, plain: bool, title: str) -> dict[str, str]:
        """Run jobs that have neither a current folder nor a current record. Returns the failures by name."""
        missing = {job.folder: job for job in jobs if not results.is_current(job, self.kept)}  # rows may share a run
        outdated = {job.name: why for job in missing.values() for why in results.outdated_record(job, self.kept)}
        note(f"runs again, because its record is outdated: {line}" for line in rerun_reasons(outdated))
        return run_jobs(list(missing.values()), self.out, at_once, plain, title, self._ended)

    def keep(self, jobs: Sequence[Job]) -> None:
        """Record all finished and current runs, also those made earlier."""
        if self.record is None:
            return
        self.added += self._add(jobs)

    def _add(self, jobs: Sequence[Job]) -> int:
        """Returns the number of new records."""
        assert self.record is not None
        current = {runs.key(job): one for job in jobs for one, why in results.record_of(job, self.kept) if not why}
        new = {key: record for key, record in current.items() if self.kept.get(key) != record}
        if new:
            self.kept = records.add(self.record, new)
        return len(new)

    def _ended(self, job: Job) -> None:
        if self.record is None:
            return
        try:
            self._add([job])
        except RunError as error:  # other runs continue: this run's folder remains, and recording is retried
            note([f"the record of {job.name} could not be kept yet: {error}"])
