"""The command over a long tape: it reads a part at a time, and says how far it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bubbot.features.learn.commands import LearnOptions
from bubbot.features.learn.settings import LearnSettings
from bubbot.ports.judgements import Label
from bubbot.ports.people import Account, Purpose
from bubbot.runtime.context.strategy import KERNEL_STRATEGIES
from bubbot.runtime.rerun import PAGE_ENTRIES
from bubbot.shell_command import CommandContext
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import TapeEntry, event, message
from bubbot.tape.events import TURN_END, TURN_START
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService, session_tape
from tests.callers import refused, run_shell
from tests.doubles import START

TURNS = PAGE_ENTRIES + 1


class Nobody:
    """People who allow nothing."""

    async def has_consented(self, _account: Account, _purpose: Purpose) -> bool:
        """See `AsksConsent`."""
        return False


async def read_no_labels(_tape: str) -> tuple[Label, ...]:
    return ()


async def test_a_long_tape_is_read_in_parts_and_turns_that_are_left_out_are_progress(
    memory_store: InMemoryStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    tape = TapeService(memory_store, session_tape("home", "tg:1"), now=lambda: START, new_id=str, session="tg:1")
    await tape.ensure_bootstrap_anchor()
    for number in range(TURNS):
        turn = f"turn{number}"
        await tape.append(
            [
                event(TURN_START, {"attempt": 1, "session": "tg:1", "inbounds": []}, turn=turn),
                message("user", "Hello", turn=turn, sender={"id": "1"}),
                event(TURN_END, {"status": "answered"}, turn=turn),
            ]
        )
    sizes, seen, fetch = list[int](), list[tuple[int, int]](), InMemoryStore.fetch

    async def count(self: InMemoryStore, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        found = await fetch(self, queries)
        sizes.extend(map(len, found))
        return found

    monkeypatch.setattr(InMemoryStore, "fetch", count)
    options = LearnOptions(LearnSettings(), KERNEL_STRATEGIES, lambda _: Nobody(), lambda _: read_no_labels)
    context = CommandContext(
        memory_store, "home", lambda: START, str, options, on_progress=lambda *done: seen.append(done)
    )
    with refused("consent: 501"):
        await run_shell("export", context, "openai-chat", "tg:1", str(tmp_path / "out"))
    assert max(sizes) == PAGE_ENTRIES
    assert seen[-1] == (3 * TURNS - 1, 3 * TURNS + 1)
