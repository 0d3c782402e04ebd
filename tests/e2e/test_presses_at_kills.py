"""From the press of a card to its end, killed anywhere, once and twice: nothing is lost or done twice, and the card is true."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.approving import CARD
from tests.e2e import on_discord
from tests.e2e.approval_daemon import CHILD
from tests.e2e.approval_stage import SECONDS, Stage, staged
from tests.e2e.daemon import Daemon, started
from tests.e2e.kill_harness import KILLED, damage
from tests.fakes.effect_server import EffectServer

GREETED = ("post", "bob: hello")
PRESSED = "receive:before#2"
"""The first event is the message, the second one the press."""
ACCESS = "bubbot/access"
PLATFORMS = ("telegram", "discord")
ONCE = (0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22)
"""Operations after the press: the decision is one of the first, the answer of the turn that goes on one of the last."""
TWICE = ((1, 4), (2, 8), (4, 4), (8, 8), (14, 6))
"""At the last pair nothing of what was allowed has begun when the bot gives up."""
SAMPLE = ("telegram", (8, 8))


def cards(stage: Stage) -> dict[str, str]:
    """The cards by id, as they stand now."""
    found = {text: CARD.search(text.replace("*", "")) for text in stage.texts(stage.alone)}
    return {number[1]: text for text, number in found.items() if number}


def press_open_cards(stage: Stage, pressed: dict[int, int]) -> None:
    """Press the first button of each card that has one, once in each life of the bot; and again if Discord says that it failed."""
    failures = sum("did not respond" in one.text for one in stage.server.world.happenings)
    for message, labels in stage.labels(stage.alone).items():
        if "Once" in labels and pressed.get(message, -1) < failures:
            pressed[message] = failures
            stage.press(stage.alone, "Ada", message, "Once")


async def until_killed(stage: Stage, point: str, *, is_first: bool) -> bool:
    """Let the bot live until it is killed at this point; false if it came to an end before that."""
    pressed: dict[int, int] = {}
    daemon = await started(stage.home, target=CHILD, arguments=[str(stage.home), point, ""])
    ended = asyncio.ensure_future(daemon.ended())
    if is_first:
        stage.say(stage.alone, "Ada", "Greet Bob for me")
        await stage.until_said(stage.alone, "I have asked.")
        await stage.card(stage.alone)
        await stage.quiet(daemon)

    def is_over() -> object:
        if not ended.done():
            press_open_cards(stage, pressed)
        return ended.done() or "It is done." in stage.texts(stage.alone)

    await stage.server.until(is_over, SECONDS)
    if not ended.done():
        await end(stage, daemon)
    code = await ended
    assert code in (KILLED, 0), daemon.errors
    return code == KILLED


async def end(stage: Stage, daemon: Daemon) -> None:
    """Wait until nothing is left to do, and end the bot, if it has not been killed by then."""
    waiting = asyncio.ensure_future(stage.quiet(daemon))
    ended = asyncio.ensure_future(daemon.ended())
    await asyncio.wait([waiting, ended], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    await asyncio.wait([waiting])
    if not ended.done():
        await daemon.end()
    await ended


async def finish(stage: Stage) -> None:
    """Let the bot live until all that was asked has come to an end, and people know it."""
    pressed: dict[int, int] = {}

    def is_over() -> object:
        press_open_cards(stage, pressed)
        said = stage.texts(stage.alone)
        return "It is done." in said or any("interrupted twice" in text for text in said)

    async with stage.bot():
        await stage.server.until(is_over, SECONDS)


async def check(stage: Stage, service: EffectServer) -> dict[str, int]:
    """Hold what must be true of every end; return the figures."""
    facts = {name: on_discord.named(stage.home, ACCESS, f"approval.{name}") for name in ("opened", "decided")}
    opened, decided = [[fact["id"] for fact in facts[name]] for name in ("opened", "decided")]
    shown, said = cards(stage), stage.texts(stage.alone)
    assert set(shown) == set(opened)
    assert len(decided) == len(set(decided))
    first, done = opened[0], service.done[GREETED]
    assert decided == [first]
    is_unknown = len(opened) > 1
    has_none = "It did not run" in shown[first]
    assert "Ada allowed it once" in shown[first]
    assert is_unknown or done == (0 if has_none else 1)
    assert not (has_none and (done or is_unknown))
    assert is_unknown or has_none or "It is done." in said
    assert all(number == first or "not known" in text for number, text in shown.items())
    assert ("Nothing was done" in str(said)) is has_none
    assert not any("Once" in labels for labels in stage.labels(stage.alone).values())
    assert await damage(stage.home) == []
    return {"twice": max(done - 1, 0), "unknown": int(is_unknown), "not run": int(has_none)}


@pytest.mark.proof
@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("after", ONCE)
async def test_killed_once(platform: str, after: int, home: Path, service: EffectServer) -> None:
    async with staged(platform, home) as stage:
        assert await until_killed(stage, f"{PRESSED}+{after}", is_first=True)
        await finish(stage)
        await check(stage, service)


@pytest.mark.parametrize(
    ("platform", "first", "second"),
    [
        pytest.param(platform, *pair, marks=() if (platform, pair) == SAMPLE else pytest.mark.proof)
        for platform in PLATFORMS
        for pair in TWICE
    ],
)
async def test_killed_twice(platform: str, first: int, second: int, home: Path, service: EffectServer) -> None:
    async with staged(platform, home) as stage:
        assert await until_killed(stage, f"{PRESSED}+{first}", is_first=True)
        assert await until_killed(stage, f"+{second}", is_first=False)
        await finish(stage)
        await check(stage, service)
