"""What ends a chain of agents: a stop, another conversation, a deletion, an agent that is gone; and who is called how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from bubbot.features.agents.directory import MAX_NAMES_READ
from bubbot.features.agents.settings import AgentsSettings
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Quote, Sender
from bubbot.runtime.queue import QueuePolicy
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.query import TapeQuery
from tests.gateways import deletion_of
from tests.turns import HOME, Bench, Options, asked, calls, running, says
from tests.unit.runtime.test_session import Floor

FAMILY = {"rosi": {"title": "Rosi"}, "tom": {"title": "Tom"}}
SCRIPT = {
    "rules": [
        {"when": "asks you, rosi", "steps": [calls("stand_here"), says("Rosi stood.")]},
        {"when": "asks you, tom", "steps": [says("Tom was asked.")]},
        {"when": "both", "steps": [says("@rosi and @tom?")]},
        {"when": "stand", "steps": [calls("stand_here"), says("Stood.")]},
    ],
    "default": [says("You said: {text}")],
}
GONE = "tom is not an agent here any more: nobody answers in its place."
NOT_ASKED = "Not asked: tom. The agents have used up what may follow a message of a person."


@pytest.fixture
def floor() -> Floor:
    return Floor()


def settings(agents: Mapping[str, Any] = FAMILY) -> AgentsSettings:
    return AgentsSettings.model_validate(dict(agents))


async def outcomes(bench: Bench) -> list[str]:
    """How everything that was accepted ended, in order."""
    entries = (await bench.store.fetch([TapeQuery(bench.inbox.name)]))[0]
    return [entry.data["outcome"] for entry in entries if entry.name == "inbox/done"]


async def begin(bench: Bench, floor: Floor, *messages: str) -> None:
    """Say things, each a message with its own words as its id, and wait in the turn of the last one.

    People come first: what agents ask each other in the turns before waits behind it.
    """
    for text in ("@bot stand", *messages):
        assert await bench.gate.ask(bench.inbound(text, message=text)) is not None
        if text == "@bot stand":
            await floor.wait_for(1)
    floor.let_go(1)
    await floor.wait_for(1)


class TestWhatEndsAChain:
    async def test_a_stop_ends_the_turn_and_what_waits(self, memory_store: InMemoryStore, floor: Floor) -> None:
        async with running(memory_store, ScriptedModel(SCRIPT), Options([floor.tool()], agents=settings())) as bench:
            await begin(bench, floor, "@bot both")
            assert bench.app.stop(HOME)
            await bench.quiet()
            assert bench.channel.texts == ["Stood.", "@rosi and @tom?", "Stopped."]
            assert (await bench.find_open_work()).inbounds == ()
            assert await outcomes(bench) == ["answered", "answered", "stopped", "withdrawn"]

    @pytest.mark.parametrize("command", [",new", ",reset erase", ",reset archive", ",topic Cake"])
    async def test_another_conversation_ends_what_waits(
        self, memory_store: InMemoryStore, floor: Floor, command: str
    ) -> None:
        async with running(memory_store, ScriptedModel(SCRIPT), Options([floor.tool()], agents=settings())) as bench:
            await begin(bench, floor, "@bot both", "please stand")
            assert await bench.gate.ask(bench.inbound(command)) is not None
            floor.let_go(1)
            await bench.quiet()
            assert not any("asked" in text or "stood" in text for text in bench.channel.texts)
            assert (await bench.find_open_work()).inbounds == ()

    @pytest.mark.parametrize("command", [",help", ",tape.info"])
    async def test_other_commands_do_not(self, memory_store: InMemoryStore, floor: Floor, command: str) -> None:
        async with running(memory_store, ScriptedModel(SCRIPT), Options([floor.tool()], agents=settings())) as bench:
            await begin(bench, floor, "@bot both", "please stand")
            assert await bench.gate.ask(bench.inbound(command)) is not None
            floor.let_go(2)
            await bench.quiet()
            assert bench.channel.texts[-2:] == ["**Rosi:** Rosi stood.", "**Tom:** Tom was asked."]

    async def test_a_deletion_ends_the_chain_of_its_message_alone(
        self, memory_store: InMemoryStore, floor: Floor
    ) -> None:
        async with running(memory_store, ScriptedModel(SCRIPT), Options([floor.tool()], agents=settings())) as bench:
            await begin(bench, floor, "Rosi and Tom, hello", "Rosi and Tom, bye", "please stand")
            await bench.gate.receive(deletion_of("Rosi and Tom, hello"))
            floor.let_go(1)
            await bench.quiet()
            assert bench.channel.texts.count("**Tom:** Tom was asked.") == 1
            assert (await outcomes(bench)).count("withdrawn") == 1

    async def test_an_agent_that_is_gone_is_named(self, memory_store: InMemoryStore, floor: Floor) -> None:
        options = Options([floor.tool()], agents=settings())
        async with running(memory_store, ScriptedModel(SCRIPT), options) as bench:
            await begin(bench, floor, "@bot both")
        alone = Options([floor.tool()], agents=settings({"rosi": FAMILY["rosi"]}))
        async with running(memory_store, ScriptedModel(SCRIPT), alone, life="second") as bench:
            floor.let_go(1)
            await bench.resume()
            await bench.quiet()
            assert bench.channel.texts == ["**Rosi:** Rosi stood.", GONE]
            assert (await bench.find_open_work()).inbounds == ()

    async def test_one_that_is_gone_and_may_not_be_asked_any_more_is_named(
        self, memory_store: InMemoryStore, floor: Floor
    ) -> None:
        async with running(memory_store, ScriptedModel(SCRIPT), Options([floor.tool()], agents=settings())) as bench:
            await begin(bench, floor, "please stand")
            assert await bench.gate.ask(bench.inbound("Rosi and Tom, hello")) is not None
        alone = Options([floor.tool()], agents=settings({"rosi": FAMILY["rosi"], "max_turns": 0}))
        async with running(memory_store, ScriptedModel(SCRIPT), alone, life="second") as bench:
            floor.let_go(1)
            await bench.resume()
            await bench.quiet()
            assert bench.channel.texts[-1] == f"{NOT_ASKED}\n\n**Rosi:** You said: Rosi and Tom, hello"


async def test_people_are_heard_while_agents_talk_where_messages_during_a_turn_are_dropped(
    memory_store: InMemoryStore, floor: Floor
) -> None:
    options = Options([floor.tool()], agents=settings(), waiting=QueuePolicy(busy="drop"))
    async with running(memory_store, ScriptedModel(SCRIPT), options) as bench:
        await bench.gate.receive(bench.inbound("@bot both"))
        await floor.wait_for(1)  # Rosi answers the bot
        await bench.gate.receive(bench.inbound("Tom, hi"))
        floor.let_go(1)
        await bench.quiet()
        rosi, person, tom = bench.channel.texts[1:]
    assert rosi == "**Rosi:** Rosi stood."
    assert person == "**Tom:** You said: Tom, hi"
    assert tom == "**Tom:** Tom was asked."


class TestQuotes:
    async def test_who_reads_a_quote_is_told_who_wrote_the_message(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel(SCRIPT), Options(agents=settings())) as bench:
            await bench.gate.ask(bench.inbound("Rosi, hello"))
            await bench.quiet()
            quote = Quote("p1", Sender("9", "bubbot"), "Rosi: You said: Rosi, hello", own=True)
            await bench.gate.ask(bench.inbound("what is that?", quote=quote))
            await bench.gate.ask(bench.inbound("@tom is that so?", quote=quote))
            await bench.quiet()
            assert [text.partition(" ")[0] for text in bench.channel.texts] == ["**Rosi:**", "**Rosi:**", "**Tom:**"]
            assert "[in reply to rosi (agent): " in asked(bench.requests[-1])[-1][1]


class TestNames:
    @pytest.mark.parametrize(
        ("title", "text"),
        [
            ("روزي", "\u200fروزي، ما العشاء؟"),
            ("小厨", "小厨，今晚吃什么？"),
            ("Ρόζη", "ρόζη: τι θα φάμε;"),
            ("Роза", "Роза, что на ужин?"),
            ("शेफ", "शेफ। खाना?"),
            ("ＲＯＳＩ", "rosi, hello"),
        ],
    )
    async def test_names_of_other_scripts_call(self, memory_store: InMemoryStore, title: str, text: str) -> None:
        options = Options(agents=settings({"cook": {"title": title}}))
        async with running(memory_store, ScriptedModel(SCRIPT), options) as bench:
            assert bench.app.deps.agents.address(bench.inbound(text)).agents == ("cook",)
            assert bench.app.deps.agents.address(bench.inbound(f"say {text}")).agents == ()

    async def test_the_name_of_the_bot_calls_the_bot(self, memory_store: InMemoryStore) -> None:
        options = Options(agents=settings({"rosi": {"title": "bubbot"}}))
        async with running(memory_store, ScriptedModel(SCRIPT), options) as bench:
            assert bench.app.deps.agents.address(bench.inbound("bubbot, hi")).agents == ("",)

    @pytest.mark.parametrize("text", [",tom\nis it so?", ",tom\t is it so?", ", tom is it so?", ",TOM\u00a0is it so?"])
    async def test_a_command_calls_with_any_space(self, memory_store: InMemoryStore, text: str) -> None:
        async with running(memory_store, ScriptedModel(SCRIPT), Options(agents=settings())) as bench:
            addressed = bench.app.deps.agents.address(bench.inbound(text))
            assert (addressed.text, addressed.agents) == ("@tom is it so?", ("tom",))

    async def test_no_message_is_a_long_list_of_names(self, memory_store: InMemoryStore) -> None:
        many = settings({f"a{number}": {} for number in range(2 * MAX_NAMES_READ)})
        async with running(memory_store, ScriptedModel(SCRIPT), Options(agents=many)) as bench:
            addressed = bench.app.deps.agents.address(bench.inbound(", ".join(many.named)))
            assert addressed.agents == tuple(many.named)[:MAX_NAMES_READ]

    async def test_a_form_of_a_platform_asks_in_its_words(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel(SCRIPT), Options(agents=settings())) as bench:
            addressed = bench.app.deps.agents.address(bench.inbound(',tom text="is ""four"" even?"'))
            assert (addressed.text, addressed.agents) == ('@tom is "four" even?', ("tom",))
