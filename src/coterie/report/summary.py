"""summary.json and graph.npz, from a run's events alone."""

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
from coterie.methods import METHODS
from coterie.report.graph_scores import Neighbourhood, mass_inside, neighbour_scores
from coterie.report.timing import accuracy_over_time, idle_shares

LF_OVER_CE = "lf_over_ce."  # the beginning of CompFL's notes of it, one for each expert
DENSE_GRAPH_NUMBERS = 32_000_000  # above this (rounds x peers x peers) the graph is written sparse
SPARSE_GRAPH_ROUNDS = 50  # and of at most so many rounds, evenly spread


def started(events: Sequence[Event]) -> RunStarted:
    found: list[RunStarted] = of_kind(events, RunStarted)
    if not found:
        raise RunError("the run's events have no beginning: events.jsonl is not whole")
    return found[0]


def summarise(events: Sequence[Event], seconds: float) -> dict[str, Any]:
    """The figures of a run. Everything but `seconds` repeats exactly for one config and seed."""
    start = started(events)
    rounds: list[PeerRound] = of_kind(events, PeerRound)
    measured = [r for r in rounds if r.test is not None and r.peer < start.peers]
    last = {r.peer: r for r in sorted(measured, key=lambda r: r.round)}
    # By validation accuracy; of equals the one with the lower validation loss, then the earlier.
    selected = {r.peer: r for r in sorted(measured, key=_merit)}
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
    not_finite = whose_is_not_finite(events)
    if not_finite:
        summary["not_finite"] = not_finite
    beside = _beside(last, start)
    if beside:
        summary["beside"] = beside
    helped = [r.notes["helped"] for r in rounds if "helped" in r.notes]
    if helped:  # the share of the rounds in which clients that can train several models trained another's kind
        summary["helped"] = float(np.mean(helped))
    aligned = _last_noted(rounds, LF_OVER_CE, start.peers)
    if aligned:  # by expert: how much its alignment weighs against the cross entropy, where a training begins
        summary["lf_over_ce"] = aligned
    scores, masses = neighbours_by_round(events), mass_by_round(events)
    neighbours = scores[max(scores)]._asdict() if scores else {}
    if masses and max(masses) >= max(scores, default=0):  # the last round counts: weights of an earlier one do not
        neighbours["mass"] = masses[max(masses)]
    if neighbours:
        summary["neighbours"] = neighbours
        summary["neighbours_mean"] = _means_over_rounds(events, scores, masses)
    return summary


def _last_noted(rounds: Sequence[PeerRound], beginning: str, peers: int) -> dict[str, float]:
    """Of each name with this beginning the mean over peers of what they noted last, if these are finite numbers."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for r in sorted(rounds, key=lambda r: r.round):
        for name, value in notes.numbers(r.notes).items():
            if name.startswith(beginning) and value is not None and r.peer < peers:
                found[name.removeprefix(beginning)][r.peer] = value
    return {name: float(np.mean(list(by_peer.values()))) for name, by_peer in sorted(found.items())}


def _means_over_rounds(
    events: Sequence[Event], scores: Mapping[int, Neighbourhood], masses: Mapping[int, float]
) -> dict[str, float]:
    """Means over the rounds in which peers noted something: the last round says little of a graph that is drawn anew
    in every round. A round in which nobody lists anybody has no precision."""
    peers = started(events).peers
    listed = [
        scores[round].precision
        for round, lists in noted(events, "neighbours").items()
        if round in scores and any(j != peer and j < peers for peer, others in lists.items() for j in others)
    ]
    found = {"precision": listed, "recall": [s.recall for s in scores.values()], "mass": list(masses.values())}
    return {name: float(np.mean(values)) for name, values in found.items() if values}


def whose_is_not_finite(events: Sequence[Event]) -> dict[str, Any] | None:
    """The peers that ended with models that are not finite, and since when the first of them was measured so."""
    peers = sorted({e.peer for e in of_kind(events, NotFinite)})
    if not peers:
        return None
    measured: list[PeerRound] = [r for r in of_kind(events, PeerRound) if r.validation is not None]
    since = [round for peer in peers if (round := _without_loss_since([r for r in measured if r.peer == peer]))]
    return {"peers": peers, "since": min(since, default=None)}


def _without_loss_since(measured: Sequence[PeerRound]) -> int | None:
    """The first round from which on a peer's loss was no number; None if it is one at the end."""
    first = None
    for r in sorted(measured, key=lambda r: -r.round):
        if r.loss is not None and math.isfinite(r.loss):
            break
        first = r.round
    return first


def is_whole(folder: Path) -> bool:
    """Whether a run came to its end, and its figures mean something: all its models are finite."""
    return (folder / "summary.json").exists() and "not_finite" not in read_summary(folder)


def _shares(shares: Sequence[float]) -> dict[str, float]:
    return {"mean": float(np.mean(shares)), "most": max(shares)}


def _validation(records: Mapping[int, PeerRound]) -> float | None:
    """The mean validation accuracy of these rounds: what may be used to choose between runs."""
    found = [r.validation for _, r in sorted(records.items()) if r.validation is not None]
    return float(np.mean(found)) if found else None


def _beside(last: Mapping[int, PeerRound], start: RunStarted) -> dict[str, Any]:
    """What else peers measured than what they predict with, each as in their last round.

    `change` is how much better, relatively, they do than with that: of the worst and the best off, and in the mean.
    `own_share` is how much of an ensemble is its peer's own.
    """
    found: dict[str, Any] = {}
    for name in sorted({name for r in last.values() for name in r.notes.get("beside", {})}):
        tests = {p: r.notes["beside"][name]["test"] for p, r in last.items() if name in r.notes.get("beside", {})}
        changes = [(last[p].test or 0.0) / test - 1 for p, test in tests.items() if test]
        change = {"least": min(changes), "mean": float(np.mean(changes)), "most": max(changes)} if changes else {}
        found[name] = {
            **_spread({p: replace(last[p], test=test) for p, test in tests.items()}, start),
            "change": change,
        }
    own = [r.notes["own_share"] for r in last.values() if "own_share" in r.notes]
    return {**found, **({"own_share": float(np.mean(own))} if own else {})}


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
    found = {}
    for round, rows in noted(events, "weights").items():
        mass = mass_inside({i: {int(j): float(w) for j, w in row.items()} for i, row in rows.items()}, start.clusters)
        if mass is not None:
            found[round] = mass
    return found


def noted(events: Sequence[Event], what: str) -> dict[int, dict[int, Any]]:
    """What the peers (a server is none) noted under this name: by round, in order, then by peer."""
    peers = started(events).peers
    found: dict[int, dict[int, Any]] = defaultdict(dict)
    for r in of_kind(events, PeerRound):
        if what in r.notes and r.peer < peers:
            found[r.round][r.peer] = r.notes[what]
    return {round: found[round] for round in sorted(found)}


def write_graph(events: Sequence[Event], path: Path) -> bool:
    """Who averaged with whom, and how much: rounds x peers x peers; False where the method tells of no graph."""
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
    """What a run's summary.json holds."""
    path = folder / "summary.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({error}): delete it, and run this again") from error
    if not isinstance(found, dict):
        raise RunError(f"{path} is not a run's summary: delete it, and run this again")
    return found


def _save(path: Path, **arrays: np.ndarray) -> None:
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    temporary.replace(path)


def peers_by_architecture(start: RunStarted) -> dict[str, list[int]]:
    """Who has which, where peers differ in it; empty where all have the same, or each has models of several."""
    if start.method in METHODS and METHODS[start.method].ensembles:
        return {}
    found: dict[str, list[int]] = defaultdict(list)
    for peer, architecture in enumerate(start.architectures[: start.peers]):
        found[architecture].append(peer)
    return dict(sorted(found.items())) if len(found) > 1 else {}


def _by_architecture(per_peer: Sequence[float | None], start: RunStarted) -> dict[str, Any]:
    """The mean over the peers of each architecture, where there are several; None where none of them was measured."""
    means: dict[str, float | None] = {}
    for architecture, peers in peers_by_architecture(start).items():
        measured = [accuracy for p in peers if (accuracy := per_peer[p]) is not None]
        means[architecture] = float(np.mean(measured)) if measured else None
    return {"by_architecture": means} if means else {}


def _spread(records: dict[int, PeerRound], start: RunStarted) -> dict[str, Any]:
    """Mean and spread over peers; the worst decile is the mean of the worst tenth, one peer at the least.

    `per_peer` has one entry a peer: None for one that left before it was ever measured. `by_architecture` has the mean
    of those that have the same, where peers have several.
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
