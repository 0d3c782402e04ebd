"""A bot of this process whose chats a proxy records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bubbot.app.bot import Bot, PortWrappers, open_app
from bubbot.features.learn.live.recorder import LiveRecorder
from bubbot.features.learn.settings import LearnSettings
from bubbot.features.learn.tape import LEARN_TAPE
from bubbot.home import Home
from bubbot.ports.model import Model
from bubbot.settings.loader import ModelSettings, Settings
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import TapeQuery
from bubbot.tool import Tool
from tests.fakes.rl_proxy import ADMIN_KEY, RlProxy
from tests.made_settings import make_settings
from tests.turns import Played

CHAT = "stdin:default"
OWN = "the own model answers"
WAIT = 60.0
"""Seconds any wait may take."""


def recorded_by(proxy: RlProxy, **more: Any) -> Settings:
    """Settings of a bot whose terminal is recorded; its own model says always the same."""
    learn = LearnSettings(**{"endpoint": proxy.url, "endpoint_key": ADMIN_KEY, "endpoint_sessions": [CHAT], **more})
    return make_settings(learn, model=ModelSettings(name="scripted"))


@asynccontextmanager
async def recording(
    home: Path,
    settings: Settings,
    *,
    own: Sequence[Mapping[str, Any]] = ({"text": OWN},),
    tools: Sequence[Tool] = (),
    is_run: bool = True,
) -> AsyncIterator[Bot]:
    """The bot, with its work in the background unless `is_run` is false."""

    def wrap(model: Model) -> Model:
        return Played(*own) if model.name == "scripted" else model

    wrappers = PortWrappers(model=wrap, tools=tools)
    async with open_app(settings, Home(home), channel_settings={"write": lambda _: None}, wrappers=wrappers) as app:
        await app.recover_all()
        work = asyncio.create_task(recorder_of(app).run()) if is_run else None
        try:
            yield app
        finally:
            if work is not None:
                work.cancel()
                await asyncio.wait([work])


def recorder_of(app: Bot) -> LiveRecorder:
    """The recorder of a bot."""
    (feature,) = [each for each in app.features.lasting if each.name == "learn.live"]
    recorder: LiveRecorder = feature.lifecycle.background["recording for training"].__self__  # type: ignore[attr-defined]
    return recorder


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(WAIT):
        while not is_so():  # noqa: ASYNC110 - it is elsewhere that something happens
            await asyncio.sleep(0.01)


async def learn_facts(app: Bot) -> list[TapeEntry]:
    """The facts of the recording."""
    (found,) = await app.features._kernel.open_tape(LEARN_TAPE).fetch([TapeQuery(LEARN_TAPE)])
    return [*found]
