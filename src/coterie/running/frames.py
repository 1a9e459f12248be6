"""Run folders as pandas data frames: one row for each run, or one for each round of each peer."""

from __future__ import annotations

import glob
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.core.errors import CoterieError, RunError
from coterie.core.events import PeerRound, RunStarted, read
from coterie.report.summary import read_summary
from coterie.running.folders import RunEntry, find_runs

if TYPE_CHECKING:
    import pandas as pd

Where = str | Path | Iterable[str | Path]
FILES = ("config.toml", "events.jsonl", "summary.json")  # any of these makes a folder that of a run
OF_A_ROUND = ["path", "method", "seed", "peer", "round", "time", "validation", "test", "loss", "bytes", "messages"]


def runs(where: Where, *, varying: bool = False) -> pd.DataFrame:
    """A row for each run in these folders: its `path`, its `state`, its settings, and the figures of its summary.

    `where` is a folder, a pattern such as `"runs/*"`, or several of them; runs are also found in folders below, as
    those of a comparison are. Settings have dotted names, `method.name` or `train.lr`, and so have figures:
    `accuracy.last.mean`, `bytes.total`. Figures are those of runs that have ended; `round` is how far a run is.
    A folder that cannot be read is a row, too: its `error` says why, as it does for a run that failed. A run that
    diverged has no figures, and one that went on with other sources than it began with says so in `mixture`.

    With `varying`, of the settings only those in which these runs differ.
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
    """A row for each round of each participant, of all runs in these folders: what plots are made from.

    `validation` and `test` are accuracies of rounds that were measured, `loss` is on the validation data, `bytes` and
    `messages` are those of this round, `time` is simulated. A server has the number after the last peer's. A folder
    that cannot be read is one row with an `error`.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for folder in folders(where):
        of_run: list[dict[str, Any]] = []
        try:
            of_run.extend(_rounds(folder))
        except CoterieError as error:
            of_run = [{"path": str(folder), "error": str(error)}]
        rows += of_run
    return pd.DataFrame(rows, columns=[*OF_A_ROUND, "error"]).astype({"error": object}).fillna({"error": ""})


def folders(where: Where) -> list[Path]:
    """The folders of runs that are meant, each once."""
    asked = [where] if isinstance(where, str | Path) else list(where)
    found = list(dict.fromkeys(folder for one in asked for folder in _of_one(Path(one).expanduser())))
    if not found:
        raise RunError(f"no run in {', '.join(map(str, asked)) or 'an empty list'}: a run's folder has a config.toml")
    return found


def _of_one(asked: Path) -> Iterator[Path]:
    """A name that is there is taken as it is, also if it has brackets, which a pattern would read otherwise."""
    if asked.is_file():
        raise RunError(f"{asked} is a file: name the folder of a run, or one with runs in it")
    matches = [asked] if asked.exists() else sorted(map(Path, glob.glob(str(asked), recursive=True)))  # noqa: PTH207 (absolute, too)
    if not matches:
        raise RunError(f"nothing is called {asked}: name folders, or a pattern such as runs/*")
    for folder in matches:
        if any((folder / name).exists() for name in FILES):
            yield folder
        elif folder.is_dir():
            yield from (run.folder for run in find_runs(folder, {}, most=None).values())


def _row(folder: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """What is known about a run, its settings, and its figures."""
    wrong: list[str] = []
    settings, summary = _settings(folder, wrong), _summary(folder, wrong)
    state = RunEntry("", folder, "").state(summary)
    error = "; ".join([*([state["error"]] if state["error"] else []), *wrong])
    about = {"path": str(folder), "state": state["state"], "round": state["round"], "error": error}
    about["mixture"] = "; ".join(map(str, (summary or {}).get("mixture", [])))
    if summary and "not_finite" in summary:  # figures of models that diverged are no results
        summary = None
    return about, flat(settings), {key: v for key, v in flat(summary or {}).items() if not isinstance(v, tuple)}


def _settings(folder: Path, wrong: list[str]) -> dict[str, Any]:
    """As they stand in the file: also those that this version has no more."""
    path = folder / "config.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        wrong.append(f"{path} cannot be read: {error}")
        return {}


def _summary(folder: Path, wrong: list[str]) -> dict[str, Any] | None:
    if not (folder / "summary.json").exists():
        return None
    try:
        return read_summary(folder)
    except RunError as error:
        wrong.append(str(error))
        return None


def flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested values under dotted names; lists become tuples, by which rows can be grouped."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{before}{key}.")
        else:
            found[before + key] = _hashable(value)
    return found


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _rounds(folder: Path) -> Iterator[dict[str, Any]]:
    about: dict[str, Any] = {"path": str(folder)}
    for event in read(folder / "events.jsonl"):
        if isinstance(event, RunStarted):
            about |= {"method": event.method, "seed": event.seed}
        elif isinstance(event, PeerRound):
            yield {
                **about, "peer": event.peer, "round": event.round, "time": event.time, "validation": event.validation,
                "test": event.test, "loss": event.loss, "bytes": sum(event.bytes.values()),
                "messages": sum(event.messages.values()),
            }  # fmt: skip
