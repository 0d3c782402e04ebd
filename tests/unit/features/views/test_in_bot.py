"""Views in a whole bot, as the daemon puts it together: after a start, for an agent, and of a chat that moved."""

from __future__ import annotations

from pathlib import Path

from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import ChatMigration
from tests.family import GROUP, MEMBER, OWNER, Family, family
from tests.turns import says

SOURCE, HOME = f"tg:{MEMBER}", f"tg:{GROUP}"


def noting() -> ScriptedModel:
    return ScriptedModel({"default": [says("Noted.")]})


async def add(bench: Family, line: str = "", source: str = SOURCE) -> None:
    """Grant the group what Ben says in his chat, and show it there."""
    await bench.say(f",grant {SOURCE} to {HOME}", OWNER, OWNER)
    (answer,) = await bench.say(f",view.add {source} {line}")
    assert "From the next step on" in answer


def shown(bench: Family) -> str:
    """Return the newest request, without the system prompt."""
    return str(bench.model.requests[-1].messages)


async def test_a_view_shows_after_a_start(tmp_path: Path) -> None:
    async with family(tmp_path, noting(), agents={}) as bench:
        await add(bench)
    async with family(tmp_path, noting(), agents={}) as bench:
        await bench.say("the train leaves at nine", MEMBER, MEMBER)
        await bench.say("when?")
        assert "the train leaves at nine" in shown(bench)


async def test_a_view_for_an_agent_shows_in_its_turns_alone(tmp_path: Path) -> None:
    async with family(tmp_path, noting()) as bench:
        await add(bench, "agent=rosi")
        await bench.say("the code is swordfish", MEMBER, MEMBER)
        found = []
        for line in ("Tom, the code?", "Rosi, the code?", "@bot the code?", "Rosi, again?"):
            await bench.say(line)
            found.append("swordfish" in shown(bench))
        assert found == [False, True, False, True]


async def test_a_chat_that_moved_is_viewed_by_its_new_id(tmp_path: Path) -> None:
    async with family(tmp_path, noting(), agents={}) as bench:
        await bench.say("the code is swordfish", MEMBER, MEMBER)
        moved = ChatMigration("tg", "mv", MEMBER, "55", "2026-11-21T20:21:00+00:00")
        await bench.daemon.bot.channel_runtimes["tg"].gate.receive(moved)
        await add(bench, source="tg:55")
        await bench.say("the code?")
        assert "swordfish" in shown(bench)
