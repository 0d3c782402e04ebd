"""Schedules on Telegram's test server, with the real daemon: a working day of reminders, and kills around a firing."""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from pathlib import Path

import pytest

from bubbot.app.commands import bind_context, find_command
from bubbot.app.settings import load
from bubbot.app.tapes import new_id, now, open_tapes
from bubbot.gateway.inbox import inbox_tape
from bubbot.gateway.outbox import outbox_tape
from bubbot.home import Home
from bubbot.shell_command import CommandContext
from tests.e2e.bot import run
from tests.e2e.daemon import Daemon, configured, running, started
from tests.e2e.kill_harness import KILLED, SCRIPT, damage, entries_of
from tests.e2e.test_telegram import texts
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server

PAGES = [Path(__file__).parents[2] / folder / "concepts" / "schedule.md" for folder in ("docs", "docs/zh")]

PLANNING = {
    "rules": [
        {
            "when": "remind me every weekday",
            "steps": [
                {
                    "calls": [
                        {
                            "name": "schedule_add",
                            "arguments": {"when": "0 9 * * 1-5", "text": "Stand-up!", "name": "stand-up"},
                        }
                    ]
                },
                {"text": "Every weekday at 09:00 (Europe/Berlin), next Mon 23 Nov 2026."},
            ],
        }
    ],
    "default": [{"text": "You said: {text}"}],
}


def child(home: Path, point: str = "", start: str = "") -> dict[str, object]:
    """How to start a daemon that ends itself at the point, with its clock put to the start."""
    return {"target": "tests.e2e.schedule_daemon:run", "arguments": [str(home), point, start]}


async def working_day(home: Path) -> str:
    """Plays the day and gives the transcript."""
    async with Server(limits=None, conflict_pause=0.1) as server:
        ada = server.user("Ada", username="ada")
        configured(home, server, PLANNING, owners=[ada.id], debounce=0, live=False, stale_after=0)
        with (home / "config.toml").open("a") as file:
            file.write('[bot]\ntimezone = "Europe/Berlin"\n')
        room = server.private(ada)

        async def say(text: str) -> None:
            before = len(texts(room))
            room.say(text)
            await server.until(lambda: len(texts(room)) > before, 60)

        async with running(home, **child(home, start="2026-11-23T07:59:55+00:00")):  # 08:59:55 in Berlin
            await say("remind me every weekday at 9 of the stand-up")
            await server.until(lambda: texts(room)[-1] == "⏰ Stand-up!", 60)
            await say("/schedules")
            await say(",schedule.pause stand-up")
        async with running(home, **child(home, start="2026-11-24T07:59:58+00:00")) as daemon:
            await daemon.quiet(server)  # it runs
            await asyncio.sleep(2.5)  # nothing comes
            await say(",schedule.resume stand-up")
            await say(",remind at 10:00: call the dentist")
        async with running(home, **child(home, start="2026-11-24T11:40:00+00:00")):
            await server.until(lambda: "dentist" in texts(room)[-1] and "due" in texts(room)[-1], 60)
        async with running(home, **child(home, start="2026-11-25T07:59:58+00:00")):
            await server.until(lambda: texts(room)[-1] == "⏰ Stand-up!", 60)
            await say(",schedule.history stand-up")
        return told(server.transcript(times=False))


def told(transcript: str) -> str:
    """The transcript as a page shows it: ids and seconds, which differ from run to run, made equal."""
    ids = re.findall(r"stand-up \(([0-9a-f]{6})\)|Scheduled [\w -]+ \(([0-9a-f]{6})\)", transcript)
    for place, found in enumerate(dict.fromkeys(one or other for one, other in ids)):
        transcript = transcript.replace(found, ("3fa9c1", "b07e52")[place])
    transcript = re.sub(r"Bubbot is typing…\n", "", transcript)  # whether it is shown is chance
    transcript = re.sub(r"turn [0-9a-f]{8}", "turn 5d1c0b9e", transcript)
    return re.sub(r"(?<=2026-11-\d\d \d\d:\d\d):\d\d", "", transcript).strip()


@pytest.mark.proof
async def test_the_page_tells_what_happens_on_a_working_day(tmp_path: Path) -> None:
    found = await working_day(tmp_path / "home")
    for page in PAGES:
        begin, mark, rest = page.read_text(encoding="utf-8").partition("```text transcript\n")
        transcript, _, after = rest.partition("\n```")
        if os.environ.get("TELLING"):
            page.write_text(f"{begin}{mark}{found}\n```{after}", encoding="utf-8")
        else:
            assert transcript == found


POINTS = (
    "append-inbox:before#2",  # the first says that the channel began
    "append-inbox:after#2",
    "open-fork:before#1",
    "open-fork:after#1",
    "model:before#1",
    "tool:before#1",
    "extend-fork:after#1",
    "merge:before#1",
    "merge:after#1",
    "append-schedule:before#1",
    "append-schedule:after#1",
    "send:before#1",
    "send:after#1",  # between sending and receipt: the one place where Telegram may show it twice
    "append-outbox:before#1",
    "append-outbox:after#1",
)
TWICE = frozenset({"send:after#1", "append-outbox:before#1"})


async def planned(home: Path, session: str) -> None:
    """A job that is due in a second, as the shell makes it."""
    async with open_tapes(Home(home), write=True) as (store, workspace):
        context = CommandContext(store, workspace, now, new_id)
        add = find_command("schedule add")
        assert add is not None
        job = add.args(session=session, when="in 1s", prompt="use the tool")
        await add.run(bind_context(context, add.name, load(home=home)), job)


async def killed(home: Path, point: str) -> tuple[int | None, list[str]]:
    """A job for one time, a kill at the point, a second life: the exit code of the first, and what is wrong then."""
    async with Server(limits=None, conflict_pause=0.1) as server:
        ada = server.user("Ada")
        configured(home, server, SCRIPT, owners=[ada.id], debounce=0, live=False)
        room = server.private(ada)
        await planned(home, f"telegram:{ada.id}")
        daemon = await started(home, **child(home, point))  # type: ignore[arg-type]
        try:
            async with asyncio.timeout(20):
                code: int | None = await daemon.process.ended()
        except TimeoutError:
            await daemon.kill()
            code = None
        last = await started(home, **child(home))  # type: ignore[arg-type]
        try:
            await server.until(lambda: bool(texts(room)), 60)
            await settled(home, last, server)
        finally:
            assert await last.end() == 0, last.errors
        return code, [*await faults(home, room, twice=point in TWICE), *await damage(home)]


async def settled(home: Path, daemon: Daemon, server: Server) -> None:
    """Waits until what was said has its receipt, and then for anything more that may come."""
    async with asyncio.timeout(20):
        while not any(  # noqa: ASYNC110 - another process writes it
            one.name == "outbox/receipt" for one in await entries_of(home, outbox_tape("telegram"))
        ):
            await asyncio.sleep(0.05)
    await daemon.quiet(server)


async def faults(home: Path, room: Gathering, *, twice: bool) -> list[str]:
    schedule, inbox = await entries_of(home, "bubbot/schedule"), await entries_of(home, inbox_tape("telegram"))
    outbox = await entries_of(home, outbox_tape("telegram"))
    counts = Counter((one.name or "").rpartition("/")[2] for one in (*schedule, *inbox, *outbox))
    wanted = {"added": 1, "fired": 1, "ran": 1, "over": 1, "received": 1, "done": 1, "intent": 1, "receipt": 1}
    found = [f"{name}: {counts[name]}" for name, number in wanted.items() if counts[name] != number]
    seen = len(texts(room))
    if seen != 1 and not (twice and seen == 2 and any("resumed" in one.payload.get("data", ()) for one in outbox)):
        found.append(f"shown {seen} times: {texts(room)}")
    return found


SOME = ("append-inbox:after#2", "merge:after#1", "send:after#1")


@pytest.mark.parametrize("points", [SOME, pytest.param(POINTS, marks=pytest.mark.proof)], ids=["some", "all"])
async def test_a_kill_at_any_point_of_a_firing_fires_once_and_delivers_once(
    tmp_path: Path, points: tuple[str, ...]
) -> None:
    limit = asyncio.Semaphore(3)

    async def one(number: int, point: str) -> tuple[str, int | None, list[str]]:
        async with limit:
            return (point, *await killed(tmp_path / f"home{number}", point))

    found = await asyncio.gather(*(one(number, point) for number, point in enumerate(points)))
    assert {point: wrong for point, _, wrong in found if wrong} == {}
    assert [point for point, code, _ in found if code != KILLED] == []


async def test_the_shell_plans_with_the_running_bot_and_it_counts_at_once(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with Server(limits=None, conflict_pause=0.1) as server:
        ada = server.user("Ada")
        configured(home, server, SCRIPT, owners=[ada.id], debounce=0, live=False)
        room, session = server.private(ada), f"telegram:{ada.id}"
        async with running(home) as daemon:
            await daemon.quiet(server)
            made = await asyncio.to_thread(run, home, "schedule", "add", session, "in 1s", "--text", "tea")
            assert made.stdout.startswith(b"Scheduled tea "), made.stderr
            await server.until(lambda: texts(room) == ["⏰ tea"], 60)
            room.block()
            await asyncio.to_thread(run, home, "schedule", "add", session, "@daily", "--text", "more", "--name", "lost")
            await asyncio.to_thread(run, home, "schedule", "run", "lost")
            await server.until(lambda: server.calls("sendMessage")[-1].status == 403, 60)
            gone = b"its chat cannot be reached any more"
            async with asyncio.timeout(20):
                while gone not in (await asyncio.to_thread(run, home, "schedule", "history", "lost")).stdout:
                    pass
            refused = await asyncio.to_thread(run, home, "schedule", "add", session, "61 * * * *", "--text", "tea")
            assert (refused.returncode, b"is not a minute" in refused.stderr) == (2, True)
            listed = await asyncio.to_thread(run, home, "schedule", "list", "--over")
            assert b"over (it was for one time)" in listed.stdout


@pytest.mark.proof
async def test_a_job_of_every_minute_comes_each_minute_in_real_time(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with Server(limits=None, conflict_pause=0.1) as server:
        ada = server.user("Ada")
        configured(home, server, SCRIPT, owners=[ada.id], debounce=0, live=False)
        room = server.private(ada)
        async with running(home):
            room.say(",remind */1 * * * *: tick")
            await server.until(lambda: texts(room).count("⏰ tick") == 3, 200)
            made = await asyncio.to_thread(run, home, "schedule", "list")
            assert b"every minute" in made.stdout
