"""Functions that are parameters of a method: finding them, errors for wrong ones, and their provenance."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coterie import wiring
from coterie.config import loading, provenance, sections
from coterie.core.errors import ConfigError, MethodError
from coterie.core.named_code import call, find_function, function_parameters, own_code
from coterie.network.agreement import agreement
from coterie.running import simulated

OURS = {"twice": lambda x: 2 * x, "half": lambda x: x / 2}
SMALL = (
    "mapl-scenario1-digits",
    "peers=4",
    "rounds=2",
    "method.t_thr=1",
    "train.epochs=1",
    "baseline=",
    "model.zoo=mlp",
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(*words: str) -> sections.Experiment:
    name, *rest = SMALL
    return loading.load(name, [*rest, *words])


def test_ours_by_name_and_ones_own_by_place(here: Path) -> None:
    (here / "mine.py").write_text("def thrice(x):\n    return 3 * x\n")
    assert find_function("f", "half", OURS, "x")(3) == 1.5
    assert find_function("f", "mine.py:thrice", OURS, "x")(3) == 9
    assert find_function("f", "math:sqrt", OURS, "x")(9) == 3


def test_a_file_is_loaded_again_only_if_it_changed(here: Path) -> None:
    """Else peers, and runs one after the other, would each have a function of their own."""
    file = here / "mine.py"
    file.write_text("def f(x):\n    return 1\n")
    first = find_function("f", "mine.py:f", OURS, "x")
    assert find_function("f", f"{file}:f", OURS, "x") is first
    file.write_text("def f(x):\n    return 2\n")
    assert find_function("f", "mine.py:f", OURS, "x")(0) == 2
    assert first(0) == 1


def test_a_folder_of_the_same_name_does_not_hide_ours(here: Path) -> None:
    for name in ("paper", "rows", "adam"):
        (here / name).mkdir()
    method: Any = load("method.losses=paper", "method.likeness=rows", "method.graph_step=adam").method
    assert (method.losses, method.likeness, method.graph_step) == ("paper", "rows", "adam")


def test_an_empty_name_is_shown_as_it_was_given() -> None:
    with pytest.raises(ConfigError, match="unknown losses ''"):
        load("method.losses=")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("twise", "method.f: unknown f 'twise'. Did you mean 'twice'"),
        ("gone.py:f", "method.f = 'gone.py:f' cannot be imported: [Errno 2] No such file"),
        ("no_such_module:f", "method.f = 'no_such_module:f' cannot be imported: No module named 'no_such_module'"),
        ("mine.py:hlaf", "there is no 'hlaf' in mine.py. Did you mean 'half'?"),
        ("mine.py:number", "method.f = 'mine.py:number' is a int, but must be a function of (x)"),
        (
            "mine.py:two",
            "method.f = 'mine.py:two' takes (a, b), but is called with (x): missing a required argument: 'b'",
        ),
        ("broken.py:f", "method.f = 'broken.py:f' cannot be imported: line 1: "),
        ("raises.py:f", "method.f = 'raises.py:f' cannot be imported: ZeroDivisionError: division by zero"),
    ],
)
def test_wrong_names_are_named(here: Path, name: str, said: str) -> None:
    (here / "mine.py").write_text("number = 3\ndef half(x): ...\ndef two(a, b): ...\n")
    (here / "broken.py").write_text("def f(x: return\n")
    (here / "raises.py").write_text("1 / 0\n")
    with pytest.raises(ConfigError) as error:
        find_function("f", name, OURS, "x")
    assert said in str(error.value)


def test_a_file_that_failed_fails_again(here: Path) -> None:
    """What of it was executed is not taken for the whole."""
    (here / "mine.py").write_text("def f(x): ...\n1 / 0\n")
    for _ in range(2):
        with pytest.raises(ConfigError, match="division by zero"):
            find_function("f", "mine.py:f", OURS, "x")


def test_an_error_in_it_names_the_parameter_and_the_line(here: Path) -> None:
    (here / "mine.py").write_text("def f(x):\n    y = x\n    return y['a']\n")
    found = find_function("f", "mine.py:f", OURS, "x")
    with pytest.raises(MethodError, match=r"method\.f = 'mine\.py:f' failed: TypeError: .*mine\.py, line 3\)"):
        call("method.f", "mine.py:f", found, 3)


def test_an_error_in_a_library_names_the_line_that_called_it(here: Path) -> None:
    (here / "mine.py").write_text("from fractions import Fraction\n\ndef f(x):\n    return Fraction('nonsense')\n")
    found = find_function("f", "mine.py:f", OURS, "x")
    with pytest.raises(MethodError, match=r"Invalid literal for Fraction.*mine\.py, line 4\)"):
        call("method.f", "mine.py:f", found, 3)


# -- in an experiment --------------------------------------------------------------------------

FILE = """
import beside


def loss(net, batch, given):
    return beside.loss(net, batch, given)


def likeness(mine, theirs):
    return (mine * theirs).sum()


def step(weights, own, pull, graph):
    return weights - graph.step * 0
"""
BESIDE = """
from coterie.methods.mapl_losses import mapl_loss as loss
"""
OWN = ("method.losses=mine.py:loss", "method.likeness=mine.py:likeness", "method.graph_step=mine.py:step")


@pytest.fixture
def written(here: Path) -> Iterator[Path]:
    (here / "mine.py").write_text(FILE)
    (here / "beside.py").write_text(BESIDE)
    yield here
    sys.modules.pop("beside", None)  # there is one of each name
    sys.path[:] = [place for place in sys.path if place != str(here)]


def test_mapl_has_three_of_them(written: Path) -> None:
    e = load(*OWN)
    assert function_parameters(e.method) == ["graph_step", "likeness", "losses"]
    names = [f"{written / 'mine.py'}:{name}" for name in ("step", "likeness", "loss")]  # absolute, to be run elsewhere
    assert list(own_code(e.method)) == names
    assert list(own_code(load().method)) == []


def test_a_run_with_them_equals_one_with_ours_where_they_say_the_same(written: Path) -> None:
    """The loss is ours, by way of two files; a step that does not move is one of length zero."""
    own = simulated.run(load(*OWN), written / "own")
    ours = simulated.run(load("method.step=0"), written / "ours")
    assert own["accuracy"] == ours["accuracy"]
    assert own["messages"] == ours["messages"]


def test_a_likeness_that_is_never_a_number_ends_the_run(here: Path) -> None:
    """One that is none for a single head does not: that model may have diverged."""
    (here / "mine.py").write_text("def never(mine, theirs):\n    return float('nan')\n")
    with pytest.raises(MethodError, match=r"method\.likeness = '.*mine\.py:never' returned nan, and no finite number"):
        simulated.run(load("method.likeness=mine.py:never"), here / "run")
    (here / "mine.py").write_text(
        "def once(mine, theirs, seen=[]):\n    seen.append(1)\n    return 1.0 if len(seen) % 3 else float('nan')\n"
    )
    simulated.run(load("method.likeness=mine.py:once"), here / "other")


def test_their_files_and_what_they_import_are_sources_of_a_run(written: Path) -> None:
    before = provenance.of(load(*OWN))
    assert {"mine.py", "beside.py"} <= before.keys()
    assert not {"mine.py", "beside.py"} & provenance.of(load()).keys()
    (written / "mine.py").write_text(FILE + "\n# edited\n")
    assert provenance.differences(before, provenance.on_disk(load(*OWN))) == ["mine.py changed"]
    installed = provenance.of(load("method.likeness=torch.nn.functional:mse_loss"))
    assert installed["torch"] == before["torch"]


def test_peers_agree_on_the_function_wherever_its_file_lies(here: Path) -> None:
    for place in (here, here / "elsewhere"):
        place.mkdir(exist_ok=True)
        (place / "mine.py").write_text("def rows(mine, theirs):\n    return 1.0\n")

    def terms(name: str) -> dict[str, Any]:
        e = load(f"method.likeness={name}")
        circle = wiring.gather(e)
        return agreement(e, circle.dataset, circle.participants[0], "")

    assert terms("mine.py:rows") == terms("elsewhere/mine.py:rows")
    assert terms("mine.py:rows")["method.likeness"] == '":rows"'
    assert terms("rows")["method.likeness"] == '"rows"'  # which is another function
