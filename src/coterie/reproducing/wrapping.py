"""Wrap the prose of Markdown pages.

Only paragraphs and list items are wrapped. Tables, code, headings, images and HTML stay as they are.
"""

from __future__ import annotations

import re

WIDTH = 118
# Never broken: inline code, HTML comments, and links, whose text is often searched for as a whole.
UNBREAKABLE = re.compile(r"<!--.*?-->|`+[^`]+`+|!?\[[^\]\n]*\]\([^)\s]*\)")
ITEM = re.compile(r"^(\s*)([-*+]|\d+[.)])(\s+)")
# Lines that are not prose, whatever comes before them.
FIXED = re.compile(r"^\s*(\||#|<|!\[|>|\[[^\]]+\]:|:::|\(.*\)=\s*$|---+\s*$|\*\*\*+\s*$|\{.*\}\s*$)")
# A line that begins with one of these would become a list item, a heading, a quotation or a table.
STARTS_A_BLOCK = re.compile(r"^([-*+#>|]+|\d+[.)]|:::.*|=+)$")


def wrapped(text: str) -> str:
    """The page with its prose wrapped."""
    out: list[str] = []
    block: list[str] = []
    fence = ""
    for line in text.splitlines():
        mark = re.match(r"^\s*(```+|~~~+)", line)
        if fence:
            out.append(line)
            if mark and mark[1].startswith(fence) and line.strip() == mark[1]:
                fence = ""
        elif mark or not line.strip() or FIXED.match(line) or _front_matter(line, out):
            out += _filled(block)
            block = []
            out.append(line)
            fence = mark[1] if mark else ""
        elif ITEM.match(line):
            out += _filled(block)
            block = [line]
        else:
            block.append(line)
    return "\n".join([*out, *_filled(block)]) + "\n"


def _front_matter(line: str, before: list[str]) -> bool:
    return bool(before) and before[0] == "---" and before.count("---") == 1 and line != "---"


def _filled(block: list[str]) -> list[str]:
    """The lines of one wrapped paragraph or list item."""
    if not block:
        return []
    item = ITEM.match(block[0])
    first = item[0] if item else re.match(r"^\s*", block[0])[0]  # type: ignore[index]
    rest = " " * len(first)
    words = _words(" ".join([block[0][len(first) :].strip(), *(line.strip() for line in block[1:])]))
    lines, line = [], first
    for word in words:
        joined = line + word if line in (first, rest) else f"{line} {word}"
        if len(joined) > WIDTH and line not in (first, rest) and not STARTS_A_BLOCK.match(word):
            lines.append(line)
            joined = rest + word
        line = joined
    return [*lines, line]


def _words(text: str) -> list[str]:
    """Split at spaces, except inside unbreakable parts."""
    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        kept.append(match[0])
        return f"\0{len(kept) - 1}\0"

    return [re.sub("\0(\\d+)\0", lambda m: kept[int(m[1])], word) for word in UNBREAKABLE.sub(keep, text).split()]
