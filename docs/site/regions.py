"""Generate reference tables in the docs from the code: parameters, settings, commands and events.

python docs/site/regions.py

In a page, the text between `<!-- generated: KIND WORD -->` and `<!-- end of generated -->` is replaced. So pages are
also complete on a code host, and a test checks that they are current.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import measured

import coterie
from coterie.cli.listing import needs
from coterie.cli.main import _parser
from coterie.config import parsing
from coterie.config.loading import ORIGINS, preset_origins, presets
from coterie.config.sections import PLAIN, SECTIONS, Experiment
from coterie.core import events
from coterie.core.settings import described
from coterie.methods import METHODS
from coterie.metrics import METRICS
from coterie.reproducing.sections import WITHOUT
from coterie.reproducing.wrapping import wrapped
from coterie.running.real_peer import PeerSettings

ROOT = Path(__file__).resolve().parents[2]
REGION = re.compile(r"(<!-- generated: (\w+) ?(\S*) -->\n).*?(<!-- end of generated -->)", re.DOTALL)
FIELD = re.compile(r"(?:^ +# (.+)\n)?^ +([a-z]\w*): ([^=#\n]+?)(?: = [^#\n]*?)?(?:  # (.+))?$", re.MULTILINE)


def current(text: str) -> str:
    """A page's text with updated regions and wrapped prose."""
    text = REGION.sub(lambda m: f"{m[1]}\n{KINDS[m[2]](m[3]).strip()}\n\n{m[4]}", text)
    return wrapped(text)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *([cell(text) for text in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(text: str) -> str:
    """Text escaped for one table cell: outside code, a bar would end it and a bracket would start a tag."""
    parts = re.split(r"(`[^`]*`)", text.replace("|", "\\|"))
    return "".join(part if part.startswith("`") else part.replace("<", "\\<") for part in parts)


def code(text: str) -> str:
    return f"`{text}`" if text else ""


# -- methods -----------------------------------------------------------------------------------


def parameters(method: str) -> str:
    fields = dataclasses.fields(METHODS[method])
    if not fields:
        return "It has no parameters."
    return table(["parameter", "default", "meaning"], _rows(fields))


def methods(_: str) -> str:
    pages = {name: page.name for page in sorted((ROOT / "docs/methods").glob("*.md")) for name in named(page)}
    rows = [(f"[`{name}`]({pages[name]})", needs(kind), kind.summary) for name, kind in METHODS.items()]
    return table(["method", "server, models", "what it does"], rows)


def measurements(names: str) -> str:
    """The figures of one or several methods, `a,b`."""
    rows = measured.rows(names.split(","))
    note = f"\n\n{measured.NO_RECORDS}" if any(WITHOUT in where for where, *_ in rows) else ""
    return table(measured.HEADS, rows) + note


def columns(word: str) -> str:
    """Several columns of a paper's table side by side, `TABLE/COLUMN,COLUMN`."""
    name, _, chosen = word.partition("/")
    return table(*measured.columns(name, chosen.split(",")))


def named(page: Path) -> list[str]:
    """The methods that a page documents: those in lines that begin with `method.name = "..."`."""
    lines = re.findall(r"^`method\.name = .*$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [name for line in lines for name in re.findall(r'"([^"]+)"', line)]


# -- settings ----------------------------------------------------------------------------------


def section(name: str) -> str:
    kind = PeerSettings if name == "peer" else SECTIONS[name]
    return table(["key", "default", "meaning"], _rows(dataclasses.fields(kind), f"{name}."))


def all_metrics(_: str) -> str:
    rows = [
        (code(m.name), m.task, "higher" if m.higher_is_better else "lower", _unit(m.unit), m.help)
        for m in sorted(METRICS.values(), key=lambda m: (m.task, m.name))
    ]
    return table(["metric", "task", "better", "unit", "meaning"], rows)


def _unit(unit: str) -> str:
    return {"label": "that of the label"}.get(unit, unit)


def all_settings(_: str) -> str:
    plain = [f for f in dataclasses.fields(Experiment) if f.name in PLAIN]
    first = table(["key", "default", "meaning"], _rows(plain))
    parts = [f"## [{name}]\n\n{inspect.getdoc(kind)}\n\n{section(name)}" for name, kind in _sections()]
    return "\n\n".join([first, *parts])


def _sections() -> Iterator[tuple[str, type[Any]]]:
    yield from SECTIONS.items()
    yield "peer", PeerSettings


def _rows(fields: Iterable[dataclasses.Field[Any]], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    for f in fields:
        yield f"`{prefix}{f.name}`", code(parsing.literal(parsing.default(f))), described(f)


def all_presets(_: str) -> str:
    """All presets, grouped by the origin of their settings."""
    origins, lines = preset_origins(), presets()
    parts = []
    for origin, meaning in ORIGINS.items():
        rows = [(f"`{name}`", lines[name]) for name in sorted(lines) if origins[name] == origin]
        parts += [f"## {origin}: {meaning}", table(["preset", "what it is"], rows)] if rows else []
    return "\n\n".join(parts)


# -- commands ----------------------------------------------------------------------------------


def commands(_: str) -> str:
    return "\n\n".join(_command(parser) for parser in _leaves(_parser()))


def _leaves(parser: argparse.ArgumentParser, help: str = "") -> Iterator[argparse.ArgumentParser]:
    """The commands without subcommands. A command without a description gets its help text as one."""
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not inner:
        parser.description = parser.description or f"{help[:1].upper()}{help[1:]}."
        yield parser
    for action in inner:
        helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
        for name, one in action.choices.items():
            yield from _leaves(one, helps.get(name, ""))


def _command(parser: argparse.ArgumentParser) -> str:
    actions = [a for a in parser._actions if not isinstance(a, argparse._HelpAction)]
    words = [_usage(a) for a in actions if not a.option_strings]
    usage = " ".join([parser.prog, *words, *(["[options]"] if any(a.option_strings for a in actions) else [])])
    name = re.sub(r" [A-Z\[].*", "", parser.prog)
    parts = [f"## {name}", cell(parser.description or ""), f"```text\n{usage}\n```"]
    if actions:
        rows = [(code(_word(a)), (a.help or "").replace("%%", "%")) for a in actions]
        parts.append(table(["argument", "meaning"], rows))
    return "\n\n".join(parts)


def _usage(action: argparse.Action) -> str:
    word = _word(action)
    return {"?": f"[{word}]", "*": f"[{word} ...]"}.get(str(action.nargs), word)


def _word(action: argparse.Action) -> str:
    """An argument as typed, or an option with its value."""
    choices = "{" + ",".join(action.choices) + "}" if action.choices else ""
    value = choices or str(action.metavar or action.dest.upper())
    if not action.option_strings:
        return value
    return ", ".join(action.option_strings) + ("" if action.nargs == 0 else f" {value}")


# -- classes whose fields are documented by comments -------------------------------------------


def records(_: str) -> str:
    return "\n\n".join(_record(kind) for kind in typing.get_args(events.Event))


def _record(kind: type[Any]) -> str:
    [name] = [f.default for f in dataclasses.fields(kind) if f.name == "event"]
    return f"## {name}\n\n{inspect.getdoc(kind)}\n\n{field_table(kind)}"


def attributes(name: str) -> str:
    return field_table(getattr(coterie, name))


def field_table(kind: type[Any]) -> str:
    """A table of the fields with a comment beside or above them."""
    fields = FIELD.findall(inspect.getsource(kind))
    rows = [
        (f"`{name}`", code(_type(hint)), beside or above) for above, name, hint, beside in fields if above or beside
    ]
    return table(["field", "type", "meaning"], rows)


def _type(hint: str) -> str:
    return re.sub(r"^ClassVar\[(.*)\]$", r"\1", hint.strip())


KINDS: dict[str, Callable[[str], str]] = {
    "parameters": parameters,
    "methods": methods,
    "measured": measurements,
    "columns": columns,
    "section": section,
    "metrics": all_metrics,
    "settings": all_settings,
    "presets": all_presets,
    "commands": commands,
    "events": records,
    "attributes": attributes,
}


def main() -> int:
    for page in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        before = page.read_text(encoding="utf-8")
        after = current(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(f"updated: {page.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
