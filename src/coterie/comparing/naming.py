"""Name the rows of a comparison, and choose the columns of its written tables.

A row has three names. Its *key* is what the user asked for (`panm,k=3`) and names its folders. Its *label* is a short
form of the key, for the terminal, Markdown, CSV and JSON. Its *title* is the method's proper name, for LaTeX and pages.
A name given by the user (`--label panm="PANM (ours)"`) replaces both label and title.
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
    """How a comparison is shown. It has no effect on the runs."""

    labels: Mapping[str, str] = field(default_factory=dict)  # the user's own, by key
    columns: tuple[str, ...] = ()  # of the LaTeX and Markdown tables; empty: all
    # For a sweep: the grid values of each row, by key. A `local` row beside the grid has none.
    places: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


DEFAULT = Presentation()


def labels_given(words: Sequence[str], variants: Sequence[Variant]) -> dict[str, str]:
    """Labels from `--label KEY=TEXT` words. A key may contain `=` (`panm,k=3`), so the longest matching key wins."""
    known = sorted({name for pair in default_labels(variants).items() for name in pair}, key=len)
    given: dict[str, str] = {}
    for word in words:
        key = next((name for name in reversed(known) if word.startswith(f"{name}=")), None)
        if key is None:
            wanted, equals, _ = word.partition("=")
            reason = unknown("row", wanted, known) if equals else "it needs ROW=TEXT"
            raise ConfigError(f"--label {word}: {reason}")
        given[key] = word[len(key) + 1 :]
    return given


def checked_labels(given: Mapping[str, str], variants: Sequence[Variant]) -> dict[str, str]:
    """The user's labels by the rows' keys. The user may name a row by its key or by its default label."""
    shown = default_labels(variants)
    keys = {**{label: key for key, label in shown.items()}, **{key: key for key in shown}}
    labels: dict[str, str] = {}
    for name, text in given.items():
        if name not in keys:
            raise ConfigError(f"label: {unknown('row', name, keys)}")
        if not text.strip() or not text.isprintable():
            raise ConfigError(f"label of {name}: '{text!s}' is not a printable name on one line".replace("\n", "\\n"))
        labels[keys[name]] = text.strip()
    return labels


def names(jobs: Sequence[Job], own: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Label and title of each row, by its key. Raises ConfigError if the user gives a row another row's name."""
    labels = default_labels([job.variant for job in jobs])
    by_default = titles(jobs, labels)
    by_key = {key: (own.get(key, labels[key]), own.get(key, by_default[key])) for key in labels}
    for key, text in own.items():
        for other, taken in by_key.items():
            if other != key and text in taken:
                raise ConfigError(f"label of {key}: the row '{other}' is already called '{text}': choose another name")
    return by_key


def default_labels(variants: Sequence[Variant]) -> dict[str, str]:
    """A short label for each row's key. In a sweep, the `local` rows are named like the others."""
    short = short_keys(_keys(variants))
    labels = {v.label: _default_label(v, short) for v in variants}
    short_labels = short_names(labels.values())
    return {key: short_labels[label] for key, label in labels.items()}


def _default_label(variant: Variant, short: Mapping[str, str]) -> str:
    if variant != local_twin(variant):
        return variant.label
    return " ".join([LOCAL, *(_word(word, short) for word in variant.words if not word.startswith(f"{METHOD}="))])


def titles(jobs: Sequence[Job], labels: Mapping[str, str]) -> dict[str, str]:
    """The title of each row, by its key; rows with equal titles get their labels instead."""
    short = short_keys(_keys([job.variant for job in jobs]))
    by_key = {job.variant.label: _title(job, short) for job in jobs}
    counts = Counter(by_key.values())
    return {key: title if counts[title] == 1 else labels[key] for key, title in by_key.items()}


def _title(job: Job, short: Mapping[str, str]) -> str:
    """For example `MAPL+, tau=0.5`; in a sweep over keys other than the method, only these keys."""
    words = [word for word in job.variant.words if not word.startswith(f"{METHOD}=")]
    names_method = len(words) < len(job.variant.words)
    method = [title_of(type(job.experiment.method))] if names_method else []
    return ", ".join([*method, *(short_name(_word(word, short)) for word in words)])


def title_of(method: type[Method]) -> str:
    """A method's name in print. Subclasses do not inherit it, since they are different methods."""
    return str(vars(method).get("title") or method.__name__)


def _word(word: str, short: Mapping[str, str]) -> str:
    key, _, value = word.partition("=")
    return f"{short[key]}={value}"


def _keys(variants: Sequence[Variant]) -> list[str]:
    return list(dict.fromkeys(word.partition("=")[0] for v in variants for word in v.words))
