"""The daemon is killed, and its platforms lose answers, while it shows what it writes: no piece stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.kill_talk import kills_of_live_answers
from tests.e2e.test_kill_discord import both


@pytest.mark.parametrize("debounce", [0, 1])
async def test_random_kills_leave_no_piece_of_an_answer(tmp_path: Path, debounce: int) -> None:
    async with both() as platforms:
        found = await kills_of_live_answers(tmp_path / "home", platforms, seed=7, lives=2, chats=2, debounce=debounce)
    assert {name: one.faults() for name, one in found.items()} == {name: (0, 0, []) for name in found}


@pytest.mark.proof
@pytest.mark.parametrize("debounce", [0, 1])
@pytest.mark.parametrize("seed", range(200, 205))
async def test_three_hundred_kills_leave_no_piece_on_either_platform(
    tmp_path: Path, seed: int, debounce: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async with both() as platforms:
        found = await kills_of_live_answers(
            tmp_path / "home", platforms, seed=seed, lives=30, chats=2, debounce=debounce
        )
    with capsys.disabled():
        print(f"\nseed {seed}, debounce {debounce}: {found}")
    assert {name: (*one.faults(), one.split) for name, one in found.items()} == {name: (0, 0, [], 0) for name in found}
