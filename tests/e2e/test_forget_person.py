"""A person is forgotten: no byte of theirs is left in any file of the home, nor in a backup made afterwards."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bubbot.app.tapes import open_tapes
from bubbot.home import Home
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import TapeQuery
from bubbot.texts import Texts
from tests.e2e.bot import run
from tests.e2e.daemon import WAIT, running, started
from tests.e2e.forgotten_person import Story, begin, canary
from tests.e2e.test_telegram import said, texts
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server

SAY = Texts().say
LONG_WAIT = 120.0
"""Seconds for a start on a machine that has other things to do."""
pytestmark = pytest.mark.law("T17")


def sums(usage: str) -> dict[str, Any]:
    """What `bubbot usage --json` adds up, without the entries behind it."""
    shown = json.loads(usage)
    total = {key: value for key, value in shown["total"].items() if key not in ("reservations", "shards")}
    return {**total, "answers": shown["answers"]}


async def entries_of(home: Path, session: str) -> list[TapeEntry]:
    """The entries of the tapes of a session."""
    done = await asyncio.to_thread(run, home, "tape", "list", "--json")
    names = [tape["name"] for tape in json.loads(done.stdout)["tapes"] if tape["session"] == session]
    async with open_tapes(Home(home)) as (store, _):
        return [entry for name in names for entry in (await store.fetch([TapeQuery(name)]))[0]]


async def grant(story: Story) -> None:
    """Let the person in."""
    await story.command("access", "grant", "telegram", str(story.ann.id), "member")


async def test_a_person_who_asks_is_forgotten_with_every_canary_and_the_rest_stays(tmp_path: Path) -> None:
    async with Server(limits=None, conflict_pause=0.1) as server:
        story = begin(tmp_path / "home", server)
        await grant(story)
        async with running(story.home) as daemon:
            await story.tell()
            lacking = {word.decode() for word in story.canaries} - story.traces().keys()
            assert lacking == {canary("pending"), story.ann.username}, "planted nowhere"
            spent = sums(await story.command("usage", "--json"))
            story.hers.say(",forget.me")
            await server.until(lambda: "confirm=true" in texts(story.hers)[-1], WAIT)
            assert story.traces()[canary("direct")], "it only asks"
            story.hers.say(",forget.me confirm=true")
            await server.until(lambda: "action=run.again" in daemon.errors, WAIT)
            assert texts(story.hers)[-1].startswith("You are forgotten within some minutes")
            assert "these decide: Ben." in texts(story.hers)[-1], "she knows the owner from the group"
            story.his.say("are you there?")
            await server.until(lambda: "You said: are you there?" in texts(story.his), WAIT)
            await server.until(lambda: any("/access_forgotten" in text for text in texts(story.his)), WAIT)
            (told,) = [text for text in texts(story.his) if "asked to be forgotten" in text]
            assert "you decide" not in told, "nobody spoke of her"
            assert story.traces() == {}, "while the bot runs"
            await story.command("backup", str(tmp_path / "backup"))
        assert (story.traces(), story.traces(tmp_path / "backup")) == ({}, {})
        assert [path.name for path in (story.home / "exports").iterdir()] == ["other.md"]
        await story.command("tape", "verify")
        after = sums(await story.command("usage", "--json"))
        assert after["calls"] == spent["calls"] + 1
        assert after["answers"] == spent["answers"] + 1
        assert after["input_tokens"] > spent["input_tokens"]
        family = [
            entry for entry in await entries_of(story.home, f"telegram:{story.family.chat.id}") if not entry.erased
        ]
        shown = json.dumps([dict(entry.payload) for entry in family], default=dict)
        assert "so be it then" in shown, "what others said stays, without the quote"
        assert "Ben brings the bread" in shown, "what others let the bot remember stays"
        assert not [entry for entry in family if "quote" in entry.meta]


async def test_what_was_open_is_forgotten_by_an_owner_in_a_shell_with_the_older_backups_named(tmp_path: Path) -> None:
    async with Server(limits=None, conflict_pause=0.1) as server:
        story = begin(tmp_path / "home", server)
        await grant(story)
        await story.command("backup")
        async with running(story.home) as daemon:
            await story.say_hello()
            await story.be_named()
            await story.leave_open(daemon)
        assert story.files_with(canary("pending").encode())
        person = f"telegram:{story.ann.id}"
        told = await story.command("access", "forget", person, "--yes")
        assert "The person is forgotten" in told
        left = {word: [one for one in files if "backups/" not in one] for word, files in story.traces().items()}
        assert {word: files for word, files in left.items() if files} == {story.ann.first_name: ["bubbot.db"]}
        (row,) = json.loads(await story.command("access", "forgotten", "--json"))["forgotten"]
        assert len(row["backups"]) == 1
        (said,) = row["mentions"]
        his = {entry.id: entry for entry in await entries_of(story.home, f"telegram:{story.ben.id}")}
        assert [his[each].payload["content"] for each in (said["first"], said["last"])] == [
            "Zqannzq is away today", "You said: Zqannzq is away today",
        ]  # fmt: skip
        await story.command("tape", "verify")
        done = await asyncio.to_thread(run, story.home, "access", "forget", person, "--yes")
        assert (done.returncode, b"Nothing here names" in done.stderr) == (2, True)


async def test_a_shell_beside_the_running_bot_has_the_person_forgotten_at_once(tmp_path: Path) -> None:
    async with Server(limits=None, conflict_pause=0.1) as server:
        story = begin(tmp_path / "home", server)
        await grant(story)
        async with running(story.home) as daemon:
            await story.say_hello()
            told = await story.command("access", "forget", f"telegram:{story.ann.id}", "--yes")
            assert "within some minutes" in told
            await server.until(lambda: "action=run.again" in daemon.errors, WAIT)
            await server.until(lambda: "as an owner asked" in texts(story.his)[-1], WAIT)
            assert story.traces() == {}


def keys(message: Mapping[str, Any]) -> dict[str, str]:
    """The data of the buttons below a message, by label."""
    rows = message.get("reply_markup", {}).get("inline_keyboard", [])
    return {key["text"]: key["callback_data"] for row in rows for key in row}


async def with_button(story: Story, room: Gathering, label: str) -> dict[str, Any]:
    """The newest message of the bot with a button of this label, once it is there."""

    def found() -> list[dict[str, Any]]:
        return [message for message in said(room) if label in keys(message)]

    await story.server.until(lambda: bool(found()), WAIT)
    return found()[-1]


async def test_only_the_person_presses_the_yes_and_no_button_of_theirs_works_afterwards(tmp_path: Path) -> None:
    async with Server(limits=None, conflict_pause=0.1) as server:
        story = begin(tmp_path / "home", server)
        await grant(story)
        async with running(story.home) as daemon:
            await story.say_hello()
            story.family.say(f"/remind@bubbot_bot in 3 hours call {canary('groupreminder')}", story.ann)
            job = await with_button(story, story.family, "Remove")
            story.family.say("/forget_me@bubbot_bot", story.ann)
            asked = await with_button(story, story.family, "Yes, forget me")
            story.family.press(asked["message_id"], keys(asked)["Yes, forget me"], story.ben)
            await server.until(lambda: len(server.calls("answerCallbackQuery")) == 1, WAIT)
            assert server.calls("answerCallbackQuery")[0].params.get("text") == SAY("press_foreign")
            assert json.loads(await story.command("access", "forgotten", "--json"))["forgotten"] == []
            story.family.press(asked["message_id"], keys(asked)["Yes, forget me"], story.ann)
            await server.until(lambda: "action=run.again" in daemon.errors, WAIT)
            await server.until(lambda: "asked to be forgotten" in texts(story.his)[-1], WAIT)
            assert story.traces() == {}
            answers = len(server.calls("answerCallbackQuery"))
            for who in (story.ann, story.ben):
                story.family.press(job["message_id"], keys(job)["Remove"], who)
            await server.until(lambda: len(server.calls("answerCallbackQuery")) == answers + 2, WAIT)
            told = [call.params.get("text") for call in server.calls("answerCallbackQuery")[answers:]]
            assert told == [SAY("press_foreign"), SAY("press_expired")], "she is a stranger, and its message is gone"
        assert json.loads(await story.command("schedule", "list", "--json"))["jobs"] == []
        await story.command("tape", "verify")


async def test_cards_of_the_person_go_pressed_or_not_and_an_open_one_does_nothing_afterwards(tmp_path: Path) -> None:
    async with Server(limits=None, conflict_pause=0.1) as server:
        story, eve = begin(tmp_path / "home", server), server.user("Eve")
        story.family.join(eve)
        await grant(story)

        def answers() -> list[Any]:
            return [call.params.get("text") for call in server.calls("answerCallbackQuery")]

        async with running(story.home) as daemon:
            await story.say_hello()
            story.hers.say("keep this for me")
            pressed = await with_button(story, story.hers, "Once")
            await server.until(lambda: texts(story.hers)[-1] == "kept, keep this for me", WAIT)
            story.hers.press(pressed["message_id"], keys(pressed)["Once"], story.ann)
            await server.until(lambda: len(texts(story.hers)) == 5, WAIT)
            assert canary("toolmemory") in await story.command("memory", "show", f"telegram:{story.ann.id}")
            story.family.say(f"/remember@bubbot_bot we bake {canary('groupmemory')}", story.ann)
            await server.until(lambda: texts(story.family)[-1].startswith("Saved"), WAIT)
            story.family.say("@bubbot_bot keep this", story.ann)
            still_open = await with_button(story, story.family, "Once")
            story.family.press(still_open["message_id"], keys(still_open)["Once"], eve)
            await server.until(lambda: len(answers()) == 2, WAIT)
            assert answers()[-1] == SAY("press_foreign")
            story.hers.say(",forget.me confirm=true")
            await server.until(lambda: "action=run.again" in daemon.errors, WAIT)
            await server.until(lambda: "asked to be forgotten" in texts(story.his)[-1], WAIT)
            assert story.traces() == {}
            story.family.press(still_open["message_id"], keys(still_open)["Once"], story.ben)
            await server.until(lambda: len(answers()) == 3, WAIT)
            assert answers()[-1] == SAY("press_expired")
            await daemon.quiet(server)
            assert story.traces() == {}, "nothing was run"
        await story.command("tape", "verify")


async def kill_while_forgetting(home: Path, seed: int) -> bool:
    """Kill the bot at an instant of the forgetting and start it again; return true if it had begun before the kill."""
    async with Server(limits=None, conflict_pause=0.1) as server:
        story = begin(home, server)
        await grant(story)
        async with running(home) as daemon:
            await story.say_hello()
            story.hers.say(",forget.me confirm=true")
            await server.until(lambda: texts(story.hers)[-1].startswith("You are forgotten"), WAIT)
            if seed % 2:  # the second half of the way
                await server.until(lambda: "action=run.again" in daemon.errors, LONG_WAIT)
            await asyncio.sleep(random.Random(seed).uniform(0.0, 0.8))
            await daemon.kill()
        began = story.files_with(canary("direct").encode())
        daemon, heard = await started(home), len(server.calls("getUpdates"))
        await server.until(lambda: len(server.calls("getUpdates")) > heard + 2, LONG_WAIT)
        assert story.traces() == {}, f"seed {seed}"
        await server.until(lambda: any("asked to be forgotten" in text for text in texts(story.his)), LONG_WAIT)
        assert await daemon.end() == 0
        assert story.traces() == {}, f"seed {seed}"
        await story.command("tape", "verify")
        return bool(began)


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_kill_in_the_middle_is_finished_at_the_next_start(tmp_path: Path, seed: int) -> None:
    await kill_while_forgetting(tmp_path / "home", seed)


@pytest.mark.proof
async def test_kills_at_twenty_instants_leave_nothing(tmp_path: Path) -> None:
    in_the_middle = [await kill_while_forgetting(tmp_path / str(seed), seed) for seed in range(20)]
    print(f"{sum(in_the_middle)} of 20 kills came before the words were gone")
    assert any(in_the_middle)
