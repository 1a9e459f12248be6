"""Show the progress of a comparison's runs in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coterie.comparing.plan import Job
from coterie.core.formatting import count
from coterie.terminal.steps import Steps


class RunSteps(Steps):
    """Each run is a step. `done` runs were finished before; `title` names their purpose; `on_done` is called for each
    run that finishes."""

    def __init__(
        self,
        jobs: Sequence[Job],
        done: int,
        side_by_side: int,
        plain: bool,
        title: str = "",
        on_done: Callable[[Job], None] | None = None,
    ) -> None:
        super().__init__(
            title or "all runs", {job.name: float(job.experiment.rounds) for job in jobs}, done=done, plain=plain
        )
        self.on_done = on_done
        already = f", {done} of them done" if done else ""
        self.plan = (
            f"{f'{title}: ' if title else ''}{count(len(jobs) + done, 'run')}{already}, {side_by_side} at a time"
        )

    def __enter__(self) -> RunSteps:
        super().__enter__()
        self.say(self.plan)
        return self

    def started(self, job: Job) -> None:
        self.begin(job.name, "preparing")

    def progress(self, job: Job, round: int, text: str) -> None:
        self.update(job.name, round / job.experiment.rounds, text)

    def ended(self, job: Job, error: str | None) -> None:
        self.end(job.name, "" if error else "done")
        if error:
            self.say(f"{job.name} FAILED: {error}")
        elif self.on_done is not None:
            self.on_done(job)
