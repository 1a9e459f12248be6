"""Atomic writes (a file has its old content or its new one), and locks."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from coterie.core.errors import RunError
from coterie.core.files import leftovers, locked, replacing, replacing_folder, write_whole


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    for content in ("old", b"new"):
        write_whole(path, content)
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_names_that_no_text_can_hold_do_not_stop_it(tmp_path: Path) -> None:
    write_whole(tmp_path / "x", "a\udc80b")
    assert (tmp_path / "x").read_text() == "a?b"


def test_on_a_full_disk_the_old_text_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.json"
    write_whole(path, "old")

    def half(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match="No space left") as raised:
        write_whole(path, "new and longer")
    assert raised.value.filename == str(path)  # not the temporary file
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_block_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write_whole(path, "old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as temporary:  # noqa: PT012
        temporary.write_text("half")
        assert leftovers(tmp_path) == leftovers(tmp_path, "events.jsonl") == [temporary]
        assert leftovers(tmp_path, "summary.json") == []
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("sync", "expected"), [(True, ["file", "folder"]), (False, [])])
def test_the_file_and_its_folder_are_synced(
    sync: bool, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    monkeypatch.setattr(os, "fsync", lambda f: synced.append("folder" if stat.S_ISDIR(os.fstat(f).st_mode) else "file"))
    write_whole(tmp_path / "x", "text", sync=sync)
    assert synced == expected


@pytest.mark.parametrize("mode", [0o666, 0o600])
def test_the_mode_holds_from_the_start(mode: int, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with replacing(tmp_path / "x", mode=mode) as temporary:
            modes = [stat.S_IMODE(temporary.stat().st_mode)]
        modes.append(stat.S_IMODE((tmp_path / "x").stat().st_mode))
    finally:
        os.umask(before)
    assert modes == [mode & ~0o022] * 2


def test_a_folder_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "models"
    with replacing_folder(folder) as temporary:
        (temporary / "a").touch()
    with pytest.raises(OSError, match="full"), replacing_folder(folder) as temporary:  # noqa: PT012
        (temporary / "b").touch()
        raise OSError("full")
    assert [path.name for path in folder.iterdir()] == ["a"]
    with replacing_folder(folder) as temporary:
        (temporary / "c").touch()
    assert [path.name for path in folder.iterdir()] == ["c"]
    assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_lock_is_for_one_at_a_time(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "here"
    path.mkdir() if kind == "folder" else path.touch(mode=0o400)  # a lock needs no right to write
    with (
        locked(path, "wait"),
        pytest.raises(RunError, match=r"^the run is in use by another process: choose another$"),
        locked(path, "choose another", what="the run"),
    ):
        pass
    with locked(path):
        pass  # the end of the first block released it


def test_a_lock_can_wait(tmp_path: Path) -> None:
    order = []

    def second() -> None:
        with locked(tmp_path, wait=True):
            order.append("second")

    thread = threading.Thread(target=second)
    with locked(tmp_path):
        thread.start()
        thread.join(0.05)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_lock_on_nothing(tmp_path: Path) -> None:
    path = tmp_path / "absent"
    with pytest.raises(RunError, match=r"absent cannot be locked \(No such file or directory\)"), locked(path):
        pass
