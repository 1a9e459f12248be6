"""The page of the docs with every table that has runs."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.report.words import markdown
from coterie.reproducing.results import Results, notes, rows

HEAD = """# The papers' tables, run again

Made by `coterie reproduce all --print --page docs/reproduced.md` from the runs that were there. Under each
heading stands the command that makes its runs. What the figures mean, and why some differ from the paper's,
is on the methods' pages.
"""


def command(found: Results, seeds: Sequence[int], words: Sequence[str]) -> str:
    """The command line that makes these runs."""
    small = " --small" if found.small else ""
    more = "".join(f" {word}" for word in words)
    chosen = f" --seeds {','.join(map(str, seeds))}" if tuple(seeds) != (0, 1, 2) else ""
    return f"coterie reproduce {found.table.name}/{found.column.name}{small}{chosen}{more}"


def page(everything: Sequence[tuple[Results, str]]) -> str:
    """Every table with its command, the version and the days."""
    parts = [HEAD]
    for found, line in everything:
        form = ", small form" if found.small else ""
        parts += [f"## {found.table.name}/{found.column.name}{form}", "", *notes(found), ""]
        parts += ["<!-- not run: takes hours -->", "```sh", line, "```", ""]
        parts += [markdown(rows(found)), "", f"Made with {found.made}.", ""]
    return "\n".join(parts)
