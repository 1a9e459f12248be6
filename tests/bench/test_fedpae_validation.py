"""The benchmark of FedPAE's validation images: what it chooses with, what it judges by, and what it keeps."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from coterie.config.loading import load
from coterie.methods.components.ensemble_selection import Bench
from coterie.wiring import gather

FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "fedpae_validation.py"


@pytest.fixture(scope="module")
def benchmark_file() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fedpae_validation", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fedpae_validation"] = module
    spec.loader.exec_module(module)
    return module


def bench(right: list[list[bool]]) -> Bench:
    """Models (rows) that are right or wrong on samples (columns) of class 0 of three; the first is the peer's own."""
    said = [[[0.8, 0.1, 0.1] if one else [0.1, 0.8, 0.1] for one in row] for row in right]
    return Bench(np.array(said), np.zeros(len(right[0]), dtype=np.int64), np.arange(len(right)) == 0)


def test_a_gain_is_what_the_choice_has_on_test_images_more_than_ones_own_models(benchmark_file: ModuleType) -> None:
    """The other model is right of all validation images, so it is chosen (k = 1); of four test images it has three, the
    peer's own one: a gain of 50 points. With one's own as good on validation images, ties go to one's own: none."""
    words = ["peers=2", "rounds=1", "method.k=1", "baseline="]
    e = load("fedpae-digits", words)
    me = gather(e).participants[0]
    test = bench([[True, False, False, False], [True, True, True, False]])
    better = benchmark_file.Benches(bench([[True, False], [True, True]]), test)
    equal = benchmark_file.Benches(bench([[True, True], [True, True]]), test)
    assert benchmark_file.gain(me, better, 2, e.method) == pytest.approx(50)
    assert benchmark_file.gain(me, equal, 2, e.method) == 0


def test_what_is_recorded_is_not_computed_again(
    benchmark_file: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "made" / "kept.jsonl"
    tiny = ["fedpae-digits", "peers=3", "rounds=1", "model.zoo=linear,mlp", "data.test=20", "method.k=2"]
    words = [*tiny, "--alphas", "1.0", "--seeds", "0,1", "--sizes", "10,20", "--record", str(record)]
    monkeypatch.setattr(sys, "argv", [str(FILE), *words])
    benchmark_file.main()
    first = capsys.readouterr().out
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert [set(line["gains"]) for line in lines] == [{"10", "20"}] * 2

    def fail(*_: Any) -> None:
        raise AssertionError("it was there already")

    monkeypatch.setattr(benchmark_file, "measured", fail)
    benchmark_file.main()
    assert capsys.readouterr().out == first
    assert first.splitlines()[-4].startswith("| alpha | seeds | 10 images | 20 images |")
