"""Telegram walkthrough, seen from the platform's side: `docs/concepts/telegram-walkthrough.md` is what this prints.

`TELLING=1` in the environment writes the page's transcript anew.
"""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest

from tests.e2e.bot import run
from tests.e2e.daemon import configured, running, started
from tests.e2e.test_telegram import SCRIPT, said, texts
from tests.fakes.botapi.server import Server
from tests.fakes.botapi.world import User

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "telegram-walkthrough.md"
SHOWN = 110
"""Characters of a line that are shown."""


async def strangers(server: Server, home: Path, ada: User, bob: User, eve: User) -> None:
    """A group in which one is known, and somebody who is let in."""
    family, hers = server.supergroup("Family", [ada, bob]), server.private(eve)
    await server.until(lambda: texts(family))
    family.say("lovely weather today", ada)
    family.say("@bubbot_bot who are you?", bob)
    family.say("@bubbot_bot good morning", ada)
    await server.until(lambda: len(texts(family)) == 2)
    family.say("thank you", ada, reply_to=said(family)[1])
    await server.until(lambda: len(texts(family)) == 3)
    hers.say("hello?")
    await server.until(lambda: texts(hers))
    code = re.search(r"approve (\w{8})", texts(hers)[0])
    assert code
    assert (await asyncio.to_thread(run, home, "access", "approve", "--yes", code[1])).returncode == 0
    await server.until(lambda: len(texts(hers)) == 3)  # she is told, and answered
    hers.say("and now?")
    await server.until(lambda: len(texts(hers)) == 4)


async def story(home: Path) -> str:
    """Plays the day and gives the transcript."""
    async with Server(limits=None, conflict_pause=0.1, privacy=False) as server:
        ada, bob, eve = server.user("Ada", username="ada"), server.user("Bob"), server.user("Eve")
        configured(home, server, SCRIPT, owners=[ada.id], debounce=0.3, edit_interval=0.5, stale_after=3600)
        club = server.supergroup("Club", [ada], forum=True)
        garden = club.topic("Garden", ada)
        alone = server.private(ada)
        async with running(home) as daemon:
            await strangers(server, home, ada, bob, eve)
            club.say("@bubbot_bot when do I cut roses?", ada, thread=garden.id)
            await server.until(lambda: len(texts(club)) == 2)
            alone.album([b"\xff\xd8\xffone", b"\xff\xd8\xfftwo"], caption="our trip")
            await server.until(lambda: texts(alone))
            alone.say("tell me everything")
            await server.until(lambda: any("document" in one for one in said(alone)), 60)
            alone.say("count slowly")
            await server.until(lambda: texts(alone)[-1].endswith("ten"), 60)
            alone.say("wait for me")
            await daemon.quiet(server)
            alone.say("/stop")
            await server.until(lambda: texts(alone)[-1] == "Stopped.")
        daemon = await started(home)
        edits = len(server.calls("editMessageText"))
        alone.say("count slowly again")
        await server.until(lambda: len(server.calls("editMessageText")) > edits, 60)
        await daemon.kill()
        async with running(home):
            await server.until(lambda: texts(alone)[-1].endswith("ten"), 60)
        server.world.clock.advance(-72_000)  # the platform keeps for a day what nobody fetched
        alone.say("are you there?")
        alone.say("hello??")
        server.world.clock.advance(72_000)
        async with running(home):
            await server.until(lambda: texts(alone)[-1].startswith("I was away"))
            alone.say("good to have you back")
            await server.until(lambda: "good to have you back" in texts(alone)[-1])
        return told(server.transcript(times=False))


def told(transcript: str) -> str:
    """The transcript as a page shows it: long lines cut, and what differs from run to run made equal."""
    lines = []
    for line in transcript.splitlines():
        same = re.sub(r"(?<=approve )\w{8}|(?<=code is )\w{8}", "7KQ2M9XB", line)
        same = re.sub(r" edited #(\d+) \d+ times", r" edited #\1 a few times", same)
        same = re.sub(r"\(\d{4}-\d\d-\d\d \d\d:\d\d( to [^)]*)? UTC\)", "(yesterday)", same)
        same = re.sub(r"\[\d{4}-\d\d-\d\d \d\d:\d\d\]", "[2026-11-22 10:00]", same)
        same = re.sub(r"one two [a-z ]*…", "one two three …", same)
        if re.fullmatch(r"Bubbot is typing…|Bubbot edited .* one two three …", same):
            continue  # how often it is shown, and how it grows, is chance
        lines.append(same if len(same) <= SHOWN else f"{same[:SHOWN]}…")
    kept: list[str] = []
    for line in lines:
        if line.startswith("    Paragraph") and kept and kept[-1].startswith("    Paragraph"):
            if kept[-1] != "    Paragraph …":
                kept.append("    Paragraph …")
            continue
        if not line.strip() and kept and kept[-1].startswith("    Paragraph"):
            continue
        kept.append(line)
    return "\n".join(kept).strip()


@pytest.mark.proof
async def test_the_page_tells_what_happens(tmp_path: Path) -> None:
    found = await story(tmp_path / "home")
    page = PAGE.read_text()
    if os.environ.get("TELLING"):
        begin, _, rest = page.partition("```text\n")
        page = f"{begin}```text\n{found}\n```{rest.partition('```')[2]}"
        PAGE.write_text(page)
    assert found in page
