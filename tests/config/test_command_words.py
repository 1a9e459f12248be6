"""Parsing the words of a command line."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from coterie.cli.main import FAILED, main
from coterie.config.command_words import CommandWords, names_and_settings, parse_words
from coterie.core.errors import ConfigError


def test_words_may_stand_in_any_order() -> None:
    for words in permutations(["rounds=3", "panm-digits", "method.k=2"]):
        found = parse_words(words)
        assert (found.experiment, set(found.settings)) == ("panm-digits", {"rounds=3", "method.k=2"})
    assert parse_words(["rounds=3"]) == CommandWords("demo", (), ("rounds=3",))


def test_methods_are_distinguished_from_settings() -> None:
    words = ["rounds=3", "panm,metric=loss,k=2", "panm-digits", "my.py:Mine,k=2", "local"]
    found = parse_words(words, with_methods=True)
    assert found == CommandWords("panm-digits", ("panm,metric=loss,k=2", "my.py:Mine,k=2", "local"), ("rounds=3",))
    assert parse_words(["gossip"], with_methods=True).experiment == "demo"


def test_a_file_in_a_folder_with_an_equals_sign_is_a_file() -> None:
    assert parse_words(["runs/k=3-0/config.toml"]).experiment == "runs/k=3-0/config.toml"
    assert names_and_settings(["data.name=a/b.csv"]) == ([], ["data.name=a/b.csv"])


@pytest.mark.parametrize(
    ("words", "methods", "told"),
    [
        (["pamn"], True, "Did you mean 'panm'"),
        (["panm", "panm-digits", "demo"], True, "one experiment at a time, not panm-digits and demo"),
        (["panm-digits", "mine.toml"], False, "one experiment at a time, not panm-digits and mine.toml"),
        (["panm-digit"], False, "unknown preset 'panm-digit'. Did you mean 'panm-digits'"),
        (["panm-digits", "rounds"], False, "unknown preset 'rounds'.*settings are words such as rounds=20"),
        (["panm-digits", "gossip"], False, "gossip is a method, not an experiment: use method.name=gossip"),
        (["mine.py:Mine,k=3"], False, "use method.name=mine.py:Mine$"),
    ],
)
def test_words_that_mean_nothing(words: list[str], methods: bool, told: str) -> None:
    for order in permutations(words):
        if "one experiment" not in told or list(order) == words:  # these are named in the order given
            with pytest.raises(ConfigError, match=told):
                parse_words(order, methods)


def test_a_run_folder_is_not_an_experiment(tmp_path: Path) -> None:
    (tmp_path / "config.toml").touch()
    with pytest.raises(ConfigError, match=r"is a run folder\. To use its experiment, give .*config\.toml"):
        parse_words([str(tmp_path)])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run"], "unknown preset 'nope'"),
        (["plan"], "unknown preset 'nope'"),
        (["data", "show"], "unknown preset 'nope'"),
        (["up", "2"], "unknown preset 'nope'"),
        (["compare", "panm"], "unknown word 'nope'"),
        (["sweep", "--over", "method.k=1,2"], "unknown word 'nope'"),
        (["reproduce"], "unknown table 'nope'"),
        (["peer"], "nope is not a .toml file: give a peer's file"),
    ],
    ids=" ".join,
)
def test_every_command_finds_a_name_behind_settings(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "rounds=1", "nope"]) == FAILED
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["up", "panm-digits"], "give the number of peers on its own"),
        (["up", "0"], "give the number of peers on its own"),
        (["up", "-3"], "give the number of peers on its own"),
        (["up", "2", "peers=5"], "without peers="),
        (["up", "panm-digits", "2", "3"], "one number of peers at a time, not 2 and 3"),
        (["up", "panm-digits", "2", "roundz=3"], "Did you mean 'rounds'"),
        (["peer", "a.toml", "b.toml"], "one peer at a time, not a.toml and b.toml"),
        (["peer", "network.compress=zstd"], "name the peer's .toml file"),
        (["reproduce", "a", "b"], "one table at a time, not a and b"),
        (["reproduce"], "`coterie reproduce list` prints all tables"),
        (["reproduce", "--small", "rounds=3"], "`coterie reproduce list` prints all tables"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else None,
)
def test_missing_and_extra_words_are_reported(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == FAILED
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line
