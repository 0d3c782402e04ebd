"""Trees of sub-tasks over lives of the process that end in the middle: the tape is whole, and nothing is done twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.store import TapeStore
from tests.property.agent_trees import Life, Outcome, check, live, live_killed, open_tree_store

TREES, KILLED = 40, 2
PROOF_TREES, PROOF_KILLED = 1000, 60


async def undisturbed(seed: int, log: Path) -> tuple[Outcome, int]:
    """The tree in one life, and how often that wrote."""
    life = Life(log)
    outcome = await live(InMemoryStore(), seed, life, 0)
    return outcome, life.writes


async def try_tree(seed: int, folder: Path, store: TapeStore) -> None:
    """One tree with one death at a random write."""
    reference, writes = await undisturbed(seed, folder / f"{seed}.whole")
    assert reference.text == "result root"
    check(seed, reference, reference, 1)
    chance = random.Random(seed)
    log = folder / f"{seed}.log"
    first = Life(log, chance.randint(1, writes), is_after=chance.random() < 0.5)
    outcome = await live(store, seed, first, 0)
    if first.is_dead:
        outcome = await live(store, seed, Life(log), 1)
    if outcome.text:  # it died after the merge: the answer was on the tape, and there was nothing to take up
        check(seed, outcome, reference, 2)
    assert await store.forks() == []


@pytest.mark.sampled(2)
@pytest.mark.law("T13", "T14")
@pytest.mark.parametrize("part", range(4))
async def test_trees_with_a_death_at_any_write(tmp_path: Path, part: int) -> None:
    for seed in range(part, TREES, 4):
        await try_tree(seed, tmp_path, InMemoryStore())


@pytest.mark.proof
@pytest.mark.parametrize("part", range(10))
async def test_a_thousand_trees_with_a_death_at_any_write(tmp_path: Path, part: int) -> None:
    for seed in range(part, PROOF_TREES, 10):
        store = await open_tree_store(tmp_path / f"{seed}.db")
        try:
            await try_tree(seed, tmp_path, store)
        finally:
            await store.aclose()


async def try_killed_tree(seed: int, folder: Path) -> None:
    """One tree whose process is killed, and taken up by another one."""
    reference, writes = await undisturbed(seed, folder / f"{seed}.whole")
    chance = random.Random(seed)
    log, path = folder / f"{seed}.log", folder / f"{seed}.db"
    at, is_after = chance.randint(2, writes - 1), chance.random() < 0.5
    life = f"run_life({str(path)!r}, {str(log)!r}, {seed}, 0, {at}, {is_after})"
    await live_killed(f"from tests.property.agent_trees import run_life; {life}")
    store = await open_tree_store(path)
    try:
        outcome = await live(store, seed, Life(log), 1)
        if outcome.text:
            check(seed, outcome, reference, 2)
        assert await store.forks() == []
    finally:
        await store.aclose()


@pytest.mark.parametrize("seed", range(KILLED))
async def test_trees_whose_process_is_killed(tmp_path: Path, seed: int) -> None:
    await try_killed_tree(seed, tmp_path)


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(KILLED, PROOF_KILLED))
async def test_more_trees_whose_process_is_killed(tmp_path: Path, seed: int) -> None:
    await try_killed_tree(seed, tmp_path)
