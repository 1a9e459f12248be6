"""Aggregate a run's events one by one into the figures of the dashboard, without keeping the events."""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass
from typing import NamedTuple, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from coterie.core.events import RunStarted, from_record
from coterie.core.json_values import Json, JsonValue, number, sequence, subtable, text, whole
from coterie.core.measured_metric import ACCURACY, MeasuredMetric
from coterie.running.progress import mean_over_peers

MOST_POINTS = 400  # of the curves; with more rounds, each point is the last measured round of several
MOST_LINES = 40  # with more peers, a band replaces their lines
QUANTILES = (0.1, 0.25, 0.75, 0.9)
KEPT_OFFENCES = 200
MOST_PEERS = 20_000  # a record that claims more is rejected

Floats = NDArray[np.float64]


@dataclass
class Scores:
    """One round's values of a metric by peer; NaN where there is none."""

    validation: Floats
    test: Floats


class Row(NamedTuple):
    """One peer's weights: the other peers in ascending order, and the weight on each."""

    others: NDArray[np.int64]
    weights: NDArray[np.float64]


class MetricPoint(TypedDict):
    """A metric in a round of the curves."""

    of: int  # the number of peers with a value
    validation: float | None
    band: list[float]  # quantiles over peers
    test: float | None
    each: NotRequired[list[float | None]]  # each peer's, if they are few


class Point(MetricPoint):
    """A round of the curves: the main metric, and the others by name."""

    round: int
    others: dict[str, MetricPoint]


class Offence(NamedTuple):
    """An artifact that a peer dropped."""

    peer: JsonValue
    round: JsonValue
    sender: str
    what: str


class History:
    """The aggregated events of a simulation, or of real peers whose records come from several files."""

    def __init__(self) -> None:
        self.start: Json = {}
        self.peers = self.rounds = self.count = 0
        self.at: dict[int, int] = {}  # the last round that each participant finished
        self.metrics: tuple[MeasuredMetric, ...] = (ACCURACY,)  # the main one first
        self.validation: dict[int, float] = {}  # each peer's last, of the main metric
        self.test: dict[int, float] = {}
        self.received: Counter[int] = Counter()  # bytes, by participant
        self.bytes: Counter[str] = Counter()  # by artifact
        self.messages: Counter[str] = Counter()
        self.gone: dict[int, int] = {}  # peers that left for good -> the round
        self.away: dict[int, int] = {}  # peers that missed their last round -> the round
        self.back: dict[int, int] = {}  # peers that were away -> the round in which they came back
        self.offences: deque[Offence] = deque(maxlen=KEPT_OFFENCES)
        self.not_finite: set[int] = set()  # peers whose final model is not finite
        self.offended: Counter[str] = Counter()  # number of offences, by sender
        self._rows: dict[int, Row] = {}
        self._noted: dict[int, Json] = {}  # raw rows, parsed lazily: most are replaced before a page reads them
        self.weights_round: dict[int, int] = {}  # peer -> the round of its latest weights
        self.trouble = ""
        self._scores: dict[int, dict[str, Scores]] = {}  # by round and metric
        self._stale: set[int] = set()  # rounds that changed since their point was computed
        self._points: dict[int, Point] = {}

    def see(self, record: Json) -> None:
        """Add a record. An invalid record is skipped and reported in `trouble`."""
        try:
            kind = text(record, "event")
            if kind == "run":
                self._begin(record)
            elif self.peers:
                handlers = {
                    "round": self._round,
                    "away": self._away,
                    "offence": self._offence,
                    "not-finite": self._not_finite,
                }
                handlers[kind](record)
            self.count += 1
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            self.trouble = self.trouble or f"An invalid record was skipped ({error!r})."

    def _begin(self, record: Json) -> None:
        peers, rounds = whole(record, "peers"), whole(record, "rounds")
        if not 0 < peers <= MOST_PEERS:
            raise ValueError(f"{peers} peers")
        self.start = record
        self.peers, self.rounds = peers, rounds
        self.metrics = _metrics(record)

    def _round(self, record: Json) -> None:
        peer, round = whole(record, "peer"), whole(record, "round")
        bytes, messages = _counts(record, "bytes"), _counts(record, "messages")
        self.bytes.update(bytes)
        self.messages.update(messages)
        self.received[peer] += bytes.total()
        if peer >= self.peers:  # a server
            return
        self.at[peer] = max(round, self.at.get(peer, 0))
        if self.away.pop(peer, None) is not None:
            self.back[peer] = round
        self.gone.pop(peer, None)
        self._stale.add(round)
        for metric in self.metrics:
            self._measure(metric.name, peer, round, *_values(record, metric.name))
        self._note(peer, round, subtable(record, "notes"))

    def _measure(self, metric: str, peer: int, round: int, validation: float | None, test: float | None) -> None:
        if validation is None and test is None:
            return
        of_round = self._scores.setdefault(round, {})
        scores = of_round.get(metric)
        if scores is None:
            nothing = np.full(self.peers, np.nan)
            scores = of_round[metric] = Scores(nothing, nothing.copy())
        places = ((scores.validation, self.validation, validation), (scores.test, self.test, test))
        for of_split, latest, value in places:
            if value is not None:  # else undefined on this split
                of_split[peer] = value
                if metric == self.metrics[0].name:
                    latest[peer] = value

    def _note(self, peer: int, round: int, notes: Json) -> None:
        """Keep the weights a peer averaged with, or equal weights on its neighbours if it noted no weights."""
        row, neighbours = notes.get("weights"), notes.get("neighbours")
        if row is None and neighbours and isinstance(neighbours, list):
            row = dict.fromkeys(map(str, neighbours), 1 / len(neighbours))
        if isinstance(row, dict):
            self._noted[peer] = row
            self.weights_round[peer] = round

    def rows(self) -> dict[int, Row]:
        """Each peer's weights on other peers in its last round."""
        for peer, row in self._noted.items():
            self._rows[peer] = self._row(peer, row)
        self._noted.clear()
        return self._rows

    def _row(self, peer: int, row: Json) -> Row:
        pairs = []
        for other, weight in row.items():
            to = int(other) if other.isdecimal() else peer
            if to != peer and to < self.peers and isinstance(weight, int | float) and 0 < weight < math.inf:
                pairs.append((to, float(weight)))
        others, weights = zip(*sorted(pairs), strict=True) if pairs else ((), ())
        return Row(np.array(others, dtype=np.int64), np.array(weights, dtype=np.float64))

    def _away(self, record: Json) -> None:
        peer, round = whole(record, "peer"), whole(record, "round")
        if peer < self.peers:
            (self.gone if record["until"] is None else self.away)[peer] = round
            self.at[peer] = max(round, self.at.get(peer, 0))

    def _not_finite(self, record: Json) -> None:
        self.not_finite.add(whole(record, "peer"))

    def _offence(self, record: Json) -> None:
        offence = Offence(record["peer"], record["round"], str(record["sender"]), str(record["what"]))
        self.offended[offence.sender] += 1
        self.offences.append(offence)

    def done(self, absent: set[int]) -> int:
        """The last round finished by all peers, except those that left or are absent."""
        rounds = [self.at.get(p, 0) for p in range(self.peers) if p not in self.gone and p not in absent]
        return min(rounds, default=max(self.at.values(), default=0))

    def points(self, absent: set[int]) -> dict[str, Point]:
        """The points of the curves, by position: mean and spread of all rounds that every present peer has finished."""
        until, step = self.done(absent), max(1, math.ceil(self.rounds / MOST_POINTS))
        for round in sorted(r for r in self._stale if r <= until):
            self._stale.discard(round)
            place = (round - 1) // step
            newest = place not in self._points or round >= self._points[place]["round"]
            if newest and round in self._scores:
                self._points[place] = self._point(round)
        return {str(place): point for place, point in self._points.items()}

    def _point(self, round: int) -> Point:
        of_round = {name: self._metric_point(scores) for name, scores in self._scores[round].items()}
        nothing: MetricPoint = {"of": 0, "validation": None, "band": [], "test": None}
        main = of_round.pop(self.metrics[0].name, nothing)
        return {"round": round, "others": of_round, **main}

    def _metric_point(self, scores: Scores) -> MetricPoint:
        validated, tested = (values[~np.isnan(values)] for values in (scores.validation, scores.test))
        point: MetricPoint = {
            "of": len(validated),
            "validation": mean_over_peers(validated.tolist()),  # unrounded: twice could differ from the terminal
            "band": [_short(q) for q in np.quantile(validated, QUANTILES)] if len(validated) else [],
            "test": mean_over_peers(tested.tolist()),
        }
        if self.peers <= MOST_LINES:
            point["each"] = [None if math.isnan(v) else _short(v) for v in scores.validation.tolist()]
        return point

    def curves(self, peer: int) -> dict[str, list[list[float]]]:
        """One peer on its validation data, by metric: rounds and values."""
        return {metric.name: self._curve(metric.name, peer) for metric in self.metrics}

    def _curve(self, metric: str, peer: int) -> list[list[float]]:
        rounds = [(r, scores[metric]) for r, scores in sorted(self._scores.items()) if metric in scores]
        values = [(r, float(s.validation[peer])) for r, s in rounds if 0 <= peer < self.peers]
        measured = [[r, _short(v)] for r, v in values if not math.isnan(v)]
        return measured[:: max(1, math.ceil(len(measured) / MOST_POINTS))]


def _metrics(start: Json) -> tuple[MeasuredMetric, ...]:
    """The metrics of a run, according to its first record."""
    try:
        event = from_record(start)
        return (event.measured if isinstance(event, RunStarted) else ()) or (ACCURACY,)
    except (KeyError, TypeError, AttributeError):  # damaged, or of another version
        return (ACCURACY,)


def _values(record: Json, metric: str) -> tuple[float | None, float | None]:
    """The finite values of a metric in a record: on the validation and on the test data."""
    if metric == ACCURACY.name:
        return _finite(record["validation"]), _finite(record["test"])
    pair = sequence(subtable(record, "scores").get(metric)) if "scores" in record else ()
    return (_finite(pair[0]), _finite(pair[1])) if len(pair) == 2 else (None, None)


def _finite(value: JsonValue) -> float | None:
    if value is None:
        return None
    converted = float(number({"value": value}, "value"))
    return converted if math.isfinite(converted) else None


def _counts(record: Json, key: str) -> Counter[str]:
    """Counts by artifact."""
    counts = subtable(record, key)
    return Counter({name: whole(counts, name) for name in counts})


def _short(value: float) -> float:
    return float(f"{value:.4g}")
