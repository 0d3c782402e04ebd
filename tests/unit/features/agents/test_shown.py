"""People see who speaks, what each agent may and what it has used: in the chat, on the trace page, in spans and in sums."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bubbot.features.explain.sources import read_source
from bubbot.models.scripted import ScriptedModel
from bubbot.runtime.turns import TurnRecord
from bubbot.tape.entry import message
from bubbot.texts import Texts
from tests.e2e import bot, inside
from tests.family import AGENTS, GROUP, MEMBER, OWNER, Family, family
from tests.turns import says
from tests.unit.features.trace.test_pages import look, pages_of


def scripted(rules: Mapping[str, Sequence[Mapping[str, Any]]]) -> ScriptedModel:
    """Make a model that answers by words of the newest message."""
    return ScriptedModel({"rules": [{"when": when, "steps": list(steps)} for when, steps in rules.items()]})


def soup() -> ScriptedModel:
    """Make a model whose cook speaks of soup."""
    return scripted(
        {
            "dinner": [says("Soup.")],
            "sums": [says("Four.")],
            "say it": [says("@tom, is it so?")],
            "you, tom": [says("It is.")],
        }
    )


async def last_turn(bench: Family) -> TurnRecord:
    """Read back the newest turn of the group."""
    entries = await bench.entries()
    first = [place for place, each in enumerate(entries) if each.name == "turn/start"][-1]
    return TurnRecord.of(entries[first:])


class TestChat:
    async def test_why_names_the_agent(self, tmp_path: Path) -> None:
        async with family(tmp_path, soup()) as bench:
            await bench.say("Rosi, dinner?")
            (text,) = await bench.say(",why")
            assert "answered by the agent rosi" in text
            await bench.say("@bot sums?")
            (text,) = await bench.say(",why")
            assert "answered by" not in text

    async def test_search_and_read_name_the_agent(self, tmp_path: Path) -> None:
        async with family(tmp_path, soup()) as bench:
            await bench.say("Rosi, dinner?")
            (said,) = [each for each in await bench.entries() if each.payload.get("content") == "Soup."]
            assert "rosi (agent)" in (await bench.say(",search soup"))[-1]
            assert "rosi (agent)" in (await bench.say(f",read {said.id}"))[-1]

    async def test_what_an_explanation_rests_on_names_the_agent(self) -> None:
        said = message("assistant", "Soup.", origin="agent:rosi")
        assert read_source(said, {}, Texts())[0].lead == "the agent rosi wrote"
        assert read_source(message("assistant", "Soup."), {}, Texts())[0].lead == "the bot wrote"

    async def test_a_retry_is_answered_by_whom_the_message_asked(self, tmp_path: Path) -> None:
        async with family(tmp_path, soup()) as bench:
            await bench.say("Rosi, dinner?")
            await bench.say(",usage")
            assert await bench.say(",retry") == ["**Rosi:** Soup."]
            await bench.say("Rosi, say it")
            assert await bench.say(",retry") == ["**Tom:** It is."]

    async def test_the_budget_of_an_agent_is_its_own(self, tmp_path: Path) -> None:
        agents = {**AGENTS, "rosi": {**AGENTS["rosi"], "tokens_day": 0}}
        async with family(tmp_path, soup(), agents=agents) as bench:
            (text,) = await bench.say("Rosi, dinner?")
            assert "The budget of the agent rosi for today is used up" in text
            assert await bench.say("Tom, sums?") == ["**Tom:** Four."]


class TestShell:
    def test_agents_are_listed_with_what_each_used(self, tmp_path: Path) -> None:
        tables = "[model]\nname = 'scripted'\n[agents.rosi]\ntitle = 'Rosi'\nchats = ['telegram:-1']\n[agents.tom]\n"
        (tmp_path / "config.toml").write_text(tables)
        assert bot.run(tmp_path, "chat", lines="@tom hello\n").stdout == b"**tom:** You said: @tom hello\n"
        listed = json.loads(inside.run(tmp_path, "agent", "list", "--json").stdout)["agents"]
        assert [each["name"] for each in listed] == ["bot", "rosi", "tom"]
        assert [each["tokens"] is not None for each in listed] == [False, False, True]
        here = json.loads(inside.run(tmp_path, "agent", "list", "default", "--json").stdout)["agents"]
        assert [(each["name"], each["lives_here"], each["answers_here"]) for each in here] == [
            ("bot", True, True),
            ("tom", True, False),
        ]
        shown = inside.run(tmp_path, "tape", "show", "default").stdout.decode()
        assert "message assistant agent:tom: You said: @tom hello" in shown


class TestSums:
    async def test_usage_has_a_table_by_agent(self, tmp_path: Path) -> None:
        async with family(tmp_path, soup()) as bench:
            await bench.say("Rosi, dinner?")
            await bench.say("@bot sums?")
            (text,) = await bench.say(",usage", OWNER, OWNER)
            assert "By agent:" in text
            assert "rosi" in text.partition("By agent:")[2].splitlines()[1]

    async def test_agents_are_listed_with_what_they_used_here(self, tmp_path: Path) -> None:
        agents = {**AGENTS, "tom": {**AGENTS["tom"], "tools": ["tape.*"], "memory": "none"}}
        async with family(tmp_path, soup(), agents=agents) as bench:
            await bench.say("Rosi, dinner?", OWNER, OWNER)
            (text,) = await bench.say(",agents", MEMBER)
            _, bot, rosi, tom = text.splitlines()
            assert (bot, rosi) == ("- @bot: bubbot; answers here if nobody is called", "- @rosi: Rosi; cooking")
            assert tom.startswith("- @tom: Tom; homework; tools: tape.*;")
            assert tom.endswith("; memory: none")
            (text,) = await bench.say(",agents", OWNER, OWNER)
            assert "@rosi: Rosi; cooking; tokens this month: " in text


class TestTrace:
    async def test_the_page_names_the_agent_of_a_turn(self, tmp_path: Path) -> None:
        async with family(tmp_path, soup()) as bench:
            await bench.say("Rosi, say it")
            tape, pages = bench.daemon.bot.tape(f"tg:{GROUP}").name, pages_of(bench.daemon.bot.store)
            listed = await look(pages, f"/session/{tape}/turns")
            assert "agent:<bdi>rosi</bdi>" in listed
            assert "agent:<bdi>tom</bdi>" in listed
            assert "asked by an agent" in listed
            turn = await last_turn(bench)
            assert turn.agent == "tom"
            assert "<dt>Agent</dt><dd><bdi>tom</bdi></dd>" in await look(
                pages, f"/session/{tape}/turn/{turn.entries[0].id}"
            )
