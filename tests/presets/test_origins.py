"""Whose settings a preset has: the paper's as printed, its authors' code's, or ours."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from coterie.cli.main import OK, main
from coterie.comparing.plan import fingerprint
from coterie.config.loading import ORIGINS, load, preset_origins, presets
from coterie.core.errors import ConfigError


@pytest.mark.parametrize("name", sorted(presets()))
def test_every_preset_says_its_own_origin_in_its_second_line(name: str) -> None:
    text = (resources.files("coterie") / "presets" / f"{name}.toml").read_text(encoding="utf-8")
    assert text.splitlines()[1] in [f'origin = "{origin}"' for origin in ORIGINS]


def test_what_is_smaller_than_the_paper_or_no_papers_is_ours() -> None:
    origins = preset_origins()
    for name, origin in origins.items():
        small = name.endswith(("-small", "-digits", "-short", "-long", "-any-model")) or name == "demo"
        mended = name.startswith("panm-") and not name.endswith("-printed")  # similarity and EM are ours
        assert origin == ("ours" if small or mended else "authors" if name.endswith("-authors") else "paper"), name
    assert (origins["mapl-scenario1"], origins["mapl-scenario1-small"]) == ("paper", "ours")


def test_the_list_tells_origins_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "presets"]) == OK
    words = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert {name: origin for name, origin, *_ in words} == preset_origins()
    assert main(["list", "presets", "panm-mnist-printed"]) == OK
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == presets()["panm-mnist-printed"]
    assert second == f"paper: {ORIGINS['paper']}"


def test_an_origin_is_not_inherited_and_changes_nothing(tmp_path: Path) -> None:
    text = (resources.files("coterie") / "presets" / "panm-digits.toml").read_text(encoding="utf-8")
    copied, without = tmp_path / "copied.toml", tmp_path / "without.toml"
    copied.write_text(text)
    without.write_text(text.replace('origin = "ours"\n', ""))
    heir = tmp_path / "heir.toml"
    heir.write_text('base = "panm-digits"\n')
    same = [load(str(path)) for path in (copied, without, heir)]
    assert same == [load("panm-digits")] * 3
    assert {fingerprint(e) for e in same} == {fingerprint(load("panm-digits"))}
    assert "origin" not in same[0].toml()


def test_an_unknown_origin_is_refused(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('origin = "hearsay"\nbase = "panm-digits"\n')
    with pytest.raises(ConfigError, match=r"own\.toml: origin must be one of paper, authors, ours, not 'hearsay'"):
        load(str(own))
    with pytest.raises(ConfigError, match="unknown key 'origin'"):  # it is of a file, and no setting
        load("panm-digits", ["origin=ours"])
