"""Cards seen from the side of two platforms: `docs/concepts/approvals-walkthrough.md` is what this prints.

`TELLING=1` in the environment writes the transcripts of the page, and of its Chinese twin, anew
(`-n 0 --proof`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.e2e.approval_stage import Stage, staged
from tests.fakes.effect_server import EffectServer

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "concepts" / "approvals-walkthrough.md"
CHINESE = ROOT / "docs" / "zh" / "concepts" / PAGE.name
GREETED, READ = ("post", "bob: hello"), ("page", "http://x.org/?q=secret")
Scene = Callable[[Stage, EffectServer], Awaitable[None]]


async def approve(stage: Stage, service: EffectServer) -> None:
    """Nothing is done before the yes, and once after it."""
    async with stage.bot():
        stage.say(stage.alone, "Ada", "Greet Bob for me")
        card = await stage.card(stage.alone)
        await stage.until_said(stage.alone, "I have asked.")
        assert service.done == {}
        stage.press(stage.alone, "Ada", card, "Once")
        await stage.until_said(stage.alone, "It is done.")
    assert service.done == {GREETED: 1}


async def deny(stage: Stage, service: EffectServer) -> None:
    """A typed no, with the reason."""
    async with stage.bot():
        stage.say(stage.alone, "Ada", "Greet Bob for me")
        await stage.card(stage.alone)
        await stage.until_said(stage.alone, "I have asked.")
        stage.say(stage.alone, "Ada", f"/deny {stage.card_id(stage.alone)} not today")
        await stage.until_said(stage.alone, "I leave it.")
    assert service.done == {}


async def in_a_group(stage: Stage, service: EffectServer) -> None:
    """A member asks; the member and a stranger may not answer, an owner may."""
    async with stage.bot():
        stage.say(stage.club, "Bob", "look it up")
        card = await stage.card(stage.club)
        await stage.until_said(stage.club, "I have asked.")
        stage.press(stage.club, "Bob", card, "Once")
        await stage.until_told("not for you")
        stage.say(stage.club, "Bob", f"/approve {stage.card_id(stage.club)}")
        await stage.until_said(stage.club, "not yours")
        stage.press(stage.club, "Eve", card, "Always")
        await stage.until_told("not for you", 2)
        assert service.done == {}
        stage.press(stage.club, "Ada", card, "Once")
        await stage.until_said(stage.club, "It is done.")
    assert service.done == {READ: 1}


async def expired(stage: Stage, service: EffectServer) -> None:
    """Too late means no."""
    async with stage.bot():
        stage.say(stage.alone, "Ada", "Greet Bob for me")
        card = await stage.card(stage.alone)
        await stage.until_said(stage.alone, "I have asked.")
        stage.press(stage.alone, "Ada", card, "Once")
        await stage.until_told("no longer works")
        stage.say(stage.alone, "Ada", f"/approve {stage.card_id(stage.alone)}")
        await stage.until_said(stage.alone, "has expired")
    assert service.done == {}


async def twice_at_once(stage: Stage, service: EffectServer) -> None:
    """The first counts."""
    async with stage.bot():
        stage.say(stage.alone, "Ada", "Greet Bob for me")
        card = await stage.card(stage.alone)
        await stage.until_said(stage.alone, "I have asked.")
        stage.press(stage.alone, "Ada", card, "Once")
        stage.press(stage.alone, "Ada", card, "Deny")
        await stage.until_told("pressed already")
        await stage.until_said(stage.alone, "It is done.")
        stage.say(stage.alone, "Ada", f"/deny {stage.card_id(stage.alone)}")
        await stage.until_said(stage.alone, "before")
    assert service.done == {GREETED: 1}


async def restart(stage: Stage, service: EffectServer) -> None:
    """The bot is killed after it has asked, and pressed while it is not there."""
    async with stage.bot() as daemon:
        stage.say(stage.alone, "Ada", "Greet Bob for me")
        card = await stage.card(stage.alone)
        await stage.until_said(stage.alone, "I have asked.")
        await stage.quiet(daemon)
        await daemon.kill()
    stage.mark(stage.alone, "(the bot is killed)")
    stage.press(stage.alone, "Ada", card, "This chat")
    if stage.name == "discord":
        await stage.until_told("did not respond")
    stage.mark(stage.alone, "(the bot is started)")
    async with stage.bot():
        if stage.name == "discord":
            stage.press(stage.alone, "Ada", card, "This chat")
        await stage.until_said(stage.alone, "It is done.")
        stage.say(stage.alone, "Ada", "Greet Bob again")
        await stage.until_said(stage.alone, "I have asked.", 2)
    assert service.done == {GREETED: 2}


async def schedule(stage: Stage, service: EffectServer) -> None:
    """A job may do what it was allowed when it was added."""
    async with stage.bot():
        for line in ("name=plain", 'name=allowed allow="post.send:bob"'):
            stage.say(stage.alone, "Ada", f'/schedule when="every day at 08:30" prompt="Say hello" {line}')
            await stage.until_said(stage.alone, line.split()[0].partition("=")[2])
        stage.say(stage.alone, "Ada", "/schedule_run plain")
        await stage.until_said(stage.alone, "may not use")
        assert service.done == {}
        stage.say(stage.alone, "Ada", "/schedule_run allowed")
        await stage.until_said(stage.alone, "That was the job.", 2)
    assert service.done == {GREETED: 1}


async def job_asks(stage: Stage, service: EffectServer) -> None:
    """By choice a job's call becomes a card."""
    async with stage.bot():
        stage.say(stage.alone, "Ada", '/schedule when="every day at 08:30" prompt="Say hello" name=plain')
        await stage.until_said(stage.alone, "plain")
        stage.say(stage.alone, "Ada", "/schedule_run plain")
        card = await stage.card(stage.alone)
        await stage.until_said(stage.alone, "That was the job.")
        stage.press(stage.alone, "Ada", card, "Once")
        await stage.until_said(stage.alone, "It is done.")
    assert service.done == {GREETED: 1}


SCENES: dict[str, tuple[Scene, str]] = {
    "approve": (approve, ""),
    "deny": (deny, ""),
    "group": (in_a_group, ""),
    "expired": (expired, "hours = 0.000001"),
    "twice": (twice_at_once, ""),
    "restart": (restart, ""),
    "schedule": (schedule, ""),
    "job": (job_asks, 'jobs = "ask"'),
}
PLATFORMS = ("telegram", "discord")


async def play(platform: str, scene: str, home: Path, service: EffectServer) -> str:
    """Play a scene; return what people saw."""
    act, approvals = SCENES[scene]
    async with staged(platform, home, approvals) as stage:
        await act(stage, service)
        return stage.transcript()


@pytest.mark.proof
@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize(
    "scene", [name if name == "group" else pytest.param(name, marks=pytest.mark.proof) for name in SCENES]
)
async def test_the_page_tells_what_happens(scene: str, platform: str, home: Path, service: EffectServer) -> None:
    found = await play(platform, scene, home, service)
    place = re.compile(rf"(?<=^<!-- {scene} {platform} -->\n```text\n).*?(?=\n```$)", re.DOTALL | re.MULTILINE)
    if os.environ.get("TELLING"):
        for page in (PAGE, CHINESE):
            page.write_text(place.sub(lambda _: found, page.read_text(), count=1))
    assert [shown[0] for shown in place.finditer(PAGE.read_text())] == [found]
