"""Guesses the type of a column for the draft of a schema, from its name and its values. In doubt it is ignored.

skrub's TableVectorizer guesses types, too. It fits a transformer to one table, but sites need a declaration that they
can read, correct and share, and features that do not depend on one site's rows. So it is not used here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from coterie.core.formatting import count
from coterie.data.schema import CATEGORY, DATE, IGNORE, NUMBER, TEXT

MOST_CATEGORIES = 20
FEW_NUMBERS = 6  # a column of whole numbers with at most this many different values is taken for categories
REPEATED = 2  # how often each of these values must occur, on average
MOSTLY = 0.9  # of a column's values that must be readable for a type to be guessed
DISTINCT = 0.9  # share of different values from which texts and whole numbers look like identifiers
WORDS = 4  # of free text, on average; names and identifiers have fewer
PERSONAL = re.compile(
    r"((person|case|record|study|subject|visit|sample|u|uu|gu|p)?ids?|mrn|nhs|ssn|insurance|dob|zip|postcode|address"
    r"|street|phone|telephone|e?mail|patient.*|(dateof)?birth.*|(first|last|sur|fore|user|nick|full)?names?)"
)
DATES = re.compile(r"\d{4}-\d\d-\d\d")
OTHER_DATES = re.compile(r"\d{1,4}([./-])\d{1,2}\1\d{1,4}( .*)?")


def guess(name: str, present: Sequence[str], missing: int) -> tuple[str, str]:
    """The type of a column with these cells, and why; `missing` cells have no value."""
    if not present:
        return IGNORE, "no values here"
    if is_personal(name):
        return IGNORE, "looks like an identifier of a person, by its name"
    if len(set(present)) == 1 < len(present) and not missing:
        return IGNORE, f"the same value in all {len(present)} rows: declare it if other sites have others"
    numbers = [value for cell in present if (value := as_number(cell)) is not None]
    if len(numbers) >= MOSTLY * len(present):
        return _of_numbers(numbers, present)
    return _of_texts(present)


def is_personal(name: str) -> bool:
    """Whether a word of a column's name says that it identifies a person: patient_id, patientId, LastName, BIRTH."""
    words = re.findall(r"[a-z]+|[A-Z]+(?![a-z])|[A-Z][a-z]+", name)
    return any(PERSONAL.fullmatch(word.lower()) for word in words)


def _of_numbers(numbers: Sequence[float], present: Sequence[str]) -> tuple[str, str]:
    distinct, rows = len(set(numbers)), len(present)
    others = f"; {count(rows - len(numbers), 'cell')} cannot be read as numbers" if len(numbers) < rows else ""
    if all(value == int(value) for value in numbers):
        if distinct <= FEW_NUMBERS and REPEATED * distinct <= rows:
            return CATEGORY, f"{count(distinct, 'different whole number')}: if they are amounts, make it a number"
        if _counts_rows(numbers):
            return IGNORE, "looks like an identifier: it numbers the rows"
        if distinct > max(MOST_CATEGORIES, DISTINCT * rows):
            return IGNORE, f"looks like an identifier: {distinct} different whole numbers in {rows} rows"
    return NUMBER, f"{count(distinct, 'different number')}{others}"


def _counts_rows(numbers: Sequence[float]) -> bool:
    return len(numbers) > FEW_NUMBERS and bool((np.diff(numbers) == 1).all())


def _of_texts(present: Sequence[str]) -> tuple[str, str]:
    distinct, rows = len(set(present)), len(present)
    if _share(DATES, present) >= MOSTLY:
        return DATE, "dates"
    if _share(OTHER_DATES, present) >= MOSTLY:
        return IGNORE, f'dates in another form: write them as 2024-03-31 to make it a "{DATE}"'
    if distinct <= MOST_CATEGORIES and distinct <= DISTINCT * rows:
        return CATEGORY, count(distinct, "different text")
    found = f"{count(distinct, 'different text')} in {count(rows, 'row')}"
    if sum(len(cell.split()) for cell in present) >= WORDS * rows:
        return IGNORE, f'{found}: if it is free text without names, type = "{TEXT}" hashes its words'
    if rows == 1:
        return IGNORE, f'{found}: too few to tell a "{CATEGORY}" from a name'
    return IGNORE, f"{found}: names or identifiers"


def _share(pattern: re.Pattern[str], cells: Sequence[str]) -> float:
    return sum(bool(pattern.match(cell)) for cell in cells) / len(cells)


def as_number(cell: str) -> float | None:
    """The number in a cell, also with a decimal comma; None if it is none."""
    try:
        value = float(cell.replace(",", "."))
    except ValueError:
        return None
    return value if np.isfinite(value) else None
