"""Which runs a command line asks for."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from coterie.comparing import plan
from coterie.comparing.plan import Variant
from coterie.config import provenance
from coterie.config.command_words import CommandWords
from coterie.config.loading import load
from coterie.config.sections import SECTIONS, Experiment
from coterie.core.errors import ConfigError, CoterieError, RunError
from coterie.core.settings import without_effect


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (CommandWords("demo", (), ()), "name the methods to compare"),
        (CommandWords("demo", ("panm",), ("seed=3",)), "--seeds"),
        (CommandWords("demo", ("panm,metric=loss",), ("method.k=3",)), "such as panm,k=3"),
        (CommandWords("demo", ("panm,loss",), ()), "'loss' is not a parameter"),
    ],
)
def test_invalid_requests_to_compare(request_: CommandWords, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        plan.methods(request_)


def test_those_who_train_alone_are_added_once_for_each_other_setting() -> None:
    found = plan.with_local(plan.methods(CommandWords("demo", ("panm", "gossip"), ())))
    assert [v.label for v in found] == ["panm", "gossip", "local"]
    assert [v.label for v in plan.with_local(plan.methods(CommandWords("demo", ("local", "panm"), ())))] == [
        "local",
        "panm",
    ]
    swept = plan.with_local(plan.grid(["method.k=1,2", "data.alpha=0.1,0.5"]))
    assert [v.label for v in swept][4:] == ["local data.alpha=0.1", "local data.alpha=0.5"]
    assert plan.local_twin(swept[0]) == swept[4]
    assert plan.local_twin(swept[4]) == swept[4]


def test_a_grid_is_every_combination() -> None:
    found = plan.grid(["method.k=1,2", "data.name=digits,mnist"])
    assert found == [
        Variant("k=1 name=digits", ("method.k=1", "data.name=digits")),
        Variant("k=1 name=mnist", ("method.k=1", "data.name=mnist")),
        Variant("k=2 name=digits", ("method.k=2", "data.name=digits")),
        Variant("k=2 name=mnist", ("method.k=2", "data.name=mnist")),
    ]
    both = plan.grid(["method.lr=1", "train.lr=2"])
    assert [v.label for v in both] == ["method.lr=1 train.lr=2"]
    lists = plan.grid(["model.hidden=[32],[64, 32]", "engine.asynchronous=true,false"])
    assert [v.words[0] for v in lists[::2]] == ["model.hidden=[32]", "model.hidden=[64, 32]"]
    assert lists[0].words[1] == "engine.asynchronous=true"


def test_a_key_and_a_value_count_once() -> None:
    assert [v.label for v in plan.grid(["method.k=1,2,1"])] == ["k=1", "k=2"]
    with pytest.raises(ConfigError, match=r"--over method\.k is given 2 times"):  # else the last one would win
        plan.grid(["method.k=1,2", "train.lr=1", "method.k=3"])


@pytest.mark.parametrize("axis", ["method.k", "=1", "seed=0,1", "baseline=local"])
def test_axes_that_are_none(axis: str) -> None:
    with pytest.raises(ConfigError, match="--over"):
        plan.grid([axis])


def test_every_variant_is_run_with_every_seed_on_the_same_data(tmp_path: Path) -> None:
    variants = plan.methods(CommandWords("panm-digits", ("panm", "gossip,k=2"), ()))
    found = plan.jobs("panm-digits", variants, (0, 4), ("rounds=3",), tmp_path)
    assert [(job.variant.label, job.seed) for job in found] == [
        ("panm", 0), ("gossip,k=2", 0), ("panm", 4), ("gossip,k=2", 4),
    ]  # fmt: skip
    assert {job.experiment.rounds for job in found} == {3}
    assert {job.experiment.baseline for job in found} == {""}
    one, other = found[0].experiment, found[1].experiment
    assert (one.data, one.model, one.train) == (other.data, other.model, other.train)
    assert found[1].folder == tmp_path / "gossip,k=2-0"


def test_the_folder_is_the_same_for_the_same_settings_alone() -> None:
    first = plan.default_folder("compare", "panm-digits", ["rounds=3"])
    assert first == plan.default_folder("compare", "panm-digits", ["rounds=3", "engine.workers=7"])
    assert first != plan.default_folder("compare", "panm-digits", ["rounds=4"])


# As in the fingerprints of all records so far; workers and checkpoint do not have their defaults there.
WITHOUT_EFFECT = {
    "name": "simulation", "address": "", "workers": 1, "checkpoint": 0, "models": True, "sinks": [], "spill": "",
}  # fmt: skip


def test_settings_without_effect_have_one_value_in_fingerprints() -> None:
    words = ["name=processes", "workers=7", "checkpoint=3", "models=false", "spill=there"]
    other = load("panm-digits", ["baseline=gossip", *(f"engine.{word}" for word in words)])
    assert plan.fingerprint(other) == plan.fingerprint(load("panm-digits"))
    found = json.loads(plan.fingerprint(other))
    assert found["baseline"] == ""
    has_effect = {"asynchronous": False, "batching": "auto", "threads": 1, "device": "cpu"}
    assert found["engine"] == {**WITHOUT_EFFECT, **has_effect}
    assert without_effect(Experiment) == {"baseline": ""}
    assert [name for name, kind in SECTIONS.items() if without_effect(kind)] == ["engine", "evaluate"]
    assert without_effect(SECTIONS["evaluate"]) == {"predictions": "auto"}


def test_a_run_with_other_settings_is_never_taken_for_this_one(tmp_path: Path) -> None:
    (job,) = plan.jobs("panm-digits", [Variant("local", ("method.name=local",))], (0,), (), tmp_path)
    assert not plan.run_status(job).current
    job.folder.mkdir()
    (job.folder / "config.toml").write_text(load("panm-digits", ["method.name=local", "engine.workers=9"]).toml())
    provenance.begin(job.folder, job.experiment)
    assert not plan.run_status(job).current
    (job.folder / "summary.json").write_text("{}")
    assert plan.run_status(job).current
    (job.folder / "config.toml").write_text(load("panm-digits", ["method.name=local", "rounds=9"]).toml())
    with pytest.raises(RunError, match="other settings"):
        plan.run_status(job)


def test_a_sweep_with_parameters_of_its_method_has_local_beside_it() -> None:
    variants = plan.with_local(plan.grid(["train.lr=0.1,0.2"]))
    words = ["method.name=gossip", "method.k=1"]  # k is nothing that Local knows
    found = plan.jobs("panm-digits", variants, [0], words, Path("here"))
    assert [job.experiment.method_name for job in found] == ["gossip", "gossip", "local", "local"]
    assert [job.experiment.train.lr for job in found] == [0.1, 0.2, 0.1, 0.2]


def test_local_in_a_grid_is_planned_once_and_has_its_place() -> None:
    axes = ["method.name=local,gossip", "train.lr=0.1,0.2"]
    grid = plan.grid(axes)
    rows = plan.with_local(grid)
    assert rows == grid  # nobody else runs beside
    assert [v.label for v in rows] == [
        "local train.lr=0.1",
        "local train.lr=0.2",
        "name=gossip lr=0.1",
        "name=gossip lr=0.2",
    ]
    assert plan.local_twin(rows[2]) == rows[0]
    assert plan.places(grid, axes)["local train.lr=0.2"] == {"method.name": "local", "train.lr": "0.2"}
    jobs = plan.jobs("panm-digits", rows, [0], [], Path("here"))
    assert len({plan.fingerprint(job.experiment) for job in jobs}) == len(jobs) == 4


def test_local_beside_a_grid_has_no_place_in_it() -> None:
    axes = ["method.name=panm,gossip"]
    grid = plan.grid(axes)
    assert [v.label for v in plan.with_local(grid)] == ["name=panm", "name=gossip", "local"]
    assert plan.places(grid, axes) == {"name=panm": {"method.name": "panm"}, "name=gossip": {"method.name": "gossip"}}


def test_a_sweep_of_an_experiment_whose_method_is_local_runs_it_once() -> None:
    request = CommandWords("panm-digits", (), ("method.name=local",))
    grid = plan.grid(["train.lr=0.1,0.2"], plan.method_of(request))
    rows = plan.with_local(grid)
    jobs = plan.jobs(request.experiment, rows, [0], request.settings, Path("here"))
    assert [(job.experiment.method_name, job.experiment.train.lr) for job in jobs] == [("local", 0.1), ("local", 0.2)]


@pytest.mark.parametrize(
    ("methods", "experiment", "words", "told"),
    [
        (("gossip",), "nowhere.toml", ("method.qq=1",), "nowhere.toml cannot be read"),
        (("nowhere.py:X",), "panm-digits", ("method.k=77",), "nowhere.py:X' cannot be imported"),
        (("gossip",), "panm-digits", ("data.name=nowhere.csv", "method.k=99"), "nowhere.csv: there is no such file"),
        (("gossip",), "panm-digits", ("method.k=99",), "attach it to a method, such as gossip,k=99"),
        (("gossip",), "panm-digits", ("baseline=",), "unless --no-local is given"),
    ],
)
def test_a_file_that_is_not_there_is_said_before_anything_about_parameters(
    methods: tuple[str, ...], experiment: str, words: tuple[str, ...], told: str
) -> None:
    with pytest.raises(CoterieError, match=re.escape(told)):
        plan.methods(CommandWords(experiment, methods, words))
