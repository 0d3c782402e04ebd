"""`,strategy`: which context strategy a chat uses is a fact of its tape."""

from __future__ import annotations

import pytest

from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Role
from bubbot.ports.model import ModelTraits
from bubbot.runtime.compose import ContextPolicy
from bubbot.runtime.context.strategy import ContextStrategy
from bubbot.stores.inmemory import InMemoryStore
from bubbot.texts import Texts
from tests.turns import Bench, Options, asked, running


async def selectors(bench: Bench) -> list[str]:
    return [step["view"]["selector"] for step in await bench.events("loop.step")]


async def test_a_chat_chooses_its_own_and_goes_back(memory_store: InMemoryStore) -> None:
    async with running(memory_store, ScriptedModel(traits=ModelTraits(context_tokens=8_000))) as bench:
        await bench.say("one")
        assert (await bench.say(",strategy messages")).text.startswith(
            "From the next message on, this chat uses messages"
        )
        await bench.say("two")
        await bench.say("elsewhere", chat="away")
        assert asked(bench.requests[1])[0] == ("user", "[2026-11-21 20:21] one")
        assert (await bench.say(",strategy")).text.startswith(
            "This chat has chosen its own context strategy: messages."
        )
        assert "configured context strategy: auto" in (await bench.say(",strategy default")).text
        await bench.say("three")
        assert await selectors(bench) == ["compact", "messages", "compact"]
        assert [step["view"]["selector"] for step in await bench.events("loop.step", "test:away")] == ["compact"]


async def test_the_choice_survives_a_restart_and_ends_with_a_reset(memory_store: InMemoryStore) -> None:
    model = ScriptedModel()
    async with running(memory_store, model) as bench:
        await bench.say(",strategy messages")
    async with running(memory_store, model, life="second") as bench:
        await bench.say("hello")
        assert await selectors(bench) == ["messages"]
        await bench.say(",reset erase")
        assert "This chat uses the configured" in (await bench.say(",strategy")).text


async def test_the_list_has_every_strategy_with_a_line_in_both_languages(memory_store: InMemoryStore) -> None:
    async with running(memory_store, ScriptedModel()) as bench:
        lines = (await bench.say(",strategy")).text.splitlines()
        assert "- window: all since the window opened" in lines
        assert len(lines) == len(OWN_STRATEGIES.own) + 2
    async with running(memory_store, ScriptedModel(), Options(texts=Texts("zh")), life="second") as bench:
        assert "- window: 窗口打开以来的全部内容" in (await bench.say(",strategy")).text


@pytest.mark.parametrize("name", ["windw", "from", "from:phase/none", "from:<anchor>", "x" * 150])
async def test_what_cannot_be_used_is_refused_and_nothing_is_written(memory_store: InMemoryStore, name: str) -> None:
    async with running(memory_store, ScriptedModel()) as bench:
        result = await bench.say(f",strategy {name}")
        assert "There are: auto, window, messages, full, from:<anchor>, compact" in result.text
        assert await bench.events("context/strategy") == []
        assert (await bench.say("hello")).status == "answered"


async def test_a_part_of_the_tape_that_exists_can_be_chosen(memory_store: InMemoryStore) -> None:
    async with running(memory_store, ScriptedModel()) as bench:
        await bench.say("one")
        await bench.say(",handoff phase/two")
        await bench.say(",strategy from:phase/two")
        await bench.say("two")
        assert [content for _, content in asked(bench.requests[-1])] == ["[2026-11-21 20:21] two"]


async def test_one_that_is_not_installed_any_more_is_said_and_the_configured_one_is_used(
    memory_store: InMemoryStore,
) -> None:
    window = OWN_STRATEGIES.find("window")
    more = OWN_STRATEGIES.extend(["own"], lambda name: ContextStrategy(name, window.fold))
    options = Options(compose=ContextPolicy(strategies=more))
    async with running(memory_store, ScriptedModel(), options) as bench:
        await bench.say(",strategy own")
        await bench.say("one")
    async with running(memory_store, ScriptedModel(), life="second") as bench:
        assert (await bench.say("two")).status == "answered"
        assert await selectors(bench) == ["own", "window"]
        assert (
            "own, which is not installed any more; it uses the configured context strategy: auto."
            in (await bench.say(",strategy")).text
        )


@pytest.mark.parametrize(("role", "direct", "may"), [
    (Role.MEMBER, True, True), (Role.MEMBER, False, False), (Role.ADMIN, False, True), (Role.OWNER, False, True),
])  # fmt: skip
async def test_in_groups_admins_choose(memory_store: InMemoryStore, role: Role, direct: bool, may: bool) -> None:
    async with running(memory_store, ScriptedModel(), Options(role=role)) as bench:
        result = await bench.say(",strategy messages", direct=direct)
        assert ("in groups only admins choose" in result.text) != may
        assert len(await bench.events("context/strategy")) == may
        assert "This chat" in (await bench.say(",strategy", direct=direct)).text
