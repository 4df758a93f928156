"""Posts as sets of words, in the order of time."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ps2stream.experiments.s3tm.posts import draw_posts, read_in_order
from tests.support.word_publications import list_sets


def write_posts(path: Path, rows: list[tuple[int, str]]) -> None:
    lines = ["time,lon,lat,text", *(f"{time},1.0,2.0,{text}" for time, text in rows)]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def test_posts_are_read_in_the_order_of_time(tmp_path: Path) -> None:
    path = tmp_path / "posts.csv"
    write_posts(path, [(3000, "coffee @user"), (1000, "harbour coffee"), (2000, "the storm")])
    posts, times, words = read_in_order(str(path), 10, 1)
    assert times.tolist() == [1000, 2000, 3000]
    sets = list_sets(posts)
    assert words == 3
    assert list(map(len, sets)) == [2, 1, 1]  # neither a placeholder nor a stop word
    assert sets[2] < sets[0]


def test_fewer_posts_are_taken_at_equal_distances(tmp_path: Path) -> None:
    path = tmp_path / "posts.csv"
    write_posts(path, [(1000 * i, f"word{i}") for i in range(1, 101)])
    _, times, _ = read_in_order(str(path), 10, 1)
    assert times.tolist() == [1000 * i for i in range(1, 101, 10)]


def test_drawn_posts_are_halved() -> None:
    learn, held, words = draw_posts("synthetic", 300, 1)
    assert (len(learn), len(held)) == (150, 150)
    assert words == len(np.unique(np.r_[learn.word, held.word]))
