"""The figures in summary.json as typed values: those of a run, and those of one real peer.

Both are also read-only mappings over their JSON form, which is what `summary.json` holds. One that was read keeps the
JSON it was read from: older versions lack newer fields, and both are written back unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from coterie.core.errors import CoterieError, RunError, unknown
from coterie.core.json_values import Json
from coterie.core.measured_metric import ACCURACY, MeasuredMetric, described

LAST, SELECTED = "last", "selected"
T = TypeVar("T")


def _optional(default: Any = None) -> Any:
    """A field that is left out of the JSON while it has its default."""
    if default == {}:
        return field(default_factory=dict, metadata={"optional": True})
    return field(default=default, metadata={"optional": True})


@dataclass(frozen=True)
class LastAndSelected(Generic[T]):
    """A figure at each peer's last measured round, and at its round selected by validation."""

    last: T
    selected: T

    def at(self, which: str) -> T:
        return {LAST: self.last, SELECTED: self.selected}[which]


@dataclass(frozen=True)
class Spread:
    """A metric on test data over peers; None if no peer has a value."""

    mean: float | None = None
    std: float | None = None
    worst_decile: float | None = None  # the mean of the worst tenth, at least one peer
    per_peer: Sequence[float | None] = ()  # None for a peer that was not measured, or whose value is undefined
    by_architecture: Mapping[str, float | None] = _optional({})  # the mean of each, where peers have several
    change: Mapping[str, float] | None = _optional()  # of a predictor beside: least, mean and most over peers
    undefined: int | None = _optional()  # measured peers for whose labels the metric is undefined; not for accuracy


NOT_MEASURED = LastAndSelected(Spread(), Spread())


@dataclass(frozen=True)
class MetricScores:
    """A metric other than accuracy: what it is, and its values at each peer's last and selected round."""

    label: str = ""
    higher_is_better: bool = True
    unit: str = ""
    last: Spread = Spread()
    selected: Spread = Spread()


@dataclass(frozen=True)
class Totals:
    """A count over the whole run."""

    total: int = 0
    by_artifact: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class IdleShares:
    """The share of its time that a peer waited for other peers, over peers."""

    mean: float
    most: float | None


@dataclass(frozen=True)
class Diverged:
    """The peers whose final models are not finite, and the round since which the first of them was measured so."""

    peers: Sequence[int]
    since: int | None


@dataclass(frozen=True)
class NeighbourScores:
    """Neighbours against the true clusters; None where unknown."""

    precision: float | None = _optional()
    recall: float | None = _optional()
    mass: float | None = _optional()

    def known(self) -> dict[str, float]:
        """The scores that are known, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class Beside:
    """Other predictors that peers measured beside their own, by name."""

    spreads: Mapping[str, Spread] = field(default_factory=dict, metadata={"inline": True})
    noted: Mapping[str, float] = field(default_factory=dict, metadata={"inline": True})  # declared by the method


class _JsonMapping(Mapping[str, Any]):
    """A dataclass that reads like its JSON form."""

    @cached_property
    def _json(self) -> Json:
        plain: Json = _plain(self)
        return plain

    def to_json(self) -> Json:
        """The content of summary.json."""
        return dict(self._json)

    def _as_read(self, content: Mapping[str, Any]) -> Self:
        self.__dict__["_json"] = dict(content)
        return self

    def __getitem__(self, key: str) -> Any:
        return self._json[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._json)

    def __len__(self) -> int:
        return len(self._json)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._json})"


@dataclass(frozen=True, eq=False, repr=False)
class Summary(_JsonMapping):
    """The figures of a run. The README describes the fields."""

    method: str = ""
    seed: int = 0
    peers: int = 0
    rounds: int = 0
    accuracy: LastAndSelected[Spread] = _optional(NOT_MEASURED)  # left out for a regression
    validation: LastAndSelected[float | None] = LastAndSelected(None, None)  # the mean of the main metric
    bytes: Totals = Totals()
    messages: Totals = Totals()
    simulated_seconds: float = 0.0
    idle: IdleShares | None = _optional()
    over_time: Sequence[tuple[float, float]] = ()  # simulated seconds, and the mean of the main metric on test data
    seconds: float = 0.0
    not_finite: Diverged | None = _optional()
    beside: Beside = _optional(Beside())
    # What the method declares of its notes: a number, or one for each of several things.
    noted: Mapping[str, float | Mapping[str, float]] = field(default_factory=dict, metadata={"inline": True})
    neighbours: NeighbourScores = _optional(NeighbourScores())
    neighbours_mean: NeighbourScores = _optional(NeighbourScores())
    mixture: Sequence[str] = _optional(())
    scores: Mapping[str, MetricScores] = _optional({})  # of metrics other than accuracy
    main: str = _optional(ACCURACY.name)  # the metric by which rounds are selected and runs are compared
    label_unit: str = _optional("")  # of a regression

    @property
    def metrics(self) -> tuple[MeasuredMetric, ...]:
        """All metrics of the run, the main one first."""
        given = [self._described(name, scores) for name, scores in self.scores.items()]
        every = given if self.accuracy == NOT_MEASURED and given else [ACCURACY, *given]
        return tuple(sorted(every, key=lambda metric: metric.name != self.main))

    @property
    def main_metric(self) -> MeasuredMetric:
        return self.metrics[0]

    def _described(self, name: str, scores: MetricScores) -> MeasuredMetric:
        return MeasuredMetric(name, scores.label or name, scores.higher_is_better, scores.unit, self.label_unit)

    def measures(self, metric: str) -> bool:
        """Whether the run measured a metric of this name."""
        return any(metric == measured.name for measured in self.metrics)

    def of(self, metric: str) -> LastAndSelected[Spread]:
        """A metric over peers; raises CoterieError if the run did not measure it."""
        if not self.measures(metric):
            raise CoterieError(unknown("metric", metric, [measured.name for measured in self.metrics]))
        scores = self.scores.get(metric)
        return self.accuracy if scores is None else LastAndSelected(scores.last, scores.selected)

    @property
    def main_spread(self) -> LastAndSelected[Spread]:
        """The main metric over peers."""
        return self.of(self.main_metric.name)

    @property
    def test_values(self) -> dict[str, LastAndSelected[float | None]]:
        """The mean of each metric over peers, on their test data."""
        spreads = {metric.name: self.of(metric.name) for metric in self.metrics}
        return {name: LastAndSelected(spread.last.mean, spread.selected.mean) for name, spread in spreads.items()}

    @property
    def test(self) -> LastAndSelected[float | None]:
        """The mean of the main metric over peers, on their test data."""
        return self.test_values[self.main_metric.name]

    @property
    def total_bytes(self) -> int:
        return self.bytes.total

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Summary:
        """From the content of summary.json. Missing or malformed values (of an older version) get their default."""
        accuracy, validation = _table(content, "accuracy"), _table(content, "validation")
        return cls(
            method=_text(content, "method"),
            seed=_count(content, "seed"),
            peers=_count(content, "peers"),
            rounds=_count(content, "rounds"),
            main=_text(content, "main") or ACCURACY.name,
            label_unit=_text(content, "label_unit"),
            accuracy=LastAndSelected(*(_spread(_table(accuracy, which)) for which in (LAST, SELECTED)))
            if accuracy
            else NOT_MEASURED,
            validation=LastAndSelected(_number(validation, LAST), _number(validation, SELECTED)),
            bytes=_totals(_table(content, "bytes")),
            messages=_totals(_table(content, "messages")),
            simulated_seconds=_number(content, "simulated_seconds") or 0.0,
            idle=_idle(_table(content, "idle")),
            over_time=_curve(content.get("over_time")),
            seconds=_number(content, "seconds") or 0.0,
            not_finite=_diverged(content),
            beside=_beside(_table(content, "beside")),
            noted=_noted(content, {f.name for f in fields(cls)}),
            neighbours=_scores(_table(content, "neighbours")),
            neighbours_mean=_scores(_table(content, "neighbours_mean")),
            scores={name: _metric(value) for name, value in _tables(content, "scores")},
            mixture=tuple(map(str, _items(content, "mixture"))),
        )._as_read(content)

    @classmethod
    def read(cls, path: Path) -> Summary:
        """The summary in a file of this or an older version."""
        return cls.from_json(_content(path))


@dataclass(frozen=True, eq=False, repr=False)
class PeerSummary(_JsonMapping):
    """The figures of one real peer."""

    name: str = ""
    method: str = ""
    seed: int = 0
    rounds: int = 0  # completed
    accuracy: LastAndSelected[float | None] | None = _optional()  # on its own test data; left out for a regression
    bytes: int = 0
    messages: int = 0
    waited: float = 0.0  # seconds
    offences: int = 0
    seconds: float = 0.0
    not_finite: Diverged | None = _optional()
    mixture: Sequence[str] = _optional(())
    scores: Mapping[str, LastAndSelected[float | None]] = _optional({})  # of metrics other than accuracy
    main: str = _optional(ACCURACY.name)
    main_metric: MeasuredMetric = _optional(ACCURACY)

    @property
    def test_values(self) -> dict[str, LastAndSelected[float | None]]:
        """Each metric on its own test data."""
        return {**({ACCURACY.name: self.accuracy} if self.accuracy else {}), **self.scores}

    @property
    def test(self) -> LastAndSelected[float | None]:
        """The main metric on its own test data."""
        return self.test_values.get(self.main, LastAndSelected(None, None))

    @property
    def total_bytes(self) -> int:
        return self.bytes

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> PeerSummary:
        """As `Summary.from_json`."""
        accuracy = _table(content, "accuracy")
        return cls(
            name=_text(content, "name"),
            method=_text(content, "method"),
            seed=_count(content, "seed"),
            rounds=_count(content, "rounds"),
            main=_text(content, "main") or ACCURACY.name,
            main_metric=described(_table(content, "main_metric")),
            accuracy=LastAndSelected(_number(accuracy, LAST), _number(accuracy, SELECTED)) if accuracy else None,
            bytes=_count(content, "bytes"),
            messages=_count(content, "messages"),
            waited=_number(content, "waited") or 0.0,
            offences=_count(content, "offences"),
            seconds=_number(content, "seconds") or 0.0,
            not_finite=_diverged(content),
            scores={
                name: LastAndSelected(_number(value, LAST), _number(value, SELECTED))
                for name, value in _tables(content, "scores")
            },
            mixture=tuple(map(str, _items(content, "mixture"))),
        )._as_read(content)


AnySummary = Summary | PeerSummary


def any_from_json(content: Mapping[str, Any]) -> AnySummary:
    """A run's summary, or that of a real peer, which has a name."""
    return PeerSummary.from_json(content) if "name" in content else Summary.from_json(content)


def read_any(path: Path) -> AnySummary:
    return any_from_json(_content(path))


def _content(path: Path) -> Json:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({error}): delete it and run the command again") from error
    if not isinstance(content, dict):
        raise RunError(f"{path} is not a run's summary: delete it and run the command again")
    return content


# -- to JSON -----------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """Dataclasses and mappings as dicts, sequences as lists."""
    if is_dataclass(value):
        plain: Json = {}
        for f in fields(value):
            part = getattr(value, f.name)
            if f.metadata.get("optional") and part == _default(f):
                continue
            plain |= _plain(part) if f.metadata.get("inline") else {f.name: _plain(part)}
        return plain
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def _default(f: Field[Any]) -> Any:
    return f.default if f.default_factory is MISSING else f.default_factory()


# -- from JSON ---------------------------------------------------------------------------------


def _table(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = content.get(key)
    return value if isinstance(value, Mapping) else {}


def _tables(content: Mapping[str, Any], key: str) -> list[tuple[str, Mapping[str, Any]]]:
    """The tables in a table, by name."""
    return [(name, value) for name, value in _table(content, key).items() if isinstance(value, Mapping)]


def _items(content: Mapping[str, Any], key: str) -> list[Any]:
    value = content.get(key)
    return value if isinstance(value, list) else []


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(content: Mapping[str, Any], key: str) -> float | None:
    value = content.get(key)
    return value if _is_number(value) else None


def _numbers(content: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in content.items() if _is_number(value)}


def _count(content: Mapping[str, Any], key: str) -> int:
    value = content.get(key)
    return value if isinstance(value, int) else 0


def _text(content: Mapping[str, Any], key: str) -> str:
    value = content.get(key)
    return value if isinstance(value, str) else ""


def _metric(content: Mapping[str, Any]) -> MetricScores:
    last, selected = (_spread(_table(content, which)) for which in (LAST, SELECTED))
    return MetricScores(
        _text(content, "label"), content.get("higher_is_better") is not False, _text(content, "unit"), last, selected
    )


def _spread(content: Mapping[str, Any]) -> Spread:
    means = _table(content, "by_architecture")
    return Spread(
        _number(content, "mean"),
        _number(content, "std"),
        _number(content, "worst_decile"),
        [value if _is_number(value) else None for value in _items(content, "per_peer")],
        {name: _number(means, name) for name in means},
        _numbers(_table(content, "change")) if "change" in content else None,
        _count(content, "undefined") if "undefined" in content else None,
    )


def _totals(content: Mapping[str, Any]) -> Totals:
    return Totals(_count(content, "total"), _numbers(_table(content, "by_artifact")))


def _idle(content: Mapping[str, Any]) -> IdleShares | None:
    mean = _number(content, "mean")
    return None if mean is None else IdleShares(mean, _number(content, "most"))


def _curve(points: object) -> list[tuple[float, float]]:
    pairs = points if isinstance(points, list) else []
    return [(p[0], p[1]) for p in pairs if isinstance(p, list) and len(p) == 2 and all(map(_is_number, p))]


def _diverged(content: Mapping[str, Any]) -> Diverged | None:
    if "not_finite" not in content:
        return None
    entry = _table(content, "not_finite")
    return Diverged([peer for peer in _items(entry, "peers") if isinstance(peer, int)], _count(entry, "since") or None)


def _beside(content: Mapping[str, Any]) -> Beside:
    spreads = {name: _spread(value) for name, value in content.items() if isinstance(value, Mapping)}
    return Beside(spreads, _numbers(content))


def _noted(content: Mapping[str, Any], fields_of_core: Collection[str]) -> dict[str, Any]:
    """All other fields that are a number, or a table of numbers."""
    others = {key: value for key, value in content.items() if key not in fields_of_core}
    tables = {key: _numbers(value) for key, value in others.items() if isinstance(value, Mapping)}
    return {key: tables.get(key, value) for key, value in others.items() if tables.get(key) or _is_number(value)}


def _scores(content: Mapping[str, Any]) -> NeighbourScores:
    return NeighbourScores(_number(content, "precision"), _number(content, "recall"), _number(content, "mass"))
