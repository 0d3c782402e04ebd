"""The file with vectors, as the child reads it: what it has read before is no longer shown once it has changed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bubbot.models.embeddings.worker import VectorFile, answer_or_tell, find_alike

CACHED_TAPES = 4


NO_ENCODER: Any = None
"""What is asked here needs none."""


def test_what_was_read_before_is_read_again_after_a_change(tmp_path: Path) -> None:
    file = VectorFile(tmp_path / "passages.db")
    east, north = np.array([[1.0, 0.0]], np.float32), np.array([[0.0, 1.0]], np.float32)
    assert file.read("chat")[0].tolist() == []
    file.add("chat", [3], east, (3, "noon"))
    file.add("other", [1], east, (1, "noon"))
    assert file.read("chat")[0].tolist() == [3]
    file.add("chat", [2], north, (3, "night"))
    ids, vectors = file.read("chat")
    assert (ids.tolist(), vectors.tolist()) == ([2, 3], [[0.0, 1.0], [1.0, 0.0]])
    file.forget("chat")
    assert (file.read("chat")[0].tolist(), file.coverage("chat")) == ([], (0, ""))
    assert file.read("other")[0].tolist() == [1]
    file.close()


def test_a_file_that_is_damaged_inside_begins_anew_after_one_error(tmp_path: Path) -> None:
    """Its head is well: only a read of what it holds finds the damage."""
    path = tmp_path / "passages.db"
    file = VectorFile(path)
    file.add("chat", [*range(1, 1_001)], np.ones((1_000, 384), np.float32), (1_000, "noon"))
    file.close()
    data = path.read_bytes()
    path.write_bytes(data[:4_096] + b"\xff" * (len(data) - 4_096))
    with closing(file):
        assert answer_or_tell(NO_ENCODER, file, {"coverage": "chat"}).keys() == {"error"}
        assert answer_or_tell(NO_ENCODER, file, {"coverage": "chat"}) == {"coverage": (0, "")}


def test_a_file_of_another_version_begins_anew_and_a_failed_write_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "passages.db"
    file = VectorFile(path)
    file.add("chat", [1], np.ones((1, 2), np.float32), (1, "noon"))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        file.open().execute("PRAGMA busy_timeout = 0")
        assert "locked" in str(answer_or_tell(NO_ENCODER, file, {"forget": "chat"})["error"])
    assert file.coverage("chat") == (1, "noon")
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 77")
    file.close()
    assert file.coverage("chat") == (0, "")
    file.close()


def test_passages_before_an_entry_come_the_most_alike_first(tmp_path: Path) -> None:
    file = VectorFile(tmp_path / "passages.db")
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [0.0, 1.0]], np.float32)
    file.add("chat", [2, 3, 5, 7], vectors, (7, ""))
    north = np.array([0.0, 1.0], np.float32)
    assert find_alike(file, "chat", north, 7, 9) == [(3, 1.0), (5, pytest.approx(0.8, abs=0.001)), (2, 0.0)]
    assert find_alike(file, "chat", north, 8, 2) == [(3, 1.0), (7, 1.0)]
    assert find_alike(file, "chat", north, 2, 9) == find_alike(file, "none", north, 9, 9) == []
    file.close()


def test_only_the_vectors_of_the_last_tapes_stay_in_memory(tmp_path: Path) -> None:
    file = VectorFile(tmp_path / "passages.db")
    names = [str(number) for number in range(CACHED_TAPES)]
    first = file.read("first")
    for name in names[1:]:
        file.read(name)
    assert file.read("first") is first, "it is the newest again"
    for name in names:
        file.read(name)
    assert file.read("first") is not first
    file.close()
