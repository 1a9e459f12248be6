"""Drafts a schema from a user's own files, as TOML for a person to read and correct. Nothing leaves this machine."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coterie.core.errors import DataError
from coterie.data.schema import CATEGORY, DATE, IGNORE, MARKERS, NUMBER, tidy
from coterie.data.untidy import read_texts

MOST_CATEGORIES = 20
FEW_NUMBERS = 6  # a column of whole numbers with at most this many different values is taken for categories
MOSTLY = 0.9  # of a column's values that must be readable for a type to be guessed
DISTINCT = 0.9  # share of different values from which texts and whole numbers look like identifiers
SPREAD = 0.25  # by which the plausible range exceeds the values, as a share of their range
SUSPECTED = re.compile(r"(^|[^a-z])(id|name|patient|ssn|insurance|mrn|birth|dob|address|phone|email)([^a-z]|$)", re.I)
MISSING_CODES = ("-9", "-99", "-999", "999", "9999")
USUAL_LABELS = ("label", "target", "class", "outcome", "diagnosis", "y")

HEAD = """\
# A draft: read every line and correct it. All sites of the circle must use the same file.
# It lists the categories that were found here: add those of the other sites.
"""


def draft(paths: Sequence[Path], label: str = "") -> str:
    """The schema of these files as TOML. Raises DataError if one cannot be read, or if no column looks like a label."""
    tables = [(path, read_texts(path)[0]) for path in paths]
    names = list(dict.fromkeys(str(name).strip() for _, table in tables for name in table.columns))
    chosen = label or next((name for name in names if name.lower() in USUAL_LABELS), "")
    if chosen not in names:
        hint = f"has no column '{label}'" if label else "has no column that looks like a label: name it with --label"
        raise DataError(f"{paths[0]} {hint}; its columns: {', '.join(names)}")
    columns = {name: _cells(tables, name) for name in names}
    optional = {name for name in names if any(name not in _names(table) for _, table in tables)}
    markers = [marker for marker in MARKERS if any(marker in cells for cells in columns.values())]
    parts = [
        HEAD,
        f"missing = {_listed([m for m in markers if m] or ['?', 'NA'])}\n",
        _label(chosen, columns.pop(chosen)),
    ]
    return "\n".join([*parts, *(_column(name, cells, name in optional) for name, cells in columns.items())])


def _names(table: Any) -> list[str]:
    return [str(name).strip() for name in table.columns]


def _cells(tables: Sequence[tuple[Path, Any]], name: str) -> list[str]:
    cells = []
    for _, table in tables:
        table.columns = _names(table)
        if name in table.columns:
            cells += [tidy(cell) for cell in table[name]]
    return cells


def _label(name: str, cells: Sequence[str]) -> str:
    present = [cell for cell in cells if cell not in MARKERS]
    classes = sorted(set(present))
    if len(classes) > MOST_CATEGORIES:
        if any(_as_number(cell) is None for cell in present):
            raise DataError(
                f"the label column '{name}' has {len(classes)} different values: choose another with --label"
            )
        return "\n".join(
            [
                f"[label]  # {len(classes)} different numbers: regression",
                f"column = {_text(name)}",
                f"type = {_text(NUMBER)}",
                *_number(present)[:3],
                "",
            ]
        )
    return (
        f"[label]\ncolumn = {_text(name)}\nclasses = {_listed(classes)}\n"
        '# Other spellings, at other sites:\n# synonyms = { "M" = "malignant" }\n'
    )


def _column(name: str, cells: Sequence[str], optional: bool) -> str:
    present = [cell for cell in cells if cell not in MARKERS]
    kind, why = _guess(name, present)
    lines = [f"[columns.{_key(name)}]  # {why}", f"type = {_text(kind)}"]
    if kind == CATEGORY:
        lines.append(f"values = {_listed(sorted(set(present), key=_natural))}")
    if kind == NUMBER:
        lines += _number(present)
    if kind != IGNORE and len(present) < len(cells):
        lines[0] += f"; {len(cells) - len(present)} of {len(cells)} missing"
        lines += ["indicator = true"] * (kind in (NUMBER, DATE))
    if kind != IGNORE and optional:
        lines.append("optional = true  # some of the files lack it")
    return "\n".join(lines) + "\n"


def _number(present: Sequence[str]) -> list[str]:
    numbers = np.array([value for cell in present if (value := _as_number(cell)) is not None])
    codes = [code for code in MISSING_CODES if code in present]
    kept = numbers[~np.isin(numbers, [float(code) for code in codes])]
    margin = SPREAD * float(np.ptp(kept)) if len(kept) else 0.0
    low, high = (float(kept.min()) - margin, float(kept.max()) + margin) if len(kept) else (0.0, 1.0)
    low = max(low, 0.0) if len(kept) and kept.min() >= 0 else low
    lines = ['unit = ""', f"# least = {_rounded(low)}  # the plausible range: values outside count as missing"]
    lines.append(f"# most = {_rounded(high)}")
    return lines + [f"missing = {_listed(codes)}  # are these missing values?"] * bool(codes)


def _guess(name: str, present: Sequence[str]) -> tuple[str, str]:
    """The type of a column, and why."""
    distinct = len(set(present))
    if not present:
        return IGNORE, "no values here"
    if SUSPECTED.search(name):
        return IGNORE, "looks like an identifier of a person, by its name"
    numbers = [_as_number(cell) for cell in present]
    readable = [value for value in numbers if value is not None]
    if len(readable) >= MOSTLY * len(present):
        whole = all(value == int(value) for value in readable)
        if whole and distinct <= FEW_NUMBERS:
            return CATEGORY, f"{distinct} different whole numbers: if they are amounts, make it a number"
        if whole and distinct > max(MOST_CATEGORIES, DISTINCT * len(present)):
            return IGNORE, f"looks like an identifier: {distinct} different whole numbers in {len(present)} rows"
        return NUMBER, f"{distinct} different numbers"
    if sum(bool(re.match(r"\d{4}-\d\d-\d\d", cell)) for cell in present) >= MOSTLY * len(present):
        return DATE, "dates"
    if distinct <= MOST_CATEGORIES and distinct <= DISTINCT * len(present):
        return CATEGORY, f"{distinct} different texts"
    return IGNORE, f"{distinct} different texts in {len(present)} rows: names, identifiers or free text"


def _as_number(cell: str) -> float | None:
    try:
        value = float(cell.replace(",", "."))
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def _natural(text: str) -> tuple[float, str]:
    value = _as_number(text)
    return (np.inf if value is None else value, text)


def _rounded(value: float) -> str:
    return f"{float(f'{value:.2g}'):g}"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)  # a JSON text is a TOML text, too


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _listed(values: Sequence[str]) -> str:
    return f"[{', '.join(map(_text, values))}]"
