"""report.html of one run: one file that needs nothing else, from the run's events and its summary alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from coterie.events import Event, PeerAway, RunStarted, of_kind
from coterie.graph import Neighbourhood
from coterie.report import figures
from coterie.report.figures import Point
from coterie.report.style import STYLE
from coterie.report.summary import started
from coterie.report.svg import MAX_CELLS
from coterie.report.tables import left, peer_table, round_table
from coterie.report.words import count, duration, percent, size

# Nothing is ever fetched, and nothing runs, whatever the names in a run contain.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def write_report(events: Sequence[Event], summary: dict[str, Any], path: Path) -> None:
    """Write the report of a finished run."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(page(events, summary), encoding="utf-8")
    temporary.replace(path)


def page(events: Sequence[Event], summary: Mapping[str, Any]) -> str:
    start = started(events)
    found = figures.points(events)
    scores, masses = figures.neighbour_points(events), figures.mass_points(events)
    amounts = f"{count(start.peers, 'peer')} · {count(start.rounds, 'round')}"
    title = f"{start.method} · seed {start.seed} · {amounts}"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>",
        f"<h1>{escape(title)}</h1>",
        _about(events, start),
        _headline(summary),
        '<div class="figures">',
        _accuracy(found, start.rounds, test=True),
        _accuracy(found, start.rounds, test=False),
        _bytes(found),
        _neighbours(scores, masses, start),
        _graph(events, start),
        _classes(start),
        "</div>",
        round_table(found, scores, masses),
        peer_table(events, start, summary),
        "</main></body></html>",
    ]
    return "\n".join(parts) + "\n"


# -- the top ---------------------------------------------------------------------------------------


def _about(events: Sequence[Event], start: RunStarted) -> str:
    """What the figures below are of."""
    known = "true clusters known" if start.clusters is not None else "true clusters not known"
    facts = [f"coterie {start.version}" if start.version else "coterie", known]
    if gone := left(events):
        facts.append(f"{count(len(gone), 'peer')} left for good before the end")
    away = sum(e.until is not None for e in of_kind(events, PeerAway))
    if away:
        facts.append(f"{count(away, 'round')} sat out by single peers")
    return f'<p class="soft">{escape("; ".join(facts))}.</p>'


def _headline(summary: Mapping[str, Any]) -> str:
    tiles = []
    for key, name in (("last", "last round measured"), ("selected", "round selected by validation")):
        spread = summary["accuracy"][key]
        tiles.append((f"Mean test accuracy, {name}", percent(spread["mean"]), _spread(spread)))
    alone = summary.get("beside", {}).get("alone")
    if alone:
        tiles.append(("With one's own models alone", percent(alone["mean"]), _spread(alone)))
    mixture = summary.get("beside", {}).get("mixture")
    if mixture:
        tiles.append(("With the mixture of all its models", percent(mixture["mean"]), _spread(mixture)))
    for key, show in (("bytes", size), ("messages", "{:,}".format)):
        total = summary[key]["total"]
        by = ", ".join(f"{name} {show(n)}" for name, n in summary[key]["by_artifact"].items())
        tiles.append((f"{key.capitalize()} exchanged", show(total), by if total else "nothing was exchanged"))
    idle = summary.get("idle", {}).get("mean")
    waited = f"; {percent(idle)} of it waiting for others" if idle else ""
    tiles.append(("Simulated time", duration(summary["simulated_seconds"]), f"on the peers' virtual clock{waited}"))
    if "neighbours" in summary:
        for key, value in summary["neighbours"].items():
            about = "of the weight inside the true cluster" if key == "mass" else "against the true clusters"
            tiles.append((f"Neighbour {key}", percent(value), f"{about}, last round"))
    cells = (
        f"<div><dt>{escape(n)}</dt><dd><b>{escape(v)}</b><small>{escape(a)}</small></dd></div>" for n, v, a in tiles
    )
    return f"<dl>{''.join(cells)}</dl>"


def _spread(spread: Mapping[str, Any]) -> str:
    if spread["mean"] is None:
        return "no peer was measured"
    return f"± {100 * spread['std']:.1f} points over peers (std); worst tenth {percent(spread['worst_decile'])}"


# -- the figures -----------------------------------------------------------------------------------


def _section(heading: str, drawing: str | None, caption: str, legend: Iterable[str] = ()) -> str:
    """A figure with its caption, or only a sentence where there is nothing to draw."""
    if drawing is None:
        return f"<section><h2>{escape(heading)}</h2><p>{escape(caption)}</p></section>"
    keys = "".join(f'<span class="key {name}"></span>{name}' for name in legend)
    shown = f'<p class="soft">{keys}</p>' if keys else ""
    below = f"<figcaption>{escape(caption)}</figcaption>"
    return f"<section><h2>{escape(heading)}</h2>{shown}<figure>{drawing}{below}</figure></section>"


def _accuracy(found: Sequence[Point], rounds: int, test: bool) -> str:
    what = "test" if test else "validation"
    drawing = figures.accuracy_chart(found, rounds, test)
    caption = "No peer was measured."
    if drawing:
        caption = "Line: mean over peers. Bands: the middle 50% and the middle 80% of peers."
        caption += " Each peer on its own test data." if test else " Rounds are selected on this data, never on test."
    return _section(f"{what.capitalize()} accuracy over rounds", drawing, caption)


def _bytes(found: Sequence[Point]) -> str:
    drawing = figures.bytes_chart(found)
    caption = "Mean over peers, against all bytes by the end of that round." if drawing else "Nothing was exchanged."
    return _section("Accuracy against bytes exchanged", drawing, caption, ("test", "validation"))


def _neighbours(scores: dict[int, Neighbourhood], masses: dict[int, float], start: RunStarted) -> str:
    drawing = figures.neighbour_chart(scores, masses, start.rounds)
    told, names = [], []
    if scores:
        told.append("Precision: the share of a peer's neighbours that are of its true cluster. Recall: the share of")
        told.append("its true cluster that are its neighbours.")
        names += ["precision", "recall"]
    if masses:
        told.append("Mass: the share of a peer's averaging weight, its own included, that lies on its true cluster.")
        names.append("mass")
    caption = " ".join([*told, "Means over peers."])
    if drawing is None:
        unknown = "The true clusters are not known."
        caption = unknown if start.clusters is None else "This method keeps no lists of neighbours."
    return _section("Neighbours against the true clusters", drawing, caption, names)


def _graph(events: Sequence[Event], start: RunStarted) -> str:
    heading = "Who averaged with whom"
    found = figures.last_graph(events)
    if found is None:
        return _section(heading, None, "This run tells of no averaging between peers.")
    weights, first, last = found
    drawing, most = figures.graph_map(start, weights)
    span = f"rounds {first} to {last}" if first < last else f"round {last}"
    caption = f"Mean weight in {span}; the full colour is {most:.2g}. A peer's weight on itself is left out. "
    return _section(heading, drawing, caption + _ordering(start))


def _classes(start: RunStarted) -> str:
    heading = "Who holds which classes"
    found = figures.class_map(start)
    if found is None:
        return _section(heading, None, "The counts of classes are not known for every peer.")
    drawing, most = found
    caption = f"The share of each class in a peer's training data; the full colour is {percent(most)}. "
    return _section(heading, drawing, caption + _ordering(start))


def _ordering(start: RunStarted) -> str:
    by = -(-start.peers // MAX_CELLS)
    marks = ": lines part the clusters, which are numbered at the side" if start.clusters is not None else ""
    thinned = f"; each cell is the mean of {by} neighbouring peers" if by > 1 else ""
    return f"Peers are ordered {figures.order(start)[1]}{marks}{thinned}."
