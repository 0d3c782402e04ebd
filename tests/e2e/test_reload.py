"""Changed settings, taken over by a real daemon while people talk to it."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import bot, inside
from tests.e2e.daemon import Daemon, configure, configured, running
from tests.e2e.platforms import OnTelegram
from tests.fakes.botapi.server import Server

ECHO = {"default": [{"text": "You said: {text}"}]}
SLOW = {"default": [{"text": "Slowly: {text}", "delay": 1.5}]}


async def command(home: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """`bubbot ARGUMENTS` in a process of its own."""
    return await asyncio.to_thread(bot.run, home, *arguments)


async def reloaded(home: Path) -> str:
    """What `bubbot reload` prints."""
    done = await command(home, "reload")
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


async def facts(home: Path) -> list[dict[str, Any]]:
    """The events about settings, with their names."""
    done = await command(home, "tape", "show", "bubbot/config", "--json")
    return [json.loads(line)["payload"] for line in done.stdout.splitlines()]


@asynccontextmanager
async def serving(home: Path, server: Server) -> AsyncIterator[Daemon]:
    """A daemon that has read its settings."""
    async with running(home) as daemon:
        await server.until(lambda: "action=run.started" in daemon.errors, 60)
        yield daemon


async def hung_up(daemon: Daemon, server: Server, action: str) -> None:
    """Sends SIGHUP and waits until it has had its effect."""
    seen = daemon.errors.count(f"action={action}")
    daemon.process.send_signal(signal.SIGHUP)
    await server.until(lambda: daemon.errors.count(f"action={action}") > seen, 60)


async def test_who_may_speak_changes_under_the_running_channel(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with Server(limits=None) as server:
        ada, bob = server.user("Ada"), server.user("Bob")
        rooms = [server.private(one) for one in (ada, bob)]
        configured(home, server, ECHO, owners=[ada.id], pairing=False)
        async with serving(home, server) as daemon:
            rooms[1].say("let me in")
            rooms[0].say("one")
            await server.until(lambda: "You said: one" in server.transcript(times=False), 60)
            began = len(server.calls("getMe"))
            configured(home, server, ECHO, owners=[ada.id], members=[bob.id], pairing=False)
            await hung_up(daemon, server, "config.loaded")
            rooms[1].say("two")
            await server.until(lambda: "You said: two" in server.transcript(times=False), 60)
            assert len(server.calls("getMe")) == began  # the channel was not begun anew
            assert "let me in" not in "".join(OnTelegram(server, {"bob": rooms[1]}).answers("bob"))
        assert [one["name"] for one in await facts(home)] == ["config/loaded", "config/loaded"]
        assert (await facts(home))[1]["data"] == {
            "how": "signal",
            "changed": {"channels.telegram.members": [bob.id]},
            "later": [],
        }
        assert server.bot.token not in str(await facts(home))


async def test_the_platform_learns_commands_that_come_with_a_reload(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with Server(limits=None) as server:
        ada = server.user("Ada")
        club = server.group("Club", [ada])
        configured(home, server, ECHO, owners=[ada.id], groups=[club.id])
        async with serving(home, server) as daemon:
            await server.until(lambda: "action=telegram.ready" in daemon.errors, 60)
            asked = len(server.calls("getMyCommands"))
            configured(home, server, ECHO, owners=[ada.id], groups=[club.id], debounce=0.06)
            await hung_up(daemon, server, "config.loaded")
            with (home / "config.toml").open("a") as file:
                file.write("[tools.files]\nenabled = true\n")
            assert len(server.calls("getMyCommands")) == asked  # the commands are the same
            await hung_up(daemon, server, "config.loaded")
            await server.until(lambda: len(server.calls("getMyCommands")) == 2 * asked, 60)
            club.say("/file_undo", ada)
            await server.until(lambda: "file" in OnTelegram(server, {"club": club}).answers("club")[-1:][0], 60)
        assert len(server.calls("setMyCommands")) == asked  # the menu is the same


async def test_settings_that_are_wrong_change_nothing_and_say_why(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with Server(limits=None) as server:
        ada = server.user("Ada")
        room = server.private(ada)
        configured(home, server, ECHO, owners=[ada.id])
        good = (home / "config.toml").read_text()
        async with serving(home, server) as daemon:
            (home / "config.toml").write_text(good + '[memory]\nrecent_days = "many"\n')
            await hung_up(daemon, server, "config.refused")
            done = await command(home, "reload")
            assert done.returncode == 2
            assert b"recent_days is 'many'" in done.stderr
            (home / "config.toml").write_text(good + '[channels.other]\nkind = "telegarm"\ntoken = "1:x"\n')
            done = await command(home, "reload")
            assert done.returncode == 2
            assert b"[channels.other] kind: No plugin 'telegarm'" in done.stderr
            room.say("still there?")
            await server.until(lambda: "You said: still there?" in server.transcript(times=False), 60)
            (home / "config.toml").write_text(good)
            assert await reloaded(home) == "Nothing has changed.\n"
    refused = [one["data"] for one in await facts(home) if one["name"] == "config/refused"]
    assert [one["how"] for one in refused] == ["signal", "command"]


async def test_a_turn_under_way_ends_as_it_began_and_the_next_one_goes_by_the_new_settings(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with Server(limits=None) as server:
        ada = server.user("Ada")
        room = server.private(ada)
        configured(home, server, SLOW, owners=[ada.id])
        async with serving(home, server):
            room.say("one")
            await server.until(lambda: server.calls("sendChatAction"))
            (home / "other.json").write_text(json.dumps(ECHO))
            text = (home / "config.toml").read_text()
            changed = text.replace("script.json", "other.json") + '[bot]\ntimezone = "Europe/Berlin"\n'
            (home / "config.toml").write_text(changed)
            assert await reloaded(home) == ("Applied: model.script.\nTakes effect at the next start: bot.timezone.\n")
            room.say("two")
            await server.until(lambda: "You said: two" in server.transcript(times=False), 60)
        assert OnTelegram(server, {str(ada.id): room}).answers(str(ada.id)) == ["Slowly: one", "You said: two"]


async def test_channels_come_and_go_and_change_their_tokens(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with Server(limits=None) as server:
        ada = server.user("Ada")
        table = {**OnTelegram(server).table(), "debounce": 0.05, "owners": [ada.id]}
        other = server.add_bot("second_bot", "Second")
        first, second = server.private(ada), server.private(ada, bot=other)
        configure(home, {"telegram": table}, ECHO)
        async with serving(home, server) as daemon:
            configure(home, {"telegram": table, "work": {**table, "kind": "telegram", "token": other.token}}, ECHO)
            assert "Restarted channels: work." in await reloaded(home)
            second.say("to the second")
            await server.until(lambda: "You said: to the second" in server.transcript(times=False), 60)
            configure(home, {"telegram": {**table, "token": other.token}}, ECHO)
            told = await reloaded(home)
            assert "Restarted channels: telegram." in told
            assert "Stopped channels: work." in told
            second.say("the same bot")
            await server.until(lambda: "You said: the same bot" in server.transcript(times=False), 60)
            first.say("nobody hears this")
            await asyncio.sleep(0.3)
            assert "You said: nobody hears this" not in server.transcript(times=False)
            configure(home, {}, ECHO)
            await reloaded(home)
            asked = len(server.calls("getUpdates"))
            await asyncio.sleep(0.5)
            assert len(server.calls("getUpdates")) <= asked + 1
            assert daemon.process.returncode is None


@pytest.mark.sampled(2)
@pytest.mark.parametrize("replaced", [False, True], ids=["people", "the adapter"])
async def test_nothing_is_lost_or_doubled_while_settings_change_again_and_again(tmp_path: Path, replaced: bool) -> None:
    home = tmp_path / "home"
    async with Server(limits=None) as server:
        people = [server.user(f"P{number}") for number in range(4)]
        rooms = {str(one.id): server.private(one) for one in people}
        keys: dict[str, Any] = {"owners": [one.id for one in people], "debounce": 0}
        script = {"default": [{"text": "You said: {text}", "delay": 0.2}]}
        configured(home, server, script, **keys)
        async with serving(home, server) as daemon:
            for number in range(5):
                for room in rooms.values():
                    room.say(f"m{number}")
                    await asyncio.sleep(0.02)
                keys |= {"poll_timeout": 2 - number % 2} if replaced else {"members": [100 + number]}
                configured(home, server, script, **keys)
                await hung_up(daemon, server, "config.loaded")
            platform = OnTelegram(server, rooms)
            await server.until(lambda: all("m4" in "".join(platform.answers(one)) for one in rooms), 60)
            await daemon.quiet(server)
        for one in rooms:
            said = "\n".join(platform.answers(one))
            assert [said.count(f"m{number}") for number in range(5)] == [1] * 5, said


def test_without_a_bot_there_is_nothing_to_reload(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    done = inside.run(home, "reload")
    assert done.returncode == inside.run(home, "status", "--quiet").returncode == 1
    assert b"no bot is running for this home" in done.stderr
