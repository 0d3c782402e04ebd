"""A frozen worker writes, sends and runs nothing once others took over; the page shows what both say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.frozen_worker import BLOCK, PAGES, freeze


@pytest.mark.proof
@pytest.mark.timeout(600)
async def test_the_page_shows_what_a_frozen_worker_and_its_successor_say(tmp_path: Path) -> None:
    found = await freeze(tmp_path)
    for page in PAGES:
        match = BLOCK.search(page.read_text(encoding="utf-8"))
        assert match is not None
        assert found == match[2], page
