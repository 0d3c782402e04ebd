"""A home whose disk is full: the daemon stays, takes and sends nothing, and goes on by itself. Or it is read-only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from bubbot.ports.checks import Finding
from tests.e2e import bot
from tests.e2e.bot import said, sentence
from tests.e2e.daemon import WAIT, Daemon, configured, running
from tests.e2e.hurried import BOT
from tests.e2e.platforms import OnTelegram
from tests.e2e.small_disk import ROOT_ONLY, SmallDisk, small_disk
from tests.e2e.terminal import Terminal
from tests.e2e.test_status import WATCHED, Door, status
from tests.fakes.botapi.server import Server
from tests.planting import found, plants

pytestmark = ROOT_ONLY

SCRIPT = {
    "rules": [{"when": "slow", "steps": [{"text": "You said: {text}", "delay": 2}]}],
    "default": [{"text": "You said: {text}"}],
}
HELLO = "x" * 3000


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(limits=None, conflict_pause=0.1) as found:
        yield found


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "home", 8) as found:
        (tmp_path / "errors").touch()
        (found.path / "errors").symlink_to(tmp_path / "errors")  # the log is on another disk
        yield found


def outside(server: Server, platform: OnTelegram, people: Sequence[str]) -> tuple[object, ...]:
    """What the platform has seen of the bot: acknowledged updates, calls that show something, messages."""
    offsets = {str(one.params.get("offset")) for one in server.calls("getUpdates")}
    shown = [one.method for one in server.log if one.method != "getUpdates"]
    return offsets, shown, [platform.answers(one) for one in people]


async def everybody_is_answered_once(
    server: Server, platform: OnTelegram, people: Sequence[str], daemon: Daemon, text: str
) -> None:
    await server.until(lambda: all(platform.answers(one) for one in people), WAIT)
    await daemon.quiet(server)
    assert [platform.answers(one) for one in people] == [[f"You said: {text}"]] * len(people)


@plants("disk.full")
async def test_a_full_disk_holds_everything_and_then_each_message_is_answered_once(
    server: Server, disk: SmallDisk
) -> None:
    home, platform = disk.path, OnTelegram(server)
    people = [platform.person(f"Ada{number}") for number in range(12)]
    in_a_turn = platform.person("Bob")
    configured(home, server, SCRIPT, members=[int(one) for one in (*people, in_a_turn)])
    async with running(home, target=BOT, env=WATCHED) as daemon:
        platform.say(people[0], HELLO)
        await server.until(lambda: platform.answers(people[0]), WAIT)
        platform.say(in_a_turn, "slow")
        await server.until(
            lambda: any(one.params.get("chat_id") == in_a_turn for one in server.calls("sendChatAction"))
        )
        disk.fill()
        for person in people[1:]:
            platform.say(person, HELLO)
        await server.until(lambda: "store.full" in daemon.errors, WAIT)
        code, told = await status(home)
        assert (code, told.splitlines()[0]) == (1, "Not answering: the disk is full, and the bot waits for room.")
        assert "\ndisk            full: nothing is accepted, acknowledged or sent" in told
        before = outside(server, platform, [*people, in_a_turn])
        http, body = await Door(daemon).get("/ready")
        assert (http, json.loads(body)) == (503, {"ready": False, "channels": {}, "disk": "full"})
        done = await asyncio.to_thread(bot.run, home, "doctor", "--offline", "--json")
        assert "disk.full" in found(Finding(**one) for one in json.loads(done.stdout)["findings"])
        assert done.returncode == 1
        assert outside(server, platform, [*people, in_a_turn]) == before
        assert platform.answers(in_a_turn) == []
        assert daemon.process.returncode is None
        disk.free()
        await everybody_is_answered_once(server, platform, people, daemon, HELLO)
        await everybody_is_answered_once(server, platform, [in_a_turn], daemon, "slow")
        assert (await status(home))[0] == 0
        assert (await Door(daemon).get("/ready"))[1] == '{"ready": true, "channels": {}}'
    assert await asyncio.to_thread(lambda: bot.run(home, "tape", "verify").returncode) == 0


async def test_with_a_full_disk_the_bot_ends_when_told_and_starts_when_there_is_room(
    server: Server, disk: SmallDisk
) -> None:
    home, platform = disk.path, OnTelegram(server)
    people = [platform.person(f"Ada{number}") for number in range(3)]
    configured(home, server, SCRIPT, members=[*map(int, people)])
    async with running(home, target=BOT, env=WATCHED) as daemon:
        for person in people:
            platform.say(person, "slow")
        await server.until(
            lambda: len({one.params.get("chat_id") for one in server.calls("sendChatAction")}) == len(people)
        )
        disk.fill()
        await server.until(lambda: "store.full" in daemon.errors, WAIT)
        assert await daemon.end() == 0, daemon.errors
    assert not any(platform.answers(one) for one in people)
    before = daemon.errors.count("store.full")
    async with running(home, target=BOT, env=WATCHED) as daemon:  # which waits for room before anything else
        await server.until(lambda: daemon.errors.count("store.full") > before, WAIT)
        assert await daemon.end() == 0, daemon.errors
    assert daemon.errors.count("run.started") == 1
    before = daemon.errors.count("store.full")
    async with running(home, target=BOT, env=WATCHED) as daemon:
        await server.until(lambda: daemon.errors.count("store.full") > before, WAIT)
        disk.free()
        await everybody_is_answered_once(server, platform, people, daemon, "slow")


@pytest.mark.proof
async def test_who_asks_while_the_disk_is_full_is_told_and_then_answered(server: Server, disk: SmallDisk) -> None:
    home, platform = disk.path, OnTelegram(server)
    ada = platform.person("Ada")
    configured(home, server, SCRIPT, members=[int(ada)])

    def ask() -> None:
        with Terminal(home, "ask", HELLO, first="goes") as terminal:
            disk.free()
            terminal.expect("You said:")
            terminal.expect("xxx")

    async with running(home, target=BOT, env=WATCHED):
        platform.say(ada, HELLO)
        await server.until(lambda: platform.answers(ada), WAIT)
        disk.fill()
        await asyncio.to_thread(ask)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "command", [("status",), ("tape", "list"), ("tape", "search", "default", "tea"), ("tape", "verify")]
)
def test_on_a_read_only_disk_the_cause_and_the_ways_to_read_are_named(
    disk: SmallDisk, tmp_path: Path, command: tuple[str, ...]
) -> None:
    said(disk.path, "green tea")
    disk.make_read_only()
    done = bot.run(disk.path, *command)
    assert done.returncode == 4
    told = sentence(done)
    assert f"the home {disk.path} is on a read-only disk" in told
    assert "copy the home to another disk" in told
    assert "bubbot tape export" in told
    assert "owner" not in told
    copy = tmp_path / "copy"  # the way that it names
    copy.mkdir(mode=0o700)
    for file in disk.path.glob("bubbot.db*"):
        (copy / file.name).write_bytes(file.read_bytes())
    assert "green tea" in bot.run(copy, "tape", "show", "default").stdout.decode()
