"""Atomic writes: a file has its old content or its new one."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.core.files import write_whole


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    for text in ("old", "new"):
        write_whole(path, text)
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_names_that_no_text_can_hold_do_not_stop_it(tmp_path: Path) -> None:
    write_whole(tmp_path / "x", "a\udc80b")
    assert (tmp_path / "x").read_text() == "a?b"


def test_on_a_full_disk_the_old_text_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.json"
    write_whole(path, "old")

    def half(self: Path, text: str, **_: object) -> int:
        self.write_bytes(text.encode()[: len(text) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, "new and longer")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
