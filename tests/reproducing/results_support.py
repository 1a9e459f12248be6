"""Runs that are there, made of summaries by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coterie.comparing.plan import Job
from coterie.reproducing import papers, runs
from coterie.reproducing.results import Results, results


def summary(last: float, selected: float | None = None, per_peer: list[float | None] | None = None) -> dict[str, Any]:
    def spread(mean: float) -> dict[str, Any]:
        return {"mean": mean, "std": 0.04, "worst_decile": mean, "per_peer": per_peer or [mean, mean]}

    return {
        "peers": 2, "seconds": 7.4, "over_time": [], "validation": {"last": 0.5, "selected": 0.5},
        "accuracy": {"last": spread(last), "selected": spread(last if selected is None else selected)},
        "messages": {"total": 5000, "by_artifact": {"prototypes": 4000, "head": 1000}},
        "bytes": {"total": 3_000_000, "by_artifact": {}},
    }  # fmt: skip


def there(out: Path, place: str, made: Mapping[tuple[str, int], Any], small: bool = True) -> Results:
    """The results of a column of which these runs are there: summaries by label and seed."""
    table, (column,) = papers.find(place)
    jobs = table.jobs(column, small, (0, 1, 2), [], out)
    for job in jobs:
        if (job.variant.label, job.seed) in made:
            write(job, made[job.variant.label, job.seed])
    return results(table, column, small, runs.placed(jobs, runs.known(out)), {})


def write(job: Job, found: Any) -> None:
    job.folder.mkdir(parents=True)
    (job.folder / "config.toml").write_text(job.experiment.toml(), encoding="utf-8")
    (job.folder / "events.jsonl").write_text('{"version": "1.2"}\n', encoding="utf-8")
    text = found if isinstance(found, str) else json.dumps(found)
    (job.folder / "summary.json").write_text(text, encoding="utf-8")
