"""Talks with branches over lives of the process that end in the middle: the tape is that of the model, and nothing is done twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.store import TapeStore
from tests.property.agent_trees import Life, live_killed, open_tree_store
from tests.property.branch_talks import check_talk, expect, live_talk

TALKS, KILLED = 40, 10
PROOF_TALKS, PROOF_KILLED = 1000, 200


async def count_writes(seed: int, log: Path) -> int:
    """Live the talk once undisturbed; return how often that wrote."""
    life = Life(log)
    check_talk(seed, await live_talk(InMemoryStore(), seed, life, 0))
    return life.writes


async def try_talk(seed: int, folder: Path, store: TapeStore) -> None:
    """Live one talk with a death at a random write, and a second one in the life that takes it up."""
    writes = await count_writes(seed, folder / f"{seed}.whole")
    chance, log = random.Random(seed), folder / f"{seed}.log"
    for number in range(3):
        dies_at = chance.randint(1, writes) if number < 2 else 0
        life = Life(log, dies_at, is_after=chance.random() < 0.5)
        outcome = await live_talk(store, seed, life, number)
        if not life.is_dead:
            break
    if not outcome.has_given_up:
        check_talk(seed, outcome)
    assert all(count == 1 for line, count in outcome.ran.items() if line.startswith("send.out"))
    assert await store.forks() == []


@pytest.mark.sampled(2)
@pytest.mark.law("T13", "T14", "T20")
@pytest.mark.parametrize("part", range(4))
async def test_talks_with_deaths_at_any_write(tmp_path: Path, part: int) -> None:
    for seed in range(part, TALKS, 4):
        await try_talk(seed, tmp_path, InMemoryStore())


@pytest.mark.proof
@pytest.mark.parametrize("part", range(10))
async def test_a_thousand_talks_with_deaths_at_any_write(tmp_path: Path, part: int) -> None:
    for seed in range(part, PROOF_TALKS, 10):
        store = await open_tree_store(tmp_path / f"{seed}.db")
        try:
            await try_talk(seed, tmp_path, store)
        finally:
            await store.aclose()


async def try_killed_talk(seed: int, folder: Path) -> None:
    """Live one talk whose process is killed, and taken up by another one."""
    writes = await count_writes(seed, folder / f"{seed}.whole")
    chance = random.Random(seed)
    log, path = folder / f"{seed}.log", folder / f"{seed}.db"
    at, is_after = chance.randint(2, writes - 1), chance.random() < 0.5
    life = f"run_talk_life({str(path)!r}, {str(log)!r}, {seed}, {at}, is_after={is_after})"
    await live_killed(f"from tests.property.branch_talks import run_talk_life; {life}")
    store = await open_tree_store(path)
    try:
        check_talk(seed, await live_talk(store, seed, Life(log), 1))
        assert await store.forks() == []
    finally:
        await store.aclose()


@pytest.mark.law("T20")
@pytest.mark.parametrize("seed", range(KILLED))
async def test_talks_whose_process_is_killed(tmp_path: Path, seed: int) -> None:
    await try_killed_talk(seed, tmp_path)


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(KILLED, PROOF_KILLED))
async def test_more_talks_whose_process_is_killed(tmp_path: Path, seed: int) -> None:
    await try_killed_talk(seed, tmp_path)


def test_the_talks_choose_and_send() -> None:
    made = [expect(seed) for seed in range(TALKS)]
    assert sum(len(each.chosen) for each in made) > TALKS
    assert sum(bool(each.sent) for each in made) > TALKS / 2
