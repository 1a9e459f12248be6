"""Human-readable numbers, names, tables and texts from elsewhere."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coterie.core.summary import Diverged

UNITS = ("B", "kB", "MB", "GB", "TB", "PB")  # of bytes, each 1000 times the one before
NOTHING = "–"
LONGEST = 300  # characters of a text from elsewhere
MOST_NAMED = 5  # peers, in a sentence
LONGEST_NAME = 40  # characters of a peer's name
LONGEST_LABEL = 14  # where there is little space


def plain(text: str, longest: int = LONGEST) -> str:
    """Text from elsewhere, safe for one line of a terminal, log or page: printable, and at most `longest` characters.

    Characters that could control a terminal, reverse the text or break the line are escaped, as in `\\x1b`.
    """
    start = text[: longest + 1]  # an escape is longer than its character, so the rest cannot matter
    escaped = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in start)
    return escaped if len(escaped) <= longest else f"{escaped[: longest - 1]}…"


def peer_name(peer: int, names: Sequence[str] = ()) -> str:
    """How a peer is called in texts and figures: by the name of its site if it has one, otherwise by its number."""
    if peer >= len(names):
        return f"peer {peer}"
    return plain(f"site {names[peer]}" if names[peer].isdecimal() else names[peer], LONGEST_NAME)


def peer_label(peer: int, names: Sequence[str] = ()) -> str:
    """The same where it is clear that peers are meant and space is scarce, as in a table or on an axis."""
    return plain(names[peer], LONGEST_LABEL) if peer < len(names) else str(peer)


def first_few(texts: Sequence[str], most: int = MOST_NAMED) -> str:
    """A list for a sentence that has no room for many."""
    return ", ".join(texts[:most]) + (", ..." if len(texts) > most else "")


def count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def percent(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.1f}%"


def size(bytes: int) -> str:
    """A human-readable number of bytes, in powers of 1000."""
    value, unit = float(bytes), 0
    while value >= 999.5 and unit < len(UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.0f} {UNITS[unit]}" if unit == 0 or value >= 99.95 else f"{value:.3g} {UNITS[unit]}"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min {rest} s"


def short_name(name: str) -> str:
    """Drop the folders of a path that names a dataset or a method, also within settings such as `name=PATH k=3`."""
    return re.sub(r"[^=,]*/", "", name)


def short_names(names: Iterable[str]) -> dict[str, str]:
    """The short form of each name, or the full one where two short forms are equal."""
    shorts = {name: short_name(name) for name in names}
    counts = Counter(shorts.values())
    return {name: short if counts[short] == 1 else name for name, short in shorts.items()}


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first row is its head."""
    head, *body = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body))


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """A terminal table: columns as wide as their widest cell."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def not_finite_peers(entry: Diverged, peers: int | None = None) -> str:
    """A sentence from a summary's entry on models that are not finite; `peers` is their total number (None for the
    summary of a single peer)."""
    diverged = entry.peers
    more = f" and {len(diverged) - MOST_NAMED} more" if len(diverged) > MOST_NAMED else ""
    named = ", ".join(map(str, diverged[:MOST_NAMED])) + more
    subject = f"{len(diverged)} of {count(peers, 'peer')} ({named})" if peers else f"peer {named}"
    since = f" since round {entry.since}" if entry.since else ""
    return f"{subject} ended with a model that is not finite (NaN or infinite numbers{since})"
