"""Compute summary.json and graph.npz from a run's events alone."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from coterie.core import notes
from coterie.core.errors import RunError
from coterie.core.events import Event, NotFinite, PeerRound, RunStarted, of_kind
from coterie.core.files import replacing, write_whole
from coterie.core.measured_metric import ACCURACY, MeasuredMetric
from coterie.core.run_folder import RunFolder
from coterie.core.summary import (
    NOT_MEASURED,
    Beside,
    Diverged,
    IdleShares,
    LastAndSelected,
    NeighbourScores,
    Spread,
    Summary,
    Totals,
)
from coterie.methods.declared import notes_of
from coterie.methods.notes import BESIDE, LAST, MEAN, Note
from coterie.metrics import selected_round, selection_of
from coterie.report.graph_scores import Neighbourhood, mass_inside, neighbour_scores
from coterie.report.scores import Records, metric_scores, spread
from coterie.report.timing import idle_shares, mean_over_time

DENSE_GRAPH_NUMBERS = 32_000_000  # above this (rounds x peers x peers) the graph is written sparse
SPARSE_GRAPH_ROUNDS = 50  # and with at most this many rounds, evenly spaced


def started(events: Sequence[Event]) -> RunStarted:
    starts: list[RunStarted] = of_kind(events, RunStarted)
    if not starts:
        raise RunError("events.jsonl is incomplete: the record of the run's start is missing")
    return starts[0]


def summarise(events: Sequence[Event], seconds: float) -> Summary:
    """The figures of a run. Everything except `seconds` is reproducible from the config and seed."""
    start = started(events)
    rounds: list[PeerRound] = of_kind(events, PeerRound)
    measured = [r for r in rounds if r.is_measured and r.peer < start.peers]
    last = {r.peer: r for r in sorted(measured, key=lambda r: r.round)}
    by = selection_of(start)
    selected = {peer: selected_round(of_peer, by) for peer, of_peer in _by_peer(measured).items()}
    neighbours, neighbours_mean = _neighbours(events)
    return Summary(
        method=start.method,
        seed=start.seed,
        peers=start.peers,
        rounds=start.rounds,
        main=start.main.name,
        label_unit=start.label_unit,
        accuracy=_accuracy(start, last, selected),
        validation=LastAndSelected(_validation(last, start), _validation(selected, start)),
        bytes=_totals([r.bytes for r in rounds]),
        messages=_totals([r.messages for r in rounds]),
        simulated_seconds=max((r.time for r in rounds), default=0.0),
        idle=_shares(idle_shares(rounds, start.peers)),
        over_time=mean_over_time(measured, start.peers, start.main.name),
        seconds=seconds,
        not_finite=diverged_peers(events),
        beside=_beside(last, start),
        noted=_noted(rounds, start),
        neighbours=neighbours,
        neighbours_mean=neighbours_mean,
        scores=metric_scores(start, last, selected),
    )


def _neighbours(events: Sequence[Event]) -> tuple[NeighbourScores, NeighbourScores]:
    """The scores of the last round with notes, and their means over all such rounds."""
    scores, masses = neighbours_by_round(events), mass_by_round(events)
    last = scores[max(scores)]._asdict() if scores else {}
    if masses and max(masses) >= max(scores, default=0):  # only weights of the last round count
        last["mass"] = masses[max(masses)]
    if not last:
        return NeighbourScores(), NeighbourScores()
    return NeighbourScores(**last), _means_over_rounds(events, scores, masses)


def _noted(rounds: Sequence[PeerRound], start: RunStarted) -> dict[str, float | dict[str, float]]:
    """The notes that the method declares for the top level of summary.json."""
    of_peers = sorted((r for r in rounds if r.peer < start.peers), key=lambda r: r.round)
    figures = {
        note.key: _figure_of(note, of_peers)
        for note in notes_of(start.method)
        if note.summary in (MEAN, LAST)
    }  # fmt: skip
    return {key: figure for key, figure in figures.items() if figure not in (None, {})}


def _figure_of(note: Note, records: Sequence[PeerRound]) -> float | dict[str, float] | None:
    """The mean of a note's numbers in these records, or only of each peer's last; or such a mean for each thing."""
    numbers: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for r in records:
        for name in notes.names_like(note.name, r.notes):
            if (number := notes.number(r.notes[name])) is not None:
                numbers[name.removeprefix(note.name)].append((r.peer, number))
    means = {
        thing: float(np.mean([value for _, value in pairs] if note.summary == MEAN else list(dict(pairs).values())))
        for thing, pairs in sorted(numbers.items())
    }
    return means if note.name.endswith(".") else means.get("")


def _means_over_rounds(
    events: Sequence[Event], scores: Mapping[int, Neighbourhood], masses: Mapping[int, float]
) -> NeighbourScores:
    """Means over the rounds with notes: the last round says little about a graph that changes every round. A round in
    which no peer lists a neighbour has no precision."""
    peers = started(events).peers
    listed = [
        scores[round].precision
        for round, lists in noted(events, "neighbours").items()
        if round in scores and any(j != peer and j < peers for peer, others in lists.items() for j in others)
    ]
    recalls = [s.recall for s in scores.values()]
    return NeighbourScores(*(float(np.mean(v)) if v else None for v in (listed, recalls, list(masses.values()))))


def diverged_peers(events: Sequence[Event]) -> Diverged | None:
    """The peers whose final models are not finite, and the round since which the first of them was measured so."""
    peers = sorted({e.peer for e in of_kind(events, NotFinite)})
    if not peers:
        return None
    measured: list[PeerRound] = [r for r in of_kind(events, PeerRound) if r.is_measured]
    since = [round for peer in peers if (round := _without_loss_since([r for r in measured if r.peer == peer]))]
    return Diverged(peers, min(since, default=None))


def _without_loss_since(measured: Sequence[PeerRound]) -> int | None:
    """The round since which a peer's loss is not finite; None if its final loss is finite."""
    first = None
    for r in sorted(measured, key=lambda r: -r.round):
        if r.loss is not None and math.isfinite(r.loss):
            break
        first = r.round
    return first


def is_complete(folder: Path) -> bool:
    """Whether a run finished with meaningful figures: all its models are finite."""
    return RunFolder(folder).is_finished() and read_summary(folder).not_finite is None


def _shares(shares: Sequence[float]) -> IdleShares:
    return IdleShares(float(np.mean(shares)), max(shares))


def _accuracy(start: RunStarted, last: Records, selected: Records) -> LastAndSelected[Spread]:
    if ACCURACY not in start.measured:
        return NOT_MEASURED
    return LastAndSelected(spread(ACCURACY, last, start), spread(ACCURACY, selected, start))


def _validation(records: Records, start: RunStarted) -> float | None:
    """The mean of the main metric on validation data in these rounds, which may be used to choose between runs."""
    values = [r.value(start.main.name, "validation") for _, r in sorted(records.items())]
    defined = [value for value in values if value is not None]
    return float(np.mean(defined)) if defined else None


def _beside(last: Records, start: RunStarted) -> Beside:
    """Other predictors that peers measured beside their own, each in its last round: their main metric.

    The method's notes that it declares for this table are of the same rounds.
    """
    names = sorted({name for r in last.values() for name in r.notes.get("beside", {})})
    spreads = {name: _spread_beside(name, last, start) for name in names}
    declared = [note for note in notes_of(start.method) if note.summary == BESIDE and note.key not in spreads]
    figures = {note.key: _figure_of(note, list(last.values())) for note in declared}
    return Beside(spreads, {key: figure for key, figure in figures.items() if isinstance(figure, float)})


def _spread_beside(name: str, last: Records, start: RunStarted) -> Spread:
    """With `change`, the relative improvement of a peer's predictions over that predictor: least, mean and most."""
    main = start.main
    records = {
        p: replace(r, test=other.get("test"), scores=other.get("scores", {}))
        for p, r in last.items()
        if (other := r.notes.get("beside", {}).get(name)) is not None
    }
    pairs = [(last[p].value(main.name), r.value(main.name)) for p, r in records.items()]
    changes = [_change(main, own, other) for own, other in pairs if own is not None and other]
    change = {"least": min(changes), "mean": float(np.mean(changes)), "most": max(changes)} if changes else {}
    return replace(spread(main, records, start), change=change, undefined=None)


def _change(main: MeasuredMetric, own: float, other: float) -> float:
    """The relative improvement over another value, which may be negative, such as an R²."""
    relative = own / other - 1 if other > 0 else (own - other) / -other
    return float(main.merit(relative)) + 0.0  # never -0.0


def _by_peer(rounds: Sequence[PeerRound]) -> dict[int, list[PeerRound]]:
    by_peer: dict[int, list[PeerRound]] = defaultdict(list)
    for r in rounds:
        by_peer[r.peer].append(r)
    return by_peer


def neighbours_by_round(events: Sequence[Event]) -> dict[int, Neighbourhood]:
    """Precision and recall of the neighbour lists, round by round, where the true clusters are known."""
    start = started(events)
    if start.clusters is None:
        return {}
    return {round: neighbour_scores(lists, start.clusters) for round, lists in noted(events, "neighbours").items()}


def mass_by_round(events: Sequence[Event]) -> dict[int, float]:
    """The share of the averaging weights inside the true clusters, round by round, where both are known."""
    start = started(events)
    if start.clusters is None:
        return {}
    masses = {}
    for round, rows in noted(events, "weights").items():
        mass = mass_inside({i: {int(j): float(w) for j, w in row.items()} for i, row in rows.items()}, start.clusters)
        if mass is not None:
            masses[round] = mass
    return masses


def noted(events: Sequence[Event], name: str) -> dict[int, dict[int, Any]]:
    """The notes of peers (not of a server) under this name, by round in order, then by peer."""
    peers = started(events).peers
    notes_by_round: dict[int, dict[int, Any]] = defaultdict(dict)
    for r in of_kind(events, PeerRound):
        if name in r.notes and r.peer < peers:
            notes_by_round[r.round][r.peer] = r.notes[name]
    return {round: notes_by_round[round] for round in sorted(notes_by_round)}


def write_graph(events: Sequence[Event], path: Path) -> bool:
    """Write the averaging weights, rounds x peers x peers. Returns False if the method noted no weights."""
    peers = started(events).peers
    entries = [
        (r.round, r.peer, int(j), float(w))
        for r in of_kind(events, PeerRound)
        if r.peer < peers
        for j, w in r.notes.get("weights", {}).items()
        if int(j) < peers
    ]
    if not entries:
        return False
    entries.sort()
    at = sorted({round for round, *_ in entries})
    if len(at) * peers * peers <= DENSE_GRAPH_NUMBERS:
        place = {round: i for i, round in enumerate(at)}
        weights = np.zeros((len(at), peers, peers), dtype=np.float32)
        for round, i, j, w in entries:
            weights[place[round], i, j] = w
        _save(path, rounds=np.array(at), weights=weights)
        return True
    kept = {at[i] for i in np.linspace(0, len(at) - 1, SPARSE_GRAPH_ROUNDS).astype(int).tolist()}
    thin = [e for e in entries if e[0] in kept]
    round, row, column, weight = (np.array(c) for c in zip(*thin, strict=True))
    _save(
        path,
        rounds=np.array(sorted(kept)),
        round=round,
        row=row,
        column=column,
        weight=weight.astype(np.float32),
    )
    return True


def write_json(path: Path, value: object) -> None:
    write_whole(path, json.dumps(value, indent=2, default=dict) + "\n")  # a summary is a mapping, but not a dict


def read_summary(folder: Path) -> Summary:
    """The figures in a run's folder."""
    return Summary.read(RunFolder(folder).summary)


def _save(path: Path, **arrays: np.ndarray) -> None:
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def _totals(counts: Sequence[dict[str, int]]) -> Totals:
    by_artifact: Counter[str] = Counter()
    for count in counts:
        by_artifact.update(count)
    return Totals(sum(by_artifact.values()), dict(sorted(by_artifact.items())))
