"""The tables of a report: by round, by peer, by architecture, and a run beside its baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from coterie.core.events import Event, PeerAway, RunStarted, of_kind
from coterie.core.formatting import NOTHING, duration, percent, short_name, size
from coterie.core.measured_metric import MeasuredMetric
from coterie.core.summary import LAST, SELECTED, Summary
from coterie.report.graph_scores import Neighbourhood
from coterie.report.measures import Point, spread_out
from coterie.report.scores import peers_by_architecture

TABLE_PEERS = 200  # rows of the table of peers
TABLE_ROUNDS = 30  # rows of the table of rounds


def left(events: Sequence[Event]) -> dict[int, int]:
    """The peers that left for good, with the round in which they left."""
    return {e.peer: e.round for e in of_kind(events, PeerAway) if e.until is None}


class MetricPoints(NamedTuple):
    """A metric round by round."""

    metric: MeasuredMetric
    validation: Sequence[Point]
    test: Sequence[Point]


def round_table(
    measured: Sequence[MetricPoints], scores: Mapping[int, Neighbourhood], masses: Mapping[int, float]
) -> str:
    """The main metric, which comes first, on both splits; further metrics on the test data."""
    main, *others = measured
    if not main.test:
        return ""
    shown = spread_out(main.test, TABLE_ROUNDS)
    validation = {p.round: p.mean for p in main.validation}
    further = [(entry.metric, {p.round: p.mean for p in entry.test}) for entry in others]
    head = ["round", "peers measured", "validation", "test", "test, 10% and 90% of peers"]
    head += [*(f"{metric.label}, test" for metric, _ in further), "bytes so far"]
    head += ["precision", "recall"] if scores else []
    head += ["mass"] if masses else []
    text, rows = main.metric.text, []
    for p in shown:
        row = [str(p.round), f"{p.peers:,}", text(validation.get(p.round)), text(p.mean)]
        row += [f"{text(p.quantiles[0])} to {text(p.quantiles[-1])}"]
        row += [*(metric.text(means.get(p.round)) for metric, means in further), size(p.bytes)]
        if scores:
            score = scores.get(p.round)
            row += [percent(score.precision), percent(score.recall)] if score else [NOTHING, NOTHING]
        row += [percent(masses.get(p.round))] if masses else []
        rows.append(row)
    caption = f"{main.metric.title}, and other figures: means over the peers measured in a round."
    if len(shown) < len(main.test):
        caption += f" {len(shown)} of {len(main.test)} measured rounds, evenly spaced."
    return table("Round by round", caption, head, rows)


def side_by_side(summaries: Sequence[Summary]) -> tuple[list[str], list[list[str]]]:
    """Header and rows that compare several runs on the same splits, for a page and for the terminal."""
    head = ["method", "last", "selected", "worst decile", "exchanged", "idle", "simulated"]
    rows = []
    for s in summaries:
        figures = [s.main_metric.text(x) for x in (s.test.last, s.test.selected, s.main_spread.last.worst_decile)]
        idle = percent(s.idle.mean) if s.idle else "?"
        took = duration(s.simulated_seconds)
        rows.append([short_name(s.method), *figures, size(s.bytes.total), idle, took])
    return head, rows


def peer_table(
    events: Sequence[Event],
    start: RunStarted,
    summary: Summary,
    gained: Mapping[int, float] | None = None,
    against: str = "",
) -> str:
    """With a baseline, `gained` is each peer's gain at its last round, and `against` the baseline's name."""
    main, *others = summary.metrics
    gone = left(events)
    head = ["peer", "architecture", "training samples", "true cluster", "test, last", "test, selected"]
    head += [f"gain against {against}, last"] if gained else []
    head += [f"{metric.label}, last" for metric in others]
    head += ["left in round"] if gone else []
    rows = []
    for p in range(min(start.peers, TABLE_PEERS)):
        row = [
            start.called(p) if start.names else str(p),
            _item(start.architectures, p),
            _item(start.samples, p),
            _item(start.clusters, p),
        ]
        row += [main.text(summary.main_spread.at(at).per_peer[p]) for at in (LAST, SELECTED)]
        row += [main.difference(gained[p]) if p in gained else NOTHING] if gained else []
        row += [metric.text(summary.of(metric.name).last.per_peer[p]) for metric in others]
        row += [str(gone.get(p, NOTHING))] if gone else []
        rows.append(row)
    rounds = "at its last measured round, and at its best round by validation"
    caption = f"{main.title} on a peer's own test data: {rounds}."
    if start.peers > TABLE_PEERS:
        caption += f" The first {TABLE_PEERS} of {start.peers:,} peers; summary.json has all of them."
    return table("Peer by peer", caption, head, rows, names=(0, 1) if start.names else (1,))


def architecture_table(start: RunStarted, summary: Summary) -> str:
    """The main metric by architecture, also of other measured predictors; empty where all peers have the same."""
    peers_by_name = peers_by_architecture(start)
    if not peers_by_name:
        return ""
    metric = summary.main_metric
    spreads = {f"test, {key}": summary.main_spread.at(key) for key in (LAST, SELECTED)}
    spreads |= {f"{key}, last": spread for key, spread in summary.beside.spreads.items()}
    means = {key: spread.by_architecture for key, spread in spreads.items()}
    rows = [
        [name, f"{len(peers):,}", *(metric.text(of_each.get(name)) for of_each in means.values())]
        for name, peers in peers_by_name.items()
    ]
    caption = f"{metric.title}: means over the peers that have the architecture, on their own test data."
    return table("Architecture by architecture", caption, ["architecture", "peers", *spreads], rows, names=(0,))


def table(
    heading: str, caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], names: Sequence[int] = ()
) -> str:
    """A collapsible table."""
    return f"<details><summary>{escape(heading)}</summary>{open_table(heading, caption, head, rows, names)}</details>"


def open_table(
    heading: str, caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], names: Sequence[int] = ()
) -> str:
    """A scrollable table. The first cell of a row is its header; the columns in `names` are left-aligned."""

    def cell(tag: str, column: int, value: str, scope: str = "") -> str:
        css = ' class="name"' if column in names else ""
        shown = escape(value).replace(",", ",<wbr>") if column in names else escape(value)  # a name may break there
        return f"<{tag}{scope}{css}>{shown}</{tag}>"

    top = "".join(cell("th", i, name, ' scope="col"') for i, name in enumerate(head))
    lines = (
        cell("th", 0, row[0], ' scope="row"') + "".join(cell("td", i, v) for i, v in enumerate(row[1:], 1))
        for row in rows
    )
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(heading)}"><table>'
        f"<caption>{escape(caption)}</caption>"
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _item(values: Sequence[object] | None, place: int) -> str:
    return str(values[place]) if values is not None and place < len(values) else NOTHING
