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
from coterie.core.files import write_whole
from coterie.core.run_folder import RunFolder
from coterie.methods import METHODS
from coterie.report.graph_scores import Neighbourhood, mass_inside, neighbour_scores
from coterie.report.timing import accuracy_over_time, idle_shares

LF_OVER_CE = "lf_over_ce."  # prefix of CompFL's notes, one for each expert
DENSE_GRAPH_NUMBERS = 32_000_000  # above this (rounds x peers x peers) the graph is written sparse
SPARSE_GRAPH_ROUNDS = 50  # and with at most this many rounds, evenly spaced


def started(events: Sequence[Event]) -> RunStarted:
    starts: list[RunStarted] = of_kind(events, RunStarted)
    if not starts:
        raise RunError("events.jsonl is incomplete: the record of the run's start is missing")
    return starts[0]


def summarise(events: Sequence[Event], seconds: float) -> dict[str, Any]:
    """The figures of a run. Everything except `seconds` is reproducible from the config and seed."""
    start = started(events)
    rounds: list[PeerRound] = of_kind(events, PeerRound)
    measured = [r for r in rounds if r.test is not None and r.peer < start.peers]
    last = {r.peer: r for r in sorted(measured, key=lambda r: r.round)}
    selected = {peer: selected_round(of_peer) for peer, of_peer in _by_peer(measured).items()}
    summary = {
        "method": start.method,
        "seed": start.seed,
        "peers": start.peers,
        "rounds": start.rounds,
        "accuracy": {"last": _spread(last, start), "selected": _spread(selected, start)},
        "validation": {"last": _validation(last), "selected": _validation(selected)},
        "bytes": _totals([r.bytes for r in rounds]),
        "messages": _totals([r.messages for r in rounds]),
        "simulated_seconds": max((r.time for r in rounds), default=0.0),
        "idle": _shares(idle_shares(rounds, start.peers)),
        "over_time": [list(point) for point in accuracy_over_time(measured, start.peers)],
        "seconds": seconds,
    }
    not_finite = diverged_peers(events)
    if not_finite:
        summary["not_finite"] = not_finite
    beside = _beside(last, start)
    if beside:
        summary["beside"] = beside
    helped = [r.notes["helped"] for r in rounds if "helped" in r.notes]
    if helped:  # the share of rounds in which clients that can train several models trained another client's kind
        summary["helped"] = float(np.mean(helped))
    aligned = _last_noted(rounds, LF_OVER_CE, start.peers)
    if aligned:  # by expert: the alignment loss relative to the cross entropy at the start of training
        summary["lf_over_ce"] = aligned
    scores, masses = neighbours_by_round(events), mass_by_round(events)
    neighbours = scores[max(scores)]._asdict() if scores else {}
    if masses and max(masses) >= max(scores, default=0):  # only weights of the last round count
        neighbours["mass"] = masses[max(masses)]
    if neighbours:
        summary["neighbours"] = neighbours
        summary["neighbours_mean"] = _means_over_rounds(events, scores, masses)
    return summary


def _last_noted(rounds: Sequence[PeerRound], prefix: str, peers: int) -> dict[str, float]:
    """For each note with this prefix: the mean over peers of their last finite value."""
    values: dict[str, dict[int, float]] = defaultdict(dict)
    for r in sorted(rounds, key=lambda r: r.round):
        for name, value in notes.numbers(r.notes).items():
            if name.startswith(prefix) and value is not None and r.peer < peers:
                values[name.removeprefix(prefix)][r.peer] = value
    return {name: float(np.mean(list(by_peer.values()))) for name, by_peer in sorted(values.items())}


def _means_over_rounds(
    events: Sequence[Event], scores: Mapping[int, Neighbourhood], masses: Mapping[int, float]
) -> dict[str, float]:
    """Means over the rounds with notes: the last round says little about a graph that changes every round. A round in
    which no peer lists a neighbour has no precision."""
    peers = started(events).peers
    listed = [
        scores[round].precision
        for round, lists in noted(events, "neighbours").items()
        if round in scores and any(j != peer and j < peers for peer, others in lists.items() for j in others)
    ]
    values_by_score = {
        "precision": listed,
        "recall": [s.recall for s in scores.values()],
        "mass": list(masses.values()),
    }
    return {name: float(np.mean(values)) for name, values in values_by_score.items() if values}


def diverged_peers(events: Sequence[Event]) -> dict[str, Any] | None:
    """The peers whose final models are not finite, and the round since which the first of them was measured so."""
    peers = sorted({e.peer for e in of_kind(events, NotFinite)})
    if not peers:
        return None
    measured: list[PeerRound] = [r for r in of_kind(events, PeerRound) if r.validation is not None]
    since = [round for peer in peers if (round := _without_loss_since([r for r in measured if r.peer == peer]))]
    return {"peers": peers, "since": min(since, default=None)}


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
    return RunFolder(folder).is_finished() and "not_finite" not in read_summary(folder)


def _shares(shares: Sequence[float]) -> dict[str, float]:
    return {"mean": float(np.mean(shares)), "most": max(shares)}


def _validation(records: Mapping[int, PeerRound]) -> float | None:
    """The mean validation accuracy of these rounds, which may be used to choose between runs."""
    accuracies = [r.validation for _, r in sorted(records.items()) if r.validation is not None]
    return float(np.mean(accuracies)) if accuracies else None


def _beside(last: Mapping[int, PeerRound], start: RunStarted) -> dict[str, Any]:
    """Other predictors that peers measured beside their own, each in its last round.

    `change` is the relative improvement of a peer's predictions over that predictor: least, mean and most.
    `own_share` is the share of an ensemble that is the peer's own models.
    """
    spreads: dict[str, Any] = {}
    for name in sorted({name for r in last.values() for name in r.notes.get("beside", {})}):
        tests = {p: r.notes["beside"][name]["test"] for p, r in last.items() if name in r.notes.get("beside", {})}
        changes = [(last[p].test or 0.0) / test - 1 for p, test in tests.items() if test]
        change = {"least": min(changes), "mean": float(np.mean(changes)), "most": max(changes)} if changes else {}
        spreads[name] = {
            **_spread({p: replace(last[p], test=test) for p, test in tests.items()}, start),
            "change": change,
        }
    own = [r.notes["own_share"] for r in last.values() if "own_share" in r.notes]
    return {**spreads, **({"own_share": float(np.mean(own))} if own else {})}


def _by_peer(rounds: Sequence[PeerRound]) -> dict[int, list[PeerRound]]:
    by_peer: dict[int, list[PeerRound]] = defaultdict(list)
    for r in rounds:
        by_peer[r.peer].append(r)
    return by_peer


def selected_round(measured: Sequence[PeerRound]) -> PeerRound:
    """Of one peer's measured rounds, the one with the best validation accuracy. Ties go to the lower validation loss,
    then to the earlier round."""
    return max(measured, key=_merit)


def _merit(r: PeerRound) -> tuple[float, float, int]:
    loss = r.loss if r.loss is not None and math.isfinite(r.loss) else math.inf
    return r.validation or 0.0, -loss, -r.round


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
    write_whole(path, json.dumps(value, indent=2) + "\n")


def read_summary(folder: Path) -> dict[str, Any]:
    """The content of a run's summary.json."""
    path = RunFolder(folder).summary
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({error}): delete it and run the command again") from error
    if not isinstance(summary, dict):
        raise RunError(f"{path} is not a run's summary: delete it and run the command again")
    return summary


def _save(path: Path, **arrays: np.ndarray) -> None:
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    temporary.replace(path)


def peers_by_architecture(start: RunStarted) -> dict[str, list[int]]:
    """The peers of each architecture; empty where all have the same, or where each has models of several."""
    if start.method in METHODS and METHODS[start.method].ensembles:
        return {}
    peers_of: dict[str, list[int]] = defaultdict(list)
    for peer, architecture in enumerate(start.architectures[: start.peers]):
        peers_of[architecture].append(peer)
    return dict(sorted(peers_of.items())) if len(peers_of) > 1 else {}


def _by_architecture(per_peer: Sequence[float | None], start: RunStarted) -> dict[str, Any]:
    """The mean over each architecture's peers, where there are several; None where no such peer was measured."""
    means: dict[str, float | None] = {}
    for architecture, peers in peers_by_architecture(start).items():
        measured = [accuracy for p in peers if (accuracy := per_peer[p]) is not None]
        means[architecture] = float(np.mean(measured)) if measured else None
    return {"by_architecture": means} if means else {}


def _spread(records: dict[int, PeerRound], start: RunStarted) -> dict[str, Any]:
    """Mean and spread over peers; the worst decile is the mean of the worst tenth, at least one peer.

    `per_peer` has one entry per peer: None for a peer that left before it was measured. `by_architecture` has the mean
    of each architecture, where peers have several.
    """
    per_peer = [records[p].test if p in records else None for p in range(start.peers)]
    measured = [accuracy for accuracy in per_peer if accuracy is not None]
    if not measured:
        return {"mean": None, "std": None, "worst_decile": None, "per_peer": per_peer}
    worst = sorted(measured)[: max(1, len(measured) // 10)]
    return {
        "mean": float(np.mean(measured)),
        "std": float(np.std(measured)),
        "worst_decile": float(np.mean(worst)),
        "per_peer": per_peer,
        **_by_architecture(per_peer, start),
    }


def _totals(counts: Sequence[dict[str, int]]) -> dict[str, Any]:
    by_artifact: Counter[str] = Counter()
    for count in counts:
        by_artifact.update(count)
    return {"total": sum(by_artifact.values()), "by_artifact": dict(sorted(by_artifact.items()))}
