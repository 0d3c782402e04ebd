"""The journey on the page about the trace is the same in both languages, complete, and what a new walk gives."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.docs.journey import BLOCK, PAGES, PICTURES, walk

STATIONS = (
    "open",
    "task",
    "find",
    "turn",
    "step 1",
    "scrub",
    "compare",
    "memory",
    "schedule",
    "anchors",
    "judge",
    "export",
)


def recorded() -> list[str]:
    return [found[0] for page in PAGES for found in BLOCK.finditer(page.read_text(encoding="utf-8"))]


def test_both_pages_have_the_same_whole_journey() -> None:
    english, chinese = recorded()
    assert english == chinese
    assert [line.partition(":")[0] for line in english.splitlines()[5:-1]] == [*STATIONS]


@pytest.mark.proof
def test_the_journey_is_what_a_new_walk_gives(tmp_path: Path) -> None:
    if shutil.which("chromium") is None and shutil.which("chromium-browser") is None:
        pytest.fail("there is no chromium here: apt-get install chromium")
    lines = walk(tmp_path).splitlines()
    numberless = [re.sub(r"\d+", "#", line) for line in lines]
    assert numberless == [re.sub(r"\d+", "#", line) for line in recorded()[0].splitlines()[2:-1]]
    assert {file.name for file in tmp_path.iterdir()} == {file.name for file in PICTURES.glob("trace-*.png")}
