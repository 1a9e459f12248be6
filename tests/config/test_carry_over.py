"""Which parameters carry over from one method to another."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.cli.main import OK, main
from coterie.config import loading
from coterie.config.carry_over import CarriedOver, carry_over, describe_changes, same_meaning
from coterie.core.errors import ConfigError
from coterie.methods import METHODS
from coterie.running.simulated import baseline_of

FEDAVG = {
    "fedavg", "fedprox", "fedavg-ft", "fedper", "fedrep", "fedbabu", "ditto", "fedrod", "pfedsim", "flt", "compfl",
}  # fmt: skip
MAPL = {"mapl", "mapl+"}
# By hand, from what each parameter does. `tau` is in three groups of their own: temperature of contrastive losses
# (mapl, fedclassavg), rounds between matchings (panm), temperature of experts' weights (compfl).
EXPECTED: list[tuple[set[str], set[str]]] = [
    ({"k"}, {"gossip", "fixed", "oracle", "pens", "panm", "dfedavgm"}),
    ({"l", "t1"}, {"pens", "panm"}),
    ({"fraction"}, FEDAVG),
    ({"tau"}, {*MAPL, "fedclassavg"}),
    ({f.name for f in dataclasses.fields(METHODS["mapl"])} - {"tau"}, MAPL),
    ({"models", "patience", "stop", "balanced", "vote"}, {"local-ensemble", "fedpae"}),
    ({"tune", "tuned", "tune_every"}, {"fedavg-ft", "fedbabu"}),
    ({"fit_heads"}, {"fedper", "fedrep", "fedrod"}),
    ({"head_epochs"}, {"fedper", "fedrod"}),  # fedrep has its own, which cannot be 0
]


@pytest.mark.parametrize("one", METHODS)
def test_exactly_what_means_the_same_is_common(one: str) -> None:
    names = {name: {f.name for f in dataclasses.fields(kind)} for name, kind in METHODS.items()}
    for other in METHODS:
        expected = set().union(*(group for group, methods in EXPECTED if {one, other} <= methods))
        found = {name for name in names[one] | names[other] if same_meaning(METHODS[one], METHODS[other], name)}
        assert found == (names[one] if one == other else expected), other


@given(
    st.sampled_from(sorted(METHODS)),
    st.sampled_from(sorted(METHODS)),
    st.dictionaries(st.sampled_from(["name", "k", "l", "tau", "lam", "mu", "fraction", "nonsense"]), st.integers()),
    st.sets(st.sampled_from(["k", "tau"])),
)
def test_nothing_is_lost_and_nothing_else_is_taken(
    source: str, method: str, table: dict[str, int], given_: set[str]
) -> None:
    found = carry_over(table, source, method, given_)
    assert {**found.taken, **found.left} == {k: v for k, v in table.items() if k != "name" and k not in given_}
    assert not found.taken.keys() & found.left.keys()
    assert all(same_meaning(METHODS[source], METHODS[method], name) for name in found.taken)
    assert all(name in str(found) for name in found.left)


def test_the_command_that_gave_mapl_a_temperature_of_five() -> None:
    mapl = loading.load("panm-digits", ["method.name=mapl"])
    assert mapl.tables()["method"]["tau"] == 0.5  # its own default, not PANM's 5 rounds
    fedpae = loading.load("panm-digits", ["method.name=fedpae"])
    assert fedpae.tables()["method"]["k"] == 5  # its own default, not PANM's 3 neighbours
    gossip = loading.load("panm-digits", ["method.name=gossip"])
    assert gossip.tables()["method"] == {"name": "gossip", "k": 3}
    assert describe_changes(gossip.carried) == [
        "gossip takes k=3 from panm's parameters; not taken: metric=loss, tries=0, l=6, t1=15, tau=5"
    ]
    assert "tau=5 (not declared to mean the same)" in describe_changes(mapl.carried)[0]


OWN = """
from dataclasses import dataclass

from coterie import Method, parameter
from coterie.methods.panm import PANM


@dataclass(frozen=True)
class Heir(PANM):
    extra: int = parameter(1, "something new")


@dataclass(frozen=True)
class Other(PANM):
    tau: int = parameter(7, "something else")


@dataclass(frozen=True)
class Alike(Method):
    k: int = parameter(1, "those averaged with", common="neighbours")
    t1: int = parameter(2, "of the same name by chance")

    async def round(self, me): ...


@dataclass(frozen=True)
class Younger(Alike):
    pass
"""


def test_methods_of_the_user(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    panm = {"tau": 5, "k": 3, "t1": 15}
    assert carry_over(panm, "panm", f"{file}:Heir").taken == panm  # it inherits them
    assert carry_over(panm, "panm", f"{file}:Other").taken == {"k": 3, "t1": 15}  # its tau has another meaning
    assert carry_over(panm, "panm", f"{file}:Alike").taken == {"k": 3}
    # The file is loaded anew for each of the two, so their class Alike is not the same object.
    assert carry_over({"k": 3, "t1": 15}, f"{file}:Alike", f"{file}:Younger").taken == {"k": 3, "t1": 15}
    assert carry_over({"k": 3}, f"{tmp_path}/gone.py:Alike", "gossip").left == {"k": 3}


def test_files_of_the_same_name_are_not_the_same_method(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "own.py").write_text(OWN)
    one, other = (f"{tmp_path}/{folder}/own.py:Alike" for folder in ("a", "b"))
    assert carry_over({"k": 3, "t1": 15}, one, other).taken == {"k": 3}  # `t1` means what each file says it does


def test_the_same_method_by_another_path_keeps_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    Path("base.toml").write_text(f'[method]\nname = "{tmp_path}/own.py:Alike"\nk = 4\nt1 = 9\n')
    loaded = loading.load("base.toml", ["method.name=own.py:Alike"])
    assert (loaded.carried, loaded.tables()["method"]["t1"]) == ((), 9)


def test_a_method_that_is_not_run_need_not_be_there(tmp_path: Path) -> None:
    """Its file is missing, or its parameters do not fit the peers: that does not matter if another method is run."""
    file = tmp_path / "mine.toml"
    file.write_text('base = "panm-digits"\n[method]\nname = "gone.py:Gone"\nk = 3\n')
    loaded = loading.load(str(file), ["method.name=gossip"])
    assert describe_changes(loaded.carried) == ["gossip takes none of gone.py:Gone's parameters: k=3"]
    assert loading.load("panm-digits", ["peers=4", "method.name=local"]).method_name == "local"
    with pytest.raises(ConfigError, match=r"gone\.py"):
        loading.load(str(file))


def test_methods_that_could_take_nothing_share_a_line() -> None:
    def nothing(method: str, has_parameters: bool = True) -> CarriedOver:
        return CarriedOver(method, "panm", {}, {"tau": 5}, has_parameters=has_parameters)

    assert describe_changes([nothing("fedprox"), nothing("fedavg"), nothing("local", False), nothing("fedprox")]) == [
        "fedprox, fedavg take none of panm's parameters: tau=5"
    ]
    assert describe_changes([nothing("fedprox")]) == ["fedprox takes none of panm's parameters: tau=5"]


def test_a_baseline_takes_over_what_means_the_same_and_its_mistakes_are_its_own() -> None:
    beside = baseline_of(loading.load("panm-digits", ["baseline=gossip"]))
    assert beside is not None
    assert beside.tables()["method"]["k"] == 3
    assert describe_changes(beside.carried)[0].startswith("gossip takes k=3 from panm's parameters; not taken: ")
    with pytest.raises(ConfigError, match=r"baseline = ifca: method\.c"):
        baseline_of(loading.load("panm-digits", ["baseline=ifca", "peers=1", "method.name=local"]))


def test_the_list_of_a_method_says_what_is_common(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "methods", "pens"]) == OK
    shown = capsys.readouterr().out.partition("shared with other methods")[2]
    assert "method.k   neighbours:           gossip, fixed, oracle, dfedavgm, panm" in shown
    assert main(["list", "methods", "ifca"]) == OK
    assert "shared with" not in capsys.readouterr().out
