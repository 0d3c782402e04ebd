"""From which files mutants are drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.mutants.sites import draw


@pytest.mark.parametrize(
    ("only", "found"),
    [
        ((), {"app/a/one.py", "app/b/two.py", "app/ops/three.py"}),
        (("a/",), {"app/a/one.py"}),
        (("/b/", "app/ops/"), {"app/b/two.py", "app/ops/three.py"}),
        (("nowhere",), set()),
    ],
)
def test_they_come_from_files_that_contain_one_of_the_texts(
    tmp_path: Path, only: tuple[str, ...], found: set[str]
) -> None:
    for path in ("app/a/one.py", "app/b/two.py", "app/ops/three.py"):
        file = tmp_path / path
        file.parent.mkdir(parents=True)
        file.write_text("def f(x):\n    return x < 1\n")
    drawn = draw(tmp_path, ("app",), seed=1, count=100, only=only)
    assert {one.path for one in drawn} == found
    assert drawn == draw(tmp_path, ("app",), seed=1, count=100, only=only)
