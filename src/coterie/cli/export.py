"""`coterie predict` and `coterie export`: arguments to calls."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from coterie.data.dataset import Array
    from coterie.export.inputs import Samples
    from coterie.running.saved_models import Personal

PEER = "its number; of a real peer, also its name. Not needed where there is only one"


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    predict = commands.add_parser(
        "predict",
        help="what a peer's model says of samples",
        description="Predictions of a peer's personal model, or of its ensemble, as CSV: a row a sample, with its "
        "class and the probability of each. The input is a .csv or .parquet table with the columns of the training "
        "data (a label column is ignored), a .npz file with an array x, an image, or a folder of images. Example: "
        "coterie predict runs/demo --peer 3 --input images/ --out said.csv",
    )
    predict.add_argument(
        "where", type=Path, metavar="DIR", help="the folder of a run, of a real peer, or of `coterie export`"
    )
    predict.add_argument("--peer", metavar="P", help=PEER)
    predict.add_argument("--input", type=Path, required=True, metavar="FILE", help="the samples: a file or folder")
    predict.add_argument("--out", type=Path, metavar="FILE", help="the predictions; default: standard output")
    predict.add_argument("--overwrite", action="store_true", help="replace that file if it exists")
    predict.set_defaults(command=_predict)

    export = commands.add_parser(
        "export",
        help="a peer's model as ONNX or safetensors, to use elsewhere",
        description="A folder with a peer's personal model and a manifest.json that says all that is needed to use it; "
        "an ensemble has a file a member. ONNX files take raw values and scale them themselves; networks as "
        "safetensors take scaled ones. A member that came as ONNX is written as such in either format. Example: "
        "coterie export runs/demo --peer 3 --out model-of-3",
    )
    export.add_argument("where", type=Path, metavar="DIR", help="the folder of a run, or of a real peer")
    export.add_argument("--peer", metavar="P", help=PEER)
    export.add_argument("--format", choices=["onnx", "safetensors"], default="onnx", help="default: onnx")
    export.add_argument("--out", type=Path, metavar="DIR", help="default: <the run's name>-peer-<number>")
    export.add_argument("--overwrite", action="store_true", help="replace an earlier export")
    export.set_defaults(command=_export)


def _predict(options: argparse.Namespace) -> None:
    from coterie.core.errors import RunError
    from coterie.core.formatting import count
    from coterie.export.inputs import read_samples
    from coterie.export.predicting import probabilities

    if options.out and options.out.exists() and not options.overwrite:
        raise RunError(f"{options.out} exists already: choose another --out, or --overwrite it")
    personal = _personal(options.where, options.peer)
    samples = read_samples(options.input, personal.manifest)
    said = probabilities(personal, samples.raw)
    if not options.out:
        _write(sys.stdout, personal, samples, said)
        return
    with options.out.open("w", encoding="utf-8", newline="") as file:
        _write(file, personal, samples, said)
    print(f"{count(len(said), 'prediction')} of {personal.manifest.who}: {options.out}")


def _export(options: argparse.Namespace) -> None:
    from coterie.core.formatting import count, short_name
    from coterie.export.exporting import export

    personal = _personal(options.where, options.peer)
    m = personal.manifest
    out = options.out or Path(f"{options.where.resolve().name}-peer-{m.peer}")
    written = export(personal, out, options.format, overwrite=options.overwrite)
    what = f"the ensemble ({m.vote} vote) of {count(len(m.parts), 'model')}" if m.vote else "the model"
    print(f"{what} of {m.who}, {short_name(m.method)}, round {m.round}: {out}")
    for part in written.parts:
        about = f"{part.architecture or part.kind or 'portable'}, takes {part.takes} inputs"
        as_it_came = ", ONNX as it came" if part.is_portable and options.format != "onnx" else ""
        voice = f", its voice weighs {part.weight:.3g}" if part.weight is not None else ""
        print(f"  {part.file}  {part.name}: {about}{as_it_came}{voice}")


def _personal(where: Path, peer: str | None) -> Personal:
    """Of an exported folder, or of a run's."""
    from coterie.core.errors import RunError
    from coterie.export import exporting
    from coterie.running import saved_models

    if not (where / exporting.MANIFEST).exists():
        return saved_models.read(saved_models.find(where, peer))
    personal = exporting.read(where)
    m = personal.manifest
    if peer not in (None, str(m.peer), m.name):
        raise RunError(f"there is no peer '{peer}': {where} is the model of {m.who}")
    return personal


def _write(file: TextIO, personal: Personal, samples: Samples, said: Array) -> None:
    import csv

    classes = personal.manifest.classes
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([samples.heading, "class", *(f"probability of {name}" for name in classes)])
    for name, row in zip(samples.names, said, strict=True):
        writer.writerow([name, classes[int(row.argmax())], *(f"{p:.6g}" for p in row.tolist())])
