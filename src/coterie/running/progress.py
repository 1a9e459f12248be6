"""The progress of a run: turns the records of single peers into rounds that all peers have finished."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from coterie.core.events import Event, NotFinite, Offence, PeerAway, PeerRound, RunStarted
from coterie.core.measured_metric import ACCURACY, MeasuredMetric
from coterie.report.graph_scores import Neighbourhood, neighbour_scores


@dataclass(frozen=True)
class RoundProgress:
    """A round that all remaining peers have finished: the data of a live display."""

    round: int
    rounds: int
    metric: MeasuredMetric  # the main one
    means: Mapping[str, float]  # by metric, over peers, on validation data: the test set must not guide decisions
    bytes: int  # so far
    neighbours: Neighbourhood | None

    @property
    def validation(self) -> float | None:
        """The mean of the main metric on validation data."""
        return self.means.get(self.metric.name)


def mean_over_peers(values: Sequence[float]) -> float | None:
    """The mean, to the bit independent of the order: a terminal and a page show the same digits."""
    return fmean(values) if values else None


OnRound = Callable[[RoundProgress], None]


class Progress:
    """Turns the records of single peers into finished rounds: a round is done when no peer is behind it."""

    def __init__(
        self,
        peers: int,
        rounds: int,
        clusters: list[int] | None,
        on_round: OnRound | None,
        metrics: Sequence[MeasuredMetric] = (ACCURACY,),
    ) -> None:
        self.rounds, self.clusters, self.on_round, self.metrics = rounds, clusters, on_round, metrics
        self.bytes = 0
        self.done = 0
        self.at = dict.fromkeys(range(peers), 0)  # the last round that each peer finished or skipped
        self.behind: Counter[int] = Counter({0: peers})
        self.validation: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))  # by metric
        self.lists: dict[int, dict[int, list[int]]] = defaultdict(dict)

    def see(self, record: Event, tell: bool = True) -> None:
        if isinstance(record, RunStarted | Offence | NotFinite):
            return
        if isinstance(record, PeerRound):
            self.bytes += sum(record.bytes.values())
            for metric in self.metrics:
                if (value := record.value(metric.name, "validation")) is not None:
                    self.validation[record.round][metric.name].append(value)
            if "neighbours" in record.notes and self.clusters:
                self.lists[record.round][record.peer] = record.notes["neighbours"]
        if record.peer in self.at:
            self._move(record)
            self._tell(tell)

    def _move(self, record: PeerRound | PeerAway) -> None:
        self.behind[self.at[record.peer]] -= 1
        if isinstance(record, PeerAway) and record.until is None:
            del self.at[record.peer]
        else:
            self.at[record.peer] = record.round
            self.behind[record.round] += 1

    def _tell(self, tell: bool) -> None:
        before = self.done
        while self.at and not self.behind[self.done]:
            self.done += 1
        if self.done == before:
            return
        values, lists = self.validation.get(self.done, {}), self.lists.get(self.done, {})
        for passed in [r for r in self.validation if r <= self.done]:
            del self.validation[passed]
        for passed in [r for r in self.lists if r <= self.done]:
            del self.lists[passed]
        if tell and self.on_round:
            means = {name: fmean(of_peers) for name, of_peers in values.items()}
            neighbours = neighbour_scores(lists, self.clusters) if lists and self.clusters else None
            self.on_round(RoundProgress(self.done, self.rounds, self.metrics[0], means, self.bytes, neighbours))
