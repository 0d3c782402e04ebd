"""The ratios on a small scale, of the code with itself: everything is measured. How fast it was is no matter here."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from benchmarks.bench.children import ROOT
from benchmarks.ratios import BASE, CURRENT, Plan, Tree, measure, report

WAIT = 120.0


@pytest.mark.proof
async def test_every_row_is_measured(tmp_path: Path) -> None:
    plan = Plan(rounds=1, chats=2, turns=1, spacing=0.01, crowd=3, crowd_turns=1, sizes=(100, 400), flat_turns=1)
    trees = [Tree(name, ROOT, sys.executable) for name in (BASE, CURRENT)]
    async with asyncio.timeout(WAIT):
        rounds, rows = await measure(plan, trees, tmp_path)
    assert len(rows) == 9
    assert all(row.base > 0 and row.current > 0 and row.name in report(rows) for row in rows)
    assert all(len(values) == 1 for of_tree in rounds.taken.values() for values in of_tree.values())
