"""The file with vectors, as the child reads it: what it has read before is no longer shown once it has changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bubbot.models.embeddings.worker import VectorFile


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
