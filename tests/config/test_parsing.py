"""Settings: tables to dataclasses and back, the words of the command line, and experiments made of them."""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.config import loading, parsing, sections
from coterie.core.errors import ConfigError


@dataclass(frozen=True)
class Section:
    count: int = 1
    share: float = 0.5
    on: bool = False
    name: str = "x"
    names: tuple[str, ...] = ()
    pair: tuple[float, int] = (0.5, 2)
    windows: tuple[tuple[float, float], ...] = ()
    size: int | str = 3


# -- tables to dataclasses -----------------------------------------------------------------------


def test_a_table_becomes_an_instance() -> None:
    table = {
        "count": 2, "share": 3, "on": True, "name": "y", "names": ["a", "b"],
        "pair": [1, 2], "windows": [[0, 1], [2.5, 3]], "size": "big",
    }  # fmt: skip
    built = parsing.build(Section, table, "part.")
    assert built == Section(2, 3.0, True, "y", ("a", "b"), (1.0, 2), ((0.0, 1.0), (2.5, 3.0)), "big")
    assert type(built.share) is float
    assert parsing.build(Section, {}, "") == Section()


def test_one_item_serves_as_a_list_of_one() -> None:
    assert parsing.build(Section, {"names": "a"}, "").names == ("a",)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"cuont": 1}, "part.cuont: unknown key 'cuont'. Did you mean 'count'?"),
        ({"count": 1.0}, "part.count must be a whole number, not 1.0"),
        ({"count": True}, "part.count must be a whole number, not True"),
        ({"count": "1"}, "part.count must be a whole number, not '1'"),
        ({"share": "much"}, "part.share must be a number, not 'much'"),
        ({"share": True}, "part.share must be a number, not True"),
        ({"share": [0.5]}, "part.share must be a number, not [0.5]"),
        ({"on": 1}, "part.on must be true or false, not 1"),
        ({"name": 5}, "part.name must be text, not 5"),
        ({"name": {"a": 1}}, "part.name must be text, not {'a': 1}"),
        ({"names": ["a", 2]}, "part.names[1] must be text, not 2"),
        ({"pair": [1.0]}, "part.pair needs 2 values, not [1.0]"),
        ({"pair": [1.0, 2.5]}, "part.pair[1] must be a whole number, not 2.5"),
        ({"windows": [[1, 2], [1, "x"]]}, "part.windows[1][1] must be a number, not 'x'"),
        ({"size": 1.5}, "part.size must be a whole number, not 1.5"),
    ],
)
def test_an_error_names_the_key(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parsing.build(Section, table, "part.")
    assert str(raised.value).startswith(message)


def test_an_unknown_key_lists_the_valid_ones() -> None:
    with pytest.raises(ConfigError, match="Valid: count, name, names, on, pair, share, size, windows"):
        parsing.build(Section, {"zzzzz": 1}, "")


# -- words of the command line -------------------------------------------------------------------


def test_words_become_nested_tables() -> None:
    words = ["rounds=20", "method.k=3", "method.name=panm", "train.lr = 0.1", "a.b.c=true"]
    assert parsing.overrides(words) == {
        "rounds": 20,
        "method": {"k": 3, "name": "panm"},
        "train": {"lr": 0.1},
        "a": {"b": {"c": True}},
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5), ("-1", -1), ("1e3", 1000.0), ("inf", float("inf")), ("true", True), ("'5'", "5"),
        ('"a,b"', "a,b"), ("mlp", "mlp"), ("a,b", ["a", "b"]), ("1,2.5,x", [1, 2.5, "x"]), ("[1, 2]", [1, 2]),
        ("[[1, 0, 5]]", [[1, 0, 5]]), ("[cnn3,mlp]", ["cnn3", "mlp"]), ("[cnn3, 2]", ["cnn3", 2]), ("[]", []),
        ("my.py:Net", "my.py:Net"), ("", ""), ("a=b", "a=b"), ("/tmp/a b", "/tmp/a b"), ("True", "True"),
    ],
)  # fmt: skip
def test_a_value_is_toml_where_it_reads_as_such_else_text(text: str, value: object) -> None:
    read = parsing.overrides([f"key={text}"])["key"]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize("word", ["rounds", "=5", ""])
def test_a_word_that_is_no_assignment_is_named(word: str) -> None:
    with pytest.raises(ConfigError, match=f"'{word}' is not key=value"):
        parsing.overrides([word])


def test_a_value_cannot_be_a_section_too() -> None:
    with pytest.raises(ConfigError, match="'a' was already given a value"):
        parsing.overrides(["a=1", "a.b=2"])


def test_a_later_word_wins() -> None:
    assert parsing.overrides(["a.b=1", "a.b=2"]) == {"a": {"b": 2}}


# -- merging -------------------------------------------------------------------------------------


def test_merge_goes_table_by_table_and_changes_neither() -> None:
    base, over = {"a": 1, "b": {"x": 1, "y": {"z": 1}}}, {"b": {"y": {"w": 2}}, "c": 3}
    assert parsing.merge(base, over) == {"a": 1, "b": {"x": 1, "y": {"z": 1, "w": 2}}, "c": 3}
    assert base == {"a": 1, "b": {"x": 1, "y": {"z": 1}}}
    assert over == {"b": {"y": {"w": 2}}, "c": 3}


def test_a_section_cannot_be_replaced_by_a_value() -> None:
    with pytest.raises(ConfigError, match=r"method is a section: set one of its keys, such as method.name="):
        parsing.merge({"method": {"name": "panm"}}, {"method": "local"})


# -- TOML ----------------------------------------------------------------------------------------

keys = st.text("abcxyz_-019", min_size=1, max_size=5)
printable = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\n\t\"\\'"), max_size=8)
scalars = st.booleans() | st.integers() | st.floats(allow_nan=False) | printable
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner), max_leaves=5)
tables = st.dictionaries(keys, values | st.dictionaries(keys, values, max_size=4), max_size=5)


def with_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: with_lists(v) for key, v in value.items()}
    return [with_lists(v) for v in value] if isinstance(value, list | tuple) else value


def typed(value: Any) -> Any:
    """True == 1 == 1.0, but a setting must keep its type."""
    if isinstance(value, dict):
        return {key: typed(v) for key, v in value.items()}
    return [typed(v) for v in value] if isinstance(value, list) else (type(value), value)


@given(tables)
def test_toml_reads_back_what_was_dumped(table: dict[str, Any]) -> None:
    assert typed(tomllib.loads(parsing.dump(table))) == typed(with_lists(table))


def test_control_characters_survive_in_text() -> None:
    table = {"name": "".join(map(chr, [*range(0x20), 0x7F]))}
    assert tomllib.loads(parsing.dump(table)) == table


# -- experiments ---------------------------------------------------------------------------------

SMALL = """
rounds = 7
peers = 6
[method]
name = "panm"
l = 4
k = 2
[train]
lr = 0.25
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return str(path)


def test_words_win_over_the_file_and_the_file_over_defaults(file: str) -> None:
    loaded = loading.load(file, ["rounds=9", "method.k=3", "train.batch=5"])
    assert (loaded.rounds, loaded.peers, loaded.seed) == (9, 6, 0)  # word, file, default
    assert (loaded.method.k, loaded.method.l, loaded.method.tau) == (3, 4, 10)  # type: ignore[attr-defined]
    assert (loaded.train.batch, loaded.train.lr, loaded.train.momentum) == (5, 0.25, 0.9)


def test_another_method_keeps_the_parameters_they_share(file: str) -> None:
    loaded = loading.load(file, ["method.name=gossip"])
    assert loaded.method_name == "gossip"
    shared = {f.name for f in dataclasses.fields(loaded.method)} & {"l", "k"}
    for name, value in {"l": 4, "k": 2}.items():
        if name in shared:
            assert getattr(loaded.method, name) == value
    local = loading.with_method(loading.load(file), "local")
    assert (local.method_name, local.train.lr) == ("local", 0.25)


@pytest.mark.parametrize("name", sorted(loading.presets()))
def test_every_preset_loads_and_says_what_it_is(name: str) -> None:
    loaded = loading.load(name)
    assert loaded.engine.workers == 0
    assert loading.presets()[name]
    assert loading.from_tables(tomllib.loads(loaded.toml())) == loaded


def test_there_are_presets() -> None:
    assert loading.DEMO in loading.presets()


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["clock.offline=[[1,0,inf],[2,3,4.5]]", "clock.speed=100,200", "clock.dropout=0.25"],
        ["model.zoo=mlp", "model.hidden=[]", "train.betas=0.5,0.75", "train.optimizer=adam"],
        ["method.name=fedavg", "baseline=local"],
        ['data.name=C:\\data\\"mine".csv', "data.label=größe"],
    ],
)
def test_the_config_of_a_run_reloads_to_an_equal_experiment(
    tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path('C:\\data\\"mine".csv').touch()  # a name that shells do not like
    loaded = loading.load("panm-digits", words)
    path = tmp_path / "config.toml"
    path.write_text(loaded.toml(), encoding="utf-8")
    assert loading.load(str(path)) == loaded


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ruonds=5"], "unknown key 'ruonds'. Did you mean 'rounds'?"),
        (["train.lrate=5"], "train.lrate: unknown key"),
        (["method.kk=5"], "method.kk: unknown key"),
        (["method.name=panmm"], "Did you mean 'panm'?"),
        (["baseline=locall"], "Did you mean 'local'?"),
        (["rounds=many"], "rounds must be a whole number, not 'many'"),
        (["rounds=0"], "rounds must be at least 1, not 0"),
        (["rounds.x=1"], "rounds must be one value"),
        (["train=5"], "train is a section"),
        (["method=local"], "method is a section"),
        (["evaluate=5"], "evaluate is a section"),
        (["train.epochs=-1"], "train.epochs must be at least 0, not -1"),
        (["train.batch=0"], "train.batch must be at least 1, not 0"),
        (["train.lr=0"], "train.lr must be above 0, not 0.0"),
        (["train.optimizer=sdg"], "train.optimizer must be one of sgd, adam, adamw, "),
        (["engine.batching=maybe"], "engine.batching must be one of"),
        (["engine.device=abacus"], "engine.device = 'abacus' cannot be used on this machine"),
        (["method.l=6"], "method.l"),
    ],
)
def test_a_bad_experiment_names_the_key(file: str, words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        loading.load(file, words)
    assert message in str(raised.value)


@pytest.mark.parametrize("word", ["method.name=5", "method.name=true", "method.name=a,b", "method.name.x=1"])
def test_a_method_name_that_is_no_text_is_an_error(file: str, word: str) -> None:
    with pytest.raises(ConfigError, match=r"method\.name"):
        loading.load(file, [word])


def test_a_file_whose_method_is_no_section_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text('method = "panm"\n')
    with pytest.raises(ConfigError, match="method is a section"):
        loading.load(str(path))
    assert loading.load(str(path), ["method.name=local"]).method_name == "local"


@pytest.mark.parametrize(
    "word",
    ["train.lr=nan", "train.lr=inf", "train.momentum=-1", "train.weight_decay=-1", "train.betas=0.9,1.5"],
)
def test_numbers_that_no_optimiser_takes_are_an_error(file: str, word: str) -> None:
    with pytest.raises(ConfigError, match=word.partition("=")[0]):
        loading.load(file, [word])


def test_a_preset_or_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown preset 'dmeo'. Did you mean 'demo'"):
        loading.load("dmeo")
    with pytest.raises(ConfigError, match=r"none.toml cannot be read"):
        loading.load(str(tmp_path / "none.toml"))
    broken = tmp_path / "broken.toml"
    broken.write_text("rounds = = 5")
    with pytest.raises(ConfigError, match=r"broken.toml is not valid TOML"):
        loading.load(str(broken))


def test_a_file_that_is_not_text_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "bytes.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"bytes.toml"):
        loading.load(str(path))


def test_categories_of_columns_are_a_table(tmp_path: Path) -> None:
    """From a file or from words, in any order; they come back from a run's own file, and settings stay keys."""
    words = ["data.categories.sex=f,m", 'data.categories={ "chest pain" = ["1", "2"] }']
    e = loading.load("panm-digits", words[:1])
    assert e.data.categories == {"sex": ("f", "m")}
    assert loading.load("panm-digits", words[1:]).data.categories == {"chest pain": ("1", "2")}
    (tmp_path / "again.toml").write_text(e.toml(), encoding="utf-8")
    again = loading.load(str(tmp_path / "again.toml"))
    assert again == e
    assert len({again.data, e.data, loading.load("panm-digits", []).data}) == 2
    two = {"sex": ["f"], "site": ["a", "b"]}
    one, other = (dict(order) for order in (two.items(), reversed(two.items())))
    made = [parsing.build(sections.DataSettings, {"categories": table}, "data.") for table in (one, other)]
    assert len(set(made)) == 1


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("data.categories=sex", "data.categories must be a table of names and values, not 'sex'"),
        ("data.categories.sex=[1, 2]", r"data.categories.sex\[0\] must be text, not 1"),
        ("data.categories.sex=[]", r"data.categories.sex must list one or more different texts, not \[\]"),
        ("data.categories.sex=f,f", "data.categories.sex must list one or more different texts"),
        ("data.labels=a,a", "data.labels lists a label twice"),
        ("data.scale=half", "data.scale must be one of auto, standard, unit, schema, pooled, none, not 'half'"),
    ],
)
def test_categories_and_labels_that_are_none(word: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        loading.load("panm-digits", [word])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train.optimizer=adamw", "train.momentum=0.5"], "train.momentum has no effect with train.optimizer = adamw"),
        (["train.betas=0.5,0.9"], "train.betas has no effect with train.optimizer = sgd"),
        (["train.optimizer=adagrad", "train.betas=0.5,0.9"], "train.betas has no effect with train.optimizer"),
        (["train.schedule=cosine", "train.lr_decay=0.9"], "train.lr_decay has no effect with train.schedule = cosine"),
        (["train.schedule=constant", "train.step_every=2"], "train.step_every has no effect with train.schedule"),
        (["train.lr_decay=1", "train.step_every=2"], "train.step_every has no effect with train.lr_decay = 1"),
        (["rounds=5", "train.warmup=5"], "train.warmup = 5 must be below the number of rounds, 5"),
    ],
)
def test_a_training_setting_without_effect_is_named(words: list[str], message: str, tmp_path: Path) -> None:
    """On the command line and in a file; not if it stays from a preset, or in the config.toml of a run."""
    with pytest.raises(ConfigError) as raised:
        loading.load("panm-digits", words)
    assert message in str(raised.value)
    path = tmp_path / "mine.toml"
    tables = parsing.overrides(words)
    path.write_text(f'base = "panm-digits"\n{parsing.dump(tables)}', encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        loading.load(str(path))
    assert message in str(raised.value)


def test_training_settings_that_stay_from_a_preset_do_no_harm(tmp_path: Path) -> None:
    """MAPL's presets have Adam's betas; with sgd they have no effect, then and when the run's config is read again."""
    words = ["train.optimizer=sgd", "train.lr=0.05", "method.t_thr=2"]
    loaded = loading.load("mapl-scenario1-small", words)
    assert loaded.train.betas == (0.5, 0.999)
    path = tmp_path / "config.toml"
    path.write_text(loaded.toml(), encoding="utf-8")
    assert loading.load(str(path)) == loaded


def test_an_optimisers_defaults_may_be_given() -> None:
    loading.load("panm-digits", ["train.optimizer=adam", "train.momentum=0.9", "train.lr_decay=1"])
