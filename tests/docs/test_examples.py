"""Every example runs as a person would run it, and ends with the line it promises."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e import forked

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.name != "__init__.py")
LONGEST = 60
PROMISE = "# prints: "
STRICTLY = (
    "import runpy, sys, warnings\nwarnings.simplefilter('error')\nrunpy.run_path(sys.argv[1], run_name='__main__')"
)
"""As `python -W error FILE` does."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_ends_with_the_line_it_promises(example: Path, tmp_path: Path) -> None:
    promised = example.read_text(encoding="utf-8").splitlines()[-1]
    assert promised.startswith(PROMISE), f"the last line of {example.name} has to say what it {PROMISE}"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}

    ran = forked.run(forked.PROGRAM, [STRICTLY, str(example)], b"", env=environment, cwd=tmp_path)

    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout.decode().splitlines()[-1] == promised.removeprefix(PROMISE)
    assert list(tmp_path.iterdir()) == [], "an example leaves nothing behind"


def test_examples_are_short_and_numbered_without_a_gap() -> None:
    assert [path.name[:2] for path in EXAMPLES] == [f"{number:02}" for number in range(1, len(EXAMPLES) + 1)]
    long = [path.name for path in EXAMPLES if len(path.read_text(encoding="utf-8").splitlines()) >= LONGEST]
    assert long == []
