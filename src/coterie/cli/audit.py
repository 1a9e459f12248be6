"""`coterie audit FILE`: verify an audit log and summarise it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.core.formatting import plain
from coterie.core.run_folder import RunFolder

if TYPE_CHECKING:
    from coterie.network.audit import Summary


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    audit = commands.add_parser(
        "audit",
        help="verify a peer's audit log and summarise what the peer sent",
        description="Verify the hash chain of an audit log and summarise which artifacts the peer sent, and to whom. "
        "Compare the head hash with one noted earlier: only that shows whether the end of the log was cut off.",
    )
    audit.add_argument("file", type=Path, help="an audit.jsonl file, or the peer's folder that contains it")
    audit.add_argument("--json", action="store_true", help="print the summary as JSON")
    audit.set_defaults(command=_audit)


def _audit(options: argparse.Namespace) -> None:
    import dataclasses
    import json

    from coterie.network.audit import verify

    summary = verify(RunFolder(options.file).audit if options.file.is_dir() else options.file)
    print(json.dumps(dataclasses.asdict(summary), indent=2) if options.json else text(summary))


def text(summary: Summary) -> str:
    """The summary for people: the verdict, the owner of the log, and two tables."""
    from coterie.core.formatting import count, short_name, size

    methods = _listed([short_name(name) for name in summary.methods])
    lines = [
        f"intact: {count(summary.records, 'record')} from {summary.first} to {summary.last}, head {summary.head}",
        f"peer {plain(summary.who)} (certificate {_listed(summary.serials)}), method {methods}",
    ]
    if summary.cut:
        lines.append(f"repaired: {count(summary.cut, 'incomplete line')} left by a crash and dropped on restart")
    if not summary.artifacts:
        return "\n".join([*lines, "this peer sent nothing"])
    recipients = [(name, f"{t.artifacts:,}", size(t.bytes)) for name, t in sorted(summary.recipients.items())]
    artifacts = [
        (name, f"{v.count:,}", size(v.bytes), f"{v.first_round}-{v.last_round}")
        for name, v in sorted(summary.artifacts.items())
    ]
    tables = [
        *_table(("to", "artifacts", "bytes"), recipients),
        "",
        *_table(("artifact", "times", "bytes", "rounds"), artifacts),
    ]
    return "\n".join([*lines, "", *tables])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [head, *([plain(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(plain, names))
