"""The runs of a table: made where they are missing, and kept as records, each as soon as it has ended."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coterie.comparing.execution import carry_out
from coterie.comparing.plan import Job, why_again
from coterie.config.command_words import note
from coterie.core.errors import RunError
from coterie.reproducing import records, results, runs


class Maker:
    """Has the folder of the runs and, where there is one, the file of their records."""

    def __init__(self, out: Path, record: Path | None, print_only: bool) -> None:
        self.out, self.record = out, record
        self.kept: records.Records = {}
        if record is not None:  # a file that cannot be written must show now, and not after hours of runs
            self.kept = records.read(record) if print_only else records.add(record, {})
        self.added = 0  # records of runs that somebody else had made
        self._there = runs.known(out)

    def placed(self, jobs: Sequence[Job]) -> list[Job]:
        return runs.placed(jobs, self._there)

    def make(self, jobs: Sequence[Job], at_once: int, plain: bool, title: str) -> dict[str, str]:
        """Run what has neither a current folder nor a current record; returns what failed, by name."""
        once = {job.folder: job for job in jobs if not results.is_current(job, self.kept)}  # rows may share a run
        outdated = {job.name: why for job in once.values() for why in results.outdated_record(job, self.kept)}
        note(f"runs again, because its record is outdated: {line}" for line in why_again(outdated))
        return carry_out(list(once.values()), self.out, at_once, plain, title, self._ended)

    def keep(self, jobs: Sequence[Job]) -> None:
        """Records of those that are whole and current, whoever made them."""
        if self.record is None:
            return
        self.added += self._add(jobs)

    def _add(self, jobs: Sequence[Job]) -> int:
        """Returns how many were not in the file."""
        assert self.record is not None
        found = {runs.key(job): one for job in jobs for one, why in results.record_of(job, self.kept) if not why}
        new = {key: record for key, record in found.items() if self.kept.get(key) != record}
        if new:
            self.kept = records.add(self.record, new)
        return len(new)

    def _ended(self, job: Job) -> None:
        if self.record is None:
            return
        try:
            self._add([job])
        except RunError as error:  # the other runs go on: the folder of this one is there, and it is tried again
            note([f"the record of {job.name} is not kept yet: {error}"])
