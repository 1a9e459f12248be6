"""Drafts a schema from a user's own files, as TOML for a person to read and correct. Nothing leaves this machine."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coterie.core.errors import DataError
from coterie.data.dataset import Array
from coterie.data.guessing import MOST_CATEGORIES, as_number, guess
from coterie.data.schema import CATEGORY, DATE, IGNORE, MARKERS, NUMBER, tidy
from coterie.data.untidy import read_texts

SPREAD = 0.25  # by which the plausible range exceeds the values, as a share of their range
APART = 1 / 3  # share of the median below which there is no value but 0: then 0 may stand for a missing one
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
        if any(as_number(cell) is None for cell in present):
            raise DataError(
                f"the label column '{name}' has {len(classes)} different values: choose another with --label"
            )
        return _label_of_numbers(name, present)
    others = "  # at least two are needed: add those of the other sites" if len(classes) < 2 else ""
    return (
        f"[label]\ncolumn = {_text(name)}\nclasses = {_listed(classes)}{others}\n"
        '# Other spellings, at other sites:\n# synonyms = { "M" = "malignant" }\n'
    )


def _label_of_numbers(name: str, present: Sequence[str]) -> str:
    numbers = np.array([value for cell in present if (value := as_number(cell)) is not None])
    about = f"[label]  # {len(set(present))} different numbers: regression"
    lines = [about, f"column = {_text(name)}", f"type = {_text(NUMBER)}", 'unit = ""', *_range(numbers)]
    return "\n".join(lines) + "\n"


def _column(name: str, cells: Sequence[str], optional: bool) -> str:
    present = [cell for cell in cells if cell not in MARKERS]
    kind, why = guess(name, present, len(cells) - len(present))
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
    numbers = np.array([value for cell in present if (value := as_number(cell)) is not None])
    codes = [code for code in MISSING_CODES if code in present]
    kept = numbers[~np.isin(numbers, [float(code) for code in codes])]
    lines = ['unit = ""', *([f"missing = {_listed(codes)}  # are these missing values?"] if codes else [])]
    if _zero_is_apart(kept):
        lines.append(f"# missing = {_listed([*codes, '0'])}  # is 0 a missing value? All others are far above")
        kept = kept[kept != 0]
    return [*lines, *_range(kept)]


def _zero_is_apart(numbers: Array) -> bool:
    others = numbers[numbers != 0]
    return 0 < len(others) < len(numbers) and bool(others.min() > APART * np.median(others))


def _range(numbers: Array) -> list[str]:
    """The plausible range, rounded outwards; none for equal numbers, which say nothing about it."""
    margin = SPREAD * float(np.ptp(numbers)) if len(numbers) else 0.0
    if not margin:
        return []
    step = 10.0 ** np.floor(np.log10(margin))
    low, high = (float(numbers.min()) - margin) / step, (float(numbers.max()) + margin) / step
    low = max(low, 0.0) if numbers.min() >= 0 else low
    return [
        f"# least = {np.floor(low) * step:.12g}  # the plausible range: values outside count as missing",
        f"# most = {np.ceil(high) * step:.12g}",
    ]


def _natural(text: str) -> tuple[float, str]:
    value = as_number(text)
    return (np.inf if value is None else value, text)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)  # a JSON text is a TOML text, too


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _listed(values: Sequence[str]) -> str:
    return f"[{', '.join(map(_text, values))}]"
