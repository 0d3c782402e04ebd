"""Bars of spending in a terminal: as wide as it is, as long as their amounts, and free of what a terminal obeys."""

from __future__ import annotations

import pytest
from wcwidth import wcswidth

from bubbot.features.usage.reporter import UsageReporter
from bubbot.ports.usage import BudgetSubject
from bubbot.shell_command import CommandContext
from bubbot.stores.inmemory import InMemoryStore
from bubbot.texts import Texts
from tests.budgets import opened, plan, spend
from tests.callers import run_shell
from tests.doubles import CountingIds, SteppingClock


async def bars(store: InMemoryStore, width: int, *chats: tuple[str, int], language: str = "en") -> list[str]:
    """The bars of chats with these tokens, at a dollar each, in a terminal of this width."""
    clock = SteppingClock()
    budget = await opened(store, plan(), clock=clock)
    for chat, tokens in chats:
        await spend(budget, tokens, 0, BudgetSubject(chat, "test:1", turn="t"))
    context = CommandContext(
        store,
        "",
        clock,
        CountingIds(),
        settings=lambda tape, now, zone, _session: UsageReporter(tape, now, zone),
        terminal_width=width,
        texts=Texts(language),
    )
    summary, *lines = (await run_shell("usage", context, by="chat")).text.splitlines()
    assert "USD" in summary
    return lines


async def test_a_bar_is_as_long_as_its_amount(memory_store: InMemoryStore) -> None:
    head, first, second, third = await bars(memory_store, 80, ("test:a", 80), ("test:b", 40), ("test:c", 20))
    assert head == "By chat:"
    assert first.split()[0] == "test:a"
    assert first.endswith(" 80.00 USD 1 call")
    full, half, quarter = (line.count("█") for line in (first, second, third))
    assert full > 30
    assert abs(full - 2 * half) <= 1
    assert abs(full - 4 * quarter) <= 3


@pytest.mark.parametrize("width", [30, 80, 500])
async def test_no_line_is_wider_than_the_terminal(memory_store: InMemoryStore, width: int) -> None:
    lines = await bars(memory_store, width, ("test:" + "家庭" * 30, 80), ("test:b", 1), language="zh")
    assert lines[0] == "按聊天："
    assert max(map(wcswidth, lines)) <= min(width, 100)
    assert "…" in lines[1]
    assert lines[1].endswith("80.00 USD 调用 1 次")


async def test_a_name_moves_no_cursor(memory_store: InMemoryStore) -> None:
    text = "\n".join(await bars(memory_store, 100, ("test:\x1b[2J\u202e[bold]", 5)))
    assert r"test:\x1b[2J\u202e" in text
    assert "[bold]" in text
    assert "\x1b" not in text
