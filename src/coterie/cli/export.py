"""`coterie predict` and `coterie export`: use a peer's model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from coterie.data.dataset import Array
    from coterie.export.inputs import Samples
    from coterie.running.saved_models import Personal

PEER = "the peer's number or name (of a real peer, or of a site); may be omitted if there is only one"


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    predict = commands.add_parser(
        "predict",
        help="predict with a peer's model",
        description="Predict with a peer's personal model or ensemble. The output is CSV with one row per sample: the "
        "predicted class and the probability of each class, or the predicted number. "
        "The input is a .csv or .parquet table with the columns of "
        "the training data (a label column is ignored), a .npz file with an array x, an image, or a folder of images. "
        "Example: coterie predict runs/demo --peer 3 --input images/ --out predictions.csv",
    )
    predict.add_argument(
        "where", type=Path, metavar="DIR", help="the folder of a run, of a real peer, or of `coterie export`"
    )
    predict.add_argument("--peer", metavar="P", help=PEER)
    predict.add_argument("--input", type=Path, required=True, metavar="FILE", help="the samples: a file or a folder")
    predict.add_argument("--out", type=Path, metavar="FILE", help="file for the predictions; default: standard output")
    predict.add_argument("--overwrite", action="store_true", help="replace the output file if it exists")
    predict.set_defaults(command=_predict)

    export = commands.add_parser(
        "export",
        help="export a peer's model as ONNX or safetensors",
        description="Write a folder with a peer's personal model and a manifest.json that describes how to use it. An "
        "ensemble has one file per member. ONNX models take raw values and scale them themselves; safetensors "
        "networks take scaled values. A member that was received as ONNX stays ONNX in either format. Example: "
        "coterie export runs/demo --peer 3 --out model-of-3",
    )
    export.add_argument("where", type=Path, metavar="DIR", help="the folder of a run, or of a real peer")
    export.add_argument("--peer", metavar="P", help=PEER)
    export.add_argument("--format", choices=["onnx", "safetensors"], default="onnx", help="default: onnx")
    export.add_argument(
        "--out", type=Path, metavar="DIR", help="output folder; default: <the run's name>-peer-<number>"
    )
    export.add_argument("--overwrite", action="store_true", help="replace an earlier export")
    export.set_defaults(command=_export)


def _predict(options: argparse.Namespace) -> None:
    from coterie.core.errors import RunError
    from coterie.core.formatting import count
    from coterie.export.inputs import read_samples
    from coterie.export.predicting import predictions as predictions_of

    if options.out and options.out.exists() and not options.overwrite:
        raise RunError(f"{options.out} already exists: choose another --out, or replace it with --overwrite")
    personal = _personal(options.where, options.peer)
    samples = read_samples(options.input, personal.manifest)
    for warning in samples.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    predictions = predictions_of(personal, samples.raw)
    if not options.out:
        _write(sys.stdout, personal, samples, predictions)
        return
    with options.out.open("w", encoding="utf-8", newline="") as file:
        _write(file, personal, samples, predictions)
    print(f"{count(len(predictions), 'prediction')} of {personal.manifest.who}: {options.out}")


def _export(options: argparse.Namespace) -> None:
    from coterie.core.formatting import count, short_name
    from coterie.export.exporting import columns_file, export, missing_columns_file

    personal = _personal(options.where, options.peer)
    m = personal.manifest
    out = options.out or Path(f"{options.where.resolve().name}-peer-{m.peer}")
    written = export(personal, out, options.format, overwrite=options.overwrite)
    what = f"the ensemble ({m.vote} vote) of {count(len(m.parts), 'model')}" if m.vote else "the model"
    print(f"{what} of {m.who}, {short_name(m.method)}, round {m.round}: {out}")
    for part in written.parts:
        about = f"{part.architecture or part.kind or 'portable'}, takes {part.takes} inputs"
        unchanged = ", unchanged ONNX" if part.is_portable and options.format != "onnx" else ""
        weight = f", vote weight {part.weight:.3g}" if part.weight is not None else ""
        print(f"  {part.file}  {part.name}: {about}{unchanged}{weight}")
        if columns := columns_file(part, written):
            print(f"  {columns}  the same, takes the raw columns of the schema, one named input each")
    if reason := missing_columns_file(written):
        print(f"  {reason}")


def _personal(where: Path, peer: str | None) -> Personal:
    """The model in an exported folder, or in a run's folder."""
    from coterie.core.errors import RunError
    from coterie.export import exporting
    from coterie.running import saved_models

    if not (where / exporting.MANIFEST).exists():
        return saved_models.read(saved_models.find(where, peer))
    personal = exporting.read(where)
    m = personal.manifest
    if peer not in (None, str(m.peer), m.name):
        raise RunError(f"there is no peer '{peer}': {where} holds the model of {m.who}")
    return personal


def _write(file: TextIO, personal: Personal, samples: Samples, predictions: Array) -> None:
    import csv

    classes = personal.manifest.classes
    writer = csv.writer(file, lineterminator="\n")
    if not classes:
        unit = personal.manifest.label_unit
        writer.writerow([samples.heading, f"prediction ({unit})" if unit else "prediction"])
        numbers = (f"{number:.10g}" for number in predictions[:, 0])
        writer.writerows(zip(samples.names, numbers, strict=True))
        return
    writer.writerow([samples.heading, "class", *(f"probability of {name}" for name in classes)])
    for name, row in zip(samples.names, predictions, strict=True):
        writer.writerow([name, classes[int(row.argmax())], *(f"{p:.6g}" for p in row.tolist())])
