"""Names as tables show them."""

from __future__ import annotations

import pytest

from coterie.core.formatting import short_name, short_names


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("panm", "panm"),
        ("package.module:Mine", "package.module:Mine"),
        ("/home/me/my work/mine.py:Mine", "mine.py:Mine"),
        ("/home/me/mine.py:Mine,k=3,mu=0.5", "mine.py:Mine,k=3,mu=0.5"),
        ("k=1 name=/home/me/mine.py:Mine lr=0.1", "k=1 name=mine.py:Mine lr=0.1"),
        ("/data/images", "images"),
    ],
)
def test_a_path_is_shown_by_its_end(name: str, short: str) -> None:
    assert short_name(name) == short


def test_names_that_would_be_the_same_stay_long() -> None:
    names = ["/a/mine.py:Mine", "/b/mine.py:Mine", "/b/other.py:Mine", "panm"]
    assert list(short_names(names).values()) == ["/a/mine.py:Mine", "/b/mine.py:Mine", "other.py:Mine", "panm"]
