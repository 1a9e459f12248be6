"""What the rows of a comparison are called, and which columns its written tables have.

A row has three names. Its *key* is what was asked for (`panm,k=3`) and names its folders. Its *label* is the key,
shortened, for the terminal, Markdown, CSV and JSON. Its *title* is for LaTeX and for pages: the method's proper name.
A name that the user gives (`--label panm="PANM (ours)"`) is label and title.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from coterie.comparing.plan import LOCAL, Job, Variant, local_twin, short_keys
from coterie.core.errors import ConfigError, unknown
from coterie.core.formatting import short_name, short_names
from coterie.methods.base import Method

METHOD = "method.name"


@dataclass(frozen=True)
class Presentation:
    """How a comparison is shown; nothing of it changes what is run."""

    labels: Mapping[str, str] = field(default_factory=dict)  # the user's own, by key
    columns: tuple[str, ...] = ()  # of the LaTeX and Markdown tables; none: all
    # Of a sweep: where each row of its grid is, by key; a row of Local beside the grid has no place in it.
    places: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


DEFAULT = Presentation()


def labels_given(words: Sequence[str], variants: Sequence[Variant]) -> dict[str, str]:
    """From `--label KEY=TEXT` words. A key may hold `=` itself (`panm,k=3`), so the longest that fits counts."""
    known = sorted({name for pair in default_labels(variants).items() for name in pair}, key=len)
    given: dict[str, str] = {}
    for word in words:
        key = next((name for name in reversed(known) if word.startswith(f"{name}=")), None)
        if key is None:
            wanted, equals, _ = word.partition("=")
            why = unknown("row", wanted, known) if equals else "it needs ROW=TEXT"
            raise ConfigError(f"--label {word}: {why}")
        given[key] = word[len(key) + 1 :]
    return given


def checked_labels(given: Mapping[str, str], variants: Sequence[Variant]) -> dict[str, str]:
    """The user's labels by the rows' keys; they may be asked for by what a table shows, too."""
    shown = default_labels(variants)
    keys = {**{label: key for key, label in shown.items()}, **{key: key for key in shown}}
    found: dict[str, str] = {}
    for name, text in given.items():
        if name not in keys:
            raise ConfigError(f"label: {unknown('row', name, keys)}")
        if not text.strip() or not text.isprintable():
            raise ConfigError(f"label of {name}: '{text!s}' is not a name of one line".replace("\n", "\\n"))
        found[keys[name]] = text.strip()
    return found


def names(jobs: Sequence[Job], own: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Label and title of each row, by its key; an error if the user calls a row what another is called already."""
    labels = default_labels([job.variant for job in jobs])
    by_default = titles(jobs, labels)
    found = {key: (own.get(key, labels[key]), own.get(key, by_default[key])) for key in labels}
    for key, text in own.items():
        for other, called in found.items():
            if other != key and text in called:
                raise ConfigError(f"label of {key}: the row '{other}' is called '{text}', too: choose another name")
    return found


def default_labels(variants: Sequence[Variant]) -> dict[str, str]:
    """Of each row's key a short form; in a sweep, the rows that train alone are named as the others are."""
    short = short_keys(_keys(variants))
    even = {v.label: _even(v, short) for v in variants}
    apart = short_names(even.values())
    return {key: apart[label] for key, label in even.items()}


def _even(variant: Variant, short: Mapping[str, str]) -> str:
    if variant != local_twin(variant):
        return variant.label
    return " ".join([LOCAL, *(_word(word, short) for word in variant.words if not word.startswith(f"{METHOD}="))])


def titles(jobs: Sequence[Job], labels: Mapping[str, str]) -> dict[str, str]:
    """Of each row's key its title; where two would be the same, their labels."""
    short = short_keys(_keys([job.variant for job in jobs]))
    found = {job.variant.label: _title(job, short) for job in jobs}
    often = Counter(found.values())
    return {key: title if often[title] == 1 else labels[key] for key, title in found.items()}


def _title(job: Job, short: Mapping[str, str]) -> str:
    """`MAPL+, tau=0.5`; of a sweep over other keys than the method, these alone."""
    words = [word for word in job.variant.words if not word.startswith(f"{METHOD}=")]
    names_method = len(words) < len(job.variant.words)
    method = [title_of(type(job.experiment.method))] if names_method else []
    return ", ".join([*method, *(short_name(_word(word, short)) for word in words)])


def title_of(method: type[Method]) -> str:
    """What a method is called in print. A subclass does not inherit it: it is another method."""
    return str(vars(method).get("title") or method.__name__)


def _word(word: str, short: Mapping[str, str]) -> str:
    key, _, value = word.partition("=")
    return f"{short[key]}={value}"


def _keys(variants: Sequence[Variant]) -> list[str]:
    return list(dict.fromkeys(word.partition("=")[0] for v in variants for word in v.words))
