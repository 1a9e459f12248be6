"""The documentation's pages and their fenced blocks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
NOT_RUN = re.compile(r"<!-- not run: .+ -->$")


class Block(NamedTuple):
    """A fenced block: its language, its text, and whether a comment before it excuses it from being run."""

    language: str
    text: str
    run: bool


def blocks(page: Path) -> list[Block]:
    """A page's fenced blocks, in order."""
    found: list[Block] = []
    language, lines, before = None, [], ""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            if language is None:
                language, lines = line[3:].strip(), []
                run = not NOT_RUN.match(before)
            else:
                found.append(Block(language, "\n".join(lines) + "\n", run))
                language = None
        elif language is not None:
            lines.append(line)
        before = line
    assert language is None, f"{page.name}: a fenced block is not closed"
    return found


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()
