"""What each strategy would send: numbers of the chat's real window, without a model and without a fact."""

from __future__ import annotations

from typing import Any

import pytest

from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.command import Caller
from bubbot.errors import EntryNotFound
from bubbot.features.strategies.compare import StrategyComparer
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.model import ModelPrice, ModelTraits
from bubbot.runtime.compose import estimate_fixed_tokens
from bubbot.runtime.context.strategy import ContextInput, ContextStrategy, ModelContext
from bubbot.runtime.context.tokens import estimate_tokens
from bubbot.shell_command import CommandContext
from bubbot.stores.inmemory import InMemoryStore
from bubbot.texts import Texts
from bubbot.texts.catalogue import list_languages
from tests.doubles import SteppingClock
from tests.turns import Bench, running

COMPARER = StrategyComparer(OWN_STRATEGIES, lambda name: ModelPrice(2.0, 8.0) if name == "scripted" else None)


async def compared(bench: Bench, comparer: StrategyComparer = COMPARER) -> dict[str, Any]:
    return {item.selector: item for item in (await comparer.compare(bench.tape())).strategies}


async def test_a_window_that_fits_is_the_same_for_all_and_is_what_the_next_request_has(
    memory_store: InMemoryStore,
) -> None:
    async with running(memory_store, ScriptedModel(traits=ModelTraits(context_tokens=8_000))) as bench:
        for number in range(3):
            await bench.say(f"hello {number}")
        before, asked = await bench.tape().head(), len(bench.requests)
        rows = await compared(bench)
        assert (await bench.tape().head(), len(bench.requests)) == (before, asked)
        assert rows["window"].tokens == rows["compact"].tokens
        assert (rows["window"].shown, rows["window"].left_out, rows["window"].is_cut) == (7, 0, False)
        assert rows["window"].cost == pytest.approx(rows["window"].tokens * 2e-6)
        await bench.say("and now?")
        request = bench.requests[-1]
        fixed = estimate_fixed_tokens(request.system, request.tools)
        real = fixed + sum(estimate_tokens(text.decode()) + 4 for text in request.texts)
        assert abs(real - rows["window"].tokens) < 40


async def test_a_long_window_is_shorter_with_some_and_each_is_told_apart(memory_store: InMemoryStore) -> None:
    async with running(memory_store, ScriptedModel(traits=ModelTraits(context_tokens=8_000))) as bench:
        for number in range(120):
            await bench.say(f"{number}: {'many words ' * 8}")
        rows = await compared(bench)
        window, compact = rows["window"], rows["compact"]
        assert compact.tokens < 6_000 < window.tokens
        assert compact.left_out > 0
        assert compact.shown + compact.left_out == window.shown
        assert rows["from:session/start"].shown == window.shown - 1


async def test_a_strategy_that_fails_is_named_and_the_others_are_compared(memory_store: InMemoryStore) -> None:
    def broken(source: ContextInput) -> ModelContext:
        raise ValueError("no idea")

    comparer = StrategyComparer(
        OWN_STRATEGIES.extend(["own"], lambda name: ContextStrategy(name, broken)), lambda _: None
    )
    async with running(memory_store, ScriptedModel()) as bench:
        await bench.say("hello")
        rows = await compared(bench, comparer)
        assert rows["own"].problem == "ValueError: no idea"
        assert rows["window"].tokens > 0
        assert rows["window"].cost is None


async def test_a_chat_without_a_request_has_none_to_compare(memory_store: InMemoryStore) -> None:
    async with running(memory_store, ScriptedModel()) as bench:
        await bench.say(",help")
        with pytest.raises(EntryNotFound, match="say something first"):
            await COMPARER.compare(bench.tape())


@pytest.mark.parametrize("language", list_languages("bubbot.texts"))
async def test_the_table_fits_a_terminal(memory_store: InMemoryStore, language: str) -> None:
    async with running(memory_store, ScriptedModel()) as bench:
        await bench.say("hello")
        context = CommandContext(
            memory_store, "", SteppingClock(), bench.new_id, texts=Texts(language), terminal_width=80
        )
        text = (await COMPARER.compare(bench.tape())).describe(Caller.of_shell(context))
    rows = [line for line in text.splitlines() if line.startswith(("window", "compact", "from:session/start"))]
    assert len(rows) == 3
    assert all(len(row) <= 70 and len(row.split()) == 6 for row in rows)
