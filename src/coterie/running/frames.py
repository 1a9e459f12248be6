"""Run folders as pandas data frames: one row for each run, or one for each round of each peer."""

from __future__ import annotations

import glob
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.core.errors import CoterieError, RunError
from coterie.core.events import PeerRound, RunStarted, read
from coterie.core.run_folder import RunFolder
from coterie.core.summary import AnySummary, read_any
from coterie.running.folders import RunEntry, find_runs

if TYPE_CHECKING:
    import pandas as pd

Where = str | Path | Iterable[str | Path]
Row = dict[str, object]  # a cell can be any value of a setting, or a figure
OF_A_ROUND = ["path", "method", "seed", "peer", "round", "time", "validation", "test", "loss", "bytes", "messages"]


def runs(where: Where, *, varying: bool = False) -> pd.DataFrame:
    """Read runs as a data frame: a row for each run in these folders.

    Runs in subfolders, such as those of a comparison, are included. A row has the run's `path`, its `state`, its
    settings and the figures of its summary. Settings have dotted names such as `method.name` or `train.lr`, and so do
    figures: `accuracy.last.mean`, `bytes.total`. Only finished runs have figures; `round` is the last finished round. A
    folder that cannot be read also has a row: its `error` says why, as for a failed run. A run that diverged has no
    figures. For a run that was resumed with changed sources, `mixture` says so.

    Args:
        where: a folder, a pattern such as ``"runs/*"``, or several of them.
        varying: whether only the settings in which these runs differ become columns.

    Returns:
        A pandas data frame.

    Example::

        coterie.runs("runs/*", varying=True).sort_values("accuracy.last.mean")
    """
    import pandas as pd

    rows = [_row(folder) for folder in folders(where)]
    every = list(dict.fromkeys(key for _, of_run, _ in rows for key in of_run))
    figures = list(dict.fromkeys(key for _, _, of_run in rows for key in of_run if key not in every))
    settings = [k for k in every if not varying or len({repr(of_run.get(k)) for _, of_run, _ in rows}) > 1]
    whole = [
        {**about, **of_run, **{k: v for k, v in result.items() if k not in of_run}} for about, of_run, result in rows
    ]
    return pd.DataFrame(whole, columns=["path", "state", "round", "error", "mixture", *settings, *figures])


def rounds(where: Where) -> pd.DataFrame:
    """Read the rounds of runs as a data frame: a row for each round of each participant, the data for plots.

    `validation` and `test` are the accuracies of measured rounds, `loss` is on the validation data, `bytes` and
    `messages` are those of this round, `time` is simulated. Other metrics have columns such as `auroc.validation` and
    `auroc.test`. A server has the number after the last peer's. A folder that cannot be read is one row with an
    `error`.

    Args:
        where: a folder, a pattern such as ``"runs/*"``, or several of them.

    Returns:
        A pandas data frame.
    """
    import pandas as pd

    rows: list[Row] = []
    for folder in folders(where):
        of_run: list[Row] = []
        try:
            of_run.extend(_rounds(folder))
        except CoterieError as error:
            of_run = [{"path": str(folder), "error": str(error)}]
        rows += of_run
    further = list(dict.fromkeys(key for row in rows for key in row if key not in (*OF_A_ROUND, "error")))
    return pd.DataFrame(rows, columns=[*OF_A_ROUND, *further, "error"]).astype({"error": object}).fillna({"error": ""})


def folders(where: Where) -> list[Path]:
    """The requested run folders, each once."""
    requested = [where] if isinstance(where, str | Path) else list(where)
    folders = list(dict.fromkeys(folder for one in requested for folder in _of_one(Path(one).expanduser())))
    if not folders:
        raise RunError(
            f"no run in {', '.join(map(str, requested)) or 'an empty list'}: a run's folder has a config.toml"
        )
    return folders


def _of_one(path: Path) -> Iterator[Path]:
    """An existing path is taken literally: brackets in it are not a pattern."""
    if path.is_file():
        raise RunError(f"{path} is a file: give the folder of a run, or one that contains runs")
    matches = [path] if path.exists() else sorted(map(Path, glob.glob(str(path), recursive=True)))  # noqa: PTH207 (absolute, too)
    if not matches:
        raise RunError(f"there is no {path}: give folders, or a pattern such as runs/*")
    for folder in matches:
        files = RunFolder(folder)
        if any(path.exists() for path in (files.config, files.events, files.summary)):
            yield folder
        elif folder.is_dir():
            yield from (run.folder for run in find_runs(folder, {}, most=None).values())


def _row(folder: Path) -> tuple[Row, Row, Row]:
    """The status, settings and figures of a run."""
    errors: list[str] = []
    settings, summary = _settings(folder, errors), _summary(folder, errors)
    state = RunEntry("", folder, "").state(summary)
    error = "; ".join([*([state.error] if state.error else []), *errors])
    mixture = "; ".join(summary.mixture if summary else ())
    about: Row = {
        "path": str(folder), "state": state.state, "round": state.round, "error": error, "mixture": mixture,
    }  # fmt: skip
    if summary and summary.not_finite:  # figures of diverged models are not results
        summary = None
    return about, flat(settings), {key: v for key, v in flat(summary or {}).items() if not isinstance(v, tuple)}


def _settings(folder: Path, errors: list[str]) -> Row:
    """The settings in the file, including those that this version no longer has."""
    path = RunFolder(folder).config
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        errors.append(f"{path} cannot be read: {error}")
        return {}


def _summary(folder: Path, errors: list[str]) -> AnySummary | None:
    if not RunFolder(folder).is_finished():
        return None
    try:
        return read_any(RunFolder(folder).summary)
    except RunError as error:
        errors.append(str(error))
        return None


def flat(values: Mapping[str, object], prefix: str = "") -> Row:
    """Nested values under dotted names; lists become tuples, so that rows can be grouped by them."""
    flattened: Row = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flattened |= flat(value, f"{prefix}{key}.")
        else:
            flattened[prefix + key] = _hashable(value)
    return flattened


def _hashable(value: object) -> object:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _rounds(folder: Path) -> Iterator[Row]:
    about: Row = {"path": str(folder)}
    for event in read(RunFolder(folder).events):
        if isinstance(event, RunStarted):
            about |= {"method": event.method, "seed": event.seed}
        elif isinstance(event, PeerRound):
            yield {
                **about, "peer": event.peer, "round": event.round, "time": event.time, "validation": event.validation,
                "test": event.test, "loss": event.loss, "bytes": sum(event.bytes.values()),
                "messages": sum(event.messages.values()), **_scores(event),
            }  # fmt: skip


def _scores(record: PeerRound) -> Row:
    return {f"{name}.{split}": record.value(name, split) for name in record.scores for split in ("validation", "test")}
