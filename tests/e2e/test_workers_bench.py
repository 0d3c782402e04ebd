"""The benchmark of workers on a small scale: everything is measured. How fast it was is no matter here."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.workers import PARTS, STORES, TINY, measure, report


@pytest.mark.proof
@pytest.mark.timeout(600)
async def test_everything_is_measured(tmp_path: Path) -> None:
    figures = await measure(TINY, tmp_path, PARTS)
    shown = report(TINY, figures)
    assert set(figures["stores"]) == {f"{what}, {number}" for what in ("merges", "turns") for number in TINY.sessions}
    assert all(taken.middle > 0 for rows in figures["stores"].values() for taken in rows.values())
    assert all(found["turns"].middle > 0 and found["first"].middle > 0 for found in figures["workers"].values())
    assert len(figures["take over"]) == TINY.rounds
    assert all(megabytes > 0 for megabytes in figures["memory"].values())
    assert all(name in shown for name in STORES)
