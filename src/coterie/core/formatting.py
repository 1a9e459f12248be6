"""Numbers as people read them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

UNITS = ("B", "kB", "MB", "GB", "TB", "PB")  # of bytes, each 1000 of the one before
NOTHING = "–"
MOST_NAMED = 5  # peers, in a sentence


def count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def percent(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.1f}%"


def size(bytes: int) -> str:
    """Bytes as people read them, in powers of 1000."""
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
    """A dataset or a method is a name, or a path: then its end will do, also among settings such as `name=PATH k=3`."""
    return re.sub(r"[^=,]*/", "", name)


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Short ones, where they still differ."""
    shorts = {name: short_name(name) for name in names}
    often = Counter(shorts.values())
    return {name: short if often[short] == 1 else name for name, short in shorts.items()}


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table for Markdown, its head first."""
    head, *body = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body))


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """A table for a terminal: columns as wide as their widest cell."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def not_finite_peers(told: Mapping[str, Any], peers: int | None = None) -> str:
    """What a summary says of models that are not finite; `peers` is how many there are in all, unless it is of one."""
    whose: Sequence[int] = told["peers"]
    more = f" and {len(whose) - MOST_NAMED} more" if len(whose) > MOST_NAMED else ""
    named = ", ".join(map(str, whose[:MOST_NAMED])) + more
    of = f"{len(whose)} of {count(peers, 'peer')} ({named})" if peers else f"peer {named}"
    since = f" since round {told['since']}" if told["since"] else ""
    return f"{of} ended with a model that is not finite (NaN or infinite numbers{since})"
