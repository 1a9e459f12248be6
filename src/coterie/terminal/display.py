"""Shows a run in the terminal: live progress, then the results."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from coterie.core.formatting import aligned, count, duration, plain, short_name, size
from coterie.core.measured_metric import ACCURACY, MeasuredMetric
from coterie.core.summary import NeighbourScores, Spread, Summary
from coterie.methods.declared import notes_of, predictor_label
from coterie.report.gains import gain_counts, gains
from coterie.report.tables import side_by_side
from coterie.report.timing import time_to
from coterie.running.progress import RoundProgress
from coterie.simulation.director import Simulation

SECONDS_BETWEEN_LINES = 5.0
LABEL = 35  # characters of a label in the results
LEVEL = 0.0005  # shares that differ by less are printed alike


class Display:
    """A progress bar on a terminal; a line every few seconds elsewhere."""

    def __init__(self, title: str, plain: bool) -> None:
        self.title = title
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        if self._console.is_terminal and not plain:
            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
            self._bar = Progress(*columns, TimeRemainingColumn(), console=self._console)
        self._task: TaskID | None = None
        self._first: tuple[int, float] | None = None  # the first round shown, and when: after start-up
        self._last_line = 0.0
        self._old_handler: Any = None

    def __enter__(self) -> Display:
        if self._bar:
            self._bar.start()
            self._task = self._bar.add_task(self.title, total=None, text="preparing")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if self._bar:
            self._bar.stop()
        if self._old_handler is not None:
            signal.signal(signal.SIGINT, self._old_handler)

    def round(self, p: RoundProgress) -> None:
        text = progress_text(p)
        if self._bar and self._task is not None:
            self._bar.update(self._task, total=p.rounds, completed=p.round, text=text)
            return
        now = time.monotonic()
        self._first = self._first or (p.round, now)
        if now - self._last_line >= SECONDS_BETWEEN_LINES or p.round == p.rounds:
            self._last_line = now
            done = p.round - self._first[0]
            left = f", {duration((now - self._first[1]) / done * (p.rounds - p.round))} left" if done else ""
            print(f"{self.title}: {text}{left}", file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    def stop_on_interrupt(self, simulation: Simulation) -> None:
        """The first Ctrl-C stops the run at a checkpoint, the second one at once."""

        def ask(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self.say("stopping after this round; Ctrl-C again to stop at once")
            simulation.stop()

        self._old_handler = signal.signal(signal.SIGINT, ask)


def progress_text(p: RoundProgress) -> str:
    parts = [f"round {p.round}/{p.rounds}"]
    if p.validation is not None:
        parts.append(p.metric.on_validation(p.validation))
    if p.neighbours is not None:
        parts.append(f"precision {p.neighbours.precision:.2f} recall {p.neighbours.recall:.2f}")
    parts.append(size(p.bytes))
    return ", ".join(parts)


def results(summary: Summary, folder: Path) -> str:
    """The figures of one run, as text."""
    main, *others = summary.metrics
    last, selected = summary.main_spread.last, summary.main_spread.selected
    exchanged = f"{size(summary.bytes.total)} in {summary.messages.total:,} messages"
    name = short_name(summary.method)
    lines = [
        f"{name}: {summary.peers} peers, {summary.rounds} rounds, seed {summary.seed}{_task(summary)}",
        _labelled(_last_label(main), _spread(main, last)),
        *_by_architecture(main, last),
        _labelled(_selected_label(main), _spread(main, selected)),
        *(_labelled(_last_label(m), _spread(m, summary.of(m.name).last)) for m in others),
        _labelled("exchanged", exchanged),
    ]
    if scores := _scores(summary.neighbours):
        lines.append(f"  neighbours from the same cluster    {scores}")
    if means := _scores(summary.neighbours_mean):
        lines.append(f"  the same, mean over rounds          {means}")
    lines += _beside(summary)
    lines += _noted(summary)
    lines += [f"  MIXTURE of versions                 {change}" for change in summary.mixture]
    lines.append(f"  {duration(summary.seconds)}; all files are in {folder} (open report.html)")
    return "\n".join(lines)


def _task(summary: Summary) -> str:
    """What is predicted, if that is not a class: it may have been guessed from the labels."""
    return "" if summary.measures(ACCURACY.name) else "; regression (data.task)"


def _labelled(label: str, text: str) -> str:
    return f"  {plain(label, LABEL):<{LABEL}} {text}"


def _last_label(metric: MeasuredMetric) -> str:
    label = f"test {metric.label}, last round"
    return label if len(label) <= LABEL else f"test {metric.label}"


def _selected_label(metric: MeasuredMetric) -> str:
    label = f"test {metric.label}, validation-selected"
    return label if len(label) <= LABEL else "the same, validation-selected"


def _by_architecture(metric: MeasuredMetric, spread: Spread) -> Iterator[str]:
    if spread.by_architecture:
        shown = ", ".join(f"{name} {metric.text(mean)}" for name, mean in spread.by_architecture.items())
        yield _labelled("  by architecture", shown)


def _beside(summary: Summary) -> Iterator[str]:
    """The other predictors that peers measured."""
    for name, spread in summary.beside.spreads.items():
        change = spread.change
        between = f", relative change per peer {change['least']:+.1%} to {change['most']:+.1%}" if change else ""
        label = f"with {predictor_label(summary.method, name)}"
        yield _labelled(label, f"{summary.main_metric.text(spread.mean)}{between}")


def _noted(summary: Summary) -> Iterator[str]:
    """The figures that the method declares with a label."""
    figures = {**summary.beside.noted, **summary.noted}
    for note in notes_of(summary.method):
        if not note.label or note.key not in figures:
            continue
        value = figures[note.key]
        by_thing = value if isinstance(value, Mapping) else {"": value}
        shown = ", ".join(f"{plain(thing)} {format(number, note.form)}".strip() for thing, number in by_thing.items())
        yield _labelled(note.label, shown)


def _scores(scores: NeighbourScores) -> str:
    return ", ".join(f"{score} {value:.2f}" for score, value in scores.known().items())


def comparison(summaries: Sequence[Summary]) -> str:
    """A table of several methods on the same splits."""
    head, rows = side_by_side(summaries)
    first, second = (s.test.last for s in summaries[:2])
    table, metric = [aligned([head, *rows])], summaries[0].main_metric
    if first is not None and second is not None and summaries[1].main_metric == metric:
        names = [short_name(s.method) for s in summaries]
        gained = gain_counts(gains(summaries[0], summaries[1]).values())
        table.append(f"{_difference(names[0], names[1], metric.gain(first, second), metric)}: {gained}")
        table += _times_to(summaries[:2], metric)
    return "\n".join(["", *table])


def _difference(name: str, other: str, gain: float, metric: MeasuredMetric) -> str:
    if abs(gain) < LEVEL if metric.is_share else not gain:
        return f"{name} is level with {other}"
    return f"{name} {'beats' if gain > 0 else 'trails'} {other} by {metric.deviation(abs(gain))}{_in(metric)}"


def _in(metric: MeasuredMetric) -> str:
    return "" if metric == ACCURACY else f" in {metric.label}"


def _times_to(summaries: Sequence[Summary], metric: MeasuredMetric) -> list[str]:
    """The simulated time at which each method reached the best mean of the weaker one."""
    curves = [s.over_time for s in summaries]
    if any(len(curve) < 3 for curve in curves):  # too few points for a crossing time
        return []
    target = metric.worst(metric.best(value for _, value in curve) for curve in curves)
    times = [(short_name(s.method), time_to(curve, target, metric)) for s, curve in zip(summaries, curves, strict=True)]
    shown = ", ".join(f"{name} {duration(time)}" for name, time in times if time is not None)
    return [f"simulated time to {metric.text(target)}: {shown}"]


def _spread(metric: MeasuredMetric, spread: Spread) -> str:
    if spread.mean is None:
        return "undefined at all peers" if spread.undefined else "not measured"
    mean, std, worst = map(metric.text, (spread.mean, spread.std, spread.worst_decile))
    without = f"; undefined at {count(spread.undefined, 'peer')}" if spread.undefined else ""
    return f"{mean} (± {std} over peers, worst decile {worst}{without})"


@contextmanager
def download_progress(name: str) -> Iterator[Callable[[int, int | None, str], None]]:
    """Progress of a download: a bar on a terminal, plain lines elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        printed: set[str] = set()

        def print_once(done: int, total: int | None, text: str) -> None:  # noqa: ARG001
            if text not in printed:
                printed.add(text)
                print(f"{name}: {text}", file=sys.stderr, flush=True)

        yield print_once
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(name, total=None)

        def update(done: int, total: int | None, text: str) -> None:
            bar.update(task, completed=done, total=total, description=f"{name}: {text}")

        yield update
