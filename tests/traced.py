"""A bot whose turns are sent to a receiver, with its real store and features; only its model follows a script."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from bubbot.app.bot import Bot, PortWrappers, open_app
from bubbot.app.turns import build_session_deps
from bubbot.features.otel.settings import OtelSettings
from bubbot.home import Home
from bubbot.ports.channel import Inbound, Sender
from bubbot.ports.turn import TurnResult
from bubbot.settings.loader import ModelSettings, Settings
from bubbot.tape.query import TapeQuery
from bubbot.tool import Tool
from tests.made_settings import make_settings

WAIT = 60.0
"""Seconds any wait may take."""
_NUMBERS = itertools.count(1)


def settings_for(home: Path, script: Mapping[str, Any] | None = None, **otel: Any) -> Settings:
    """Settings with a scripted model, and these of `[otel]`."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "script.json").write_text(json.dumps(script or {}))
    model = ModelSettings(name="scripted", script=home / "script.json")
    return make_settings(OtelSettings.model_validate(otel), model=model)


@asynccontextmanager
async def traced(
    settings: Settings, home: Path, *, tools: Sequence[Tool] = (), begun: bool = True
) -> AsyncIterator[Bot]:
    """A bot for the block, whose export runs as a daemon runs it. `begun`: wait until it is on."""
    channel = {"write": lambda _: None}
    async with open_app(settings, Home(home), channel_settings=channel, wrappers=PortWrappers(tools=tools)) as bot:
        await bot.recover("stdin:default", deliver=False)
        async with exporting(bot, begun=begun):
            yield bot


@asynccontextmanager
async def exporting(bot: Bot, *, begun: bool = True) -> AsyncIterator[None]:
    """Run the export for the block, as a daemon runs it. `begun`: wait until it is on."""
    (feature,) = [feature for feature in bot.features.lasting if feature.name == "otel"]
    tasks = [asyncio.ensure_future(work()) for work in feature.lifecycle.background.values()]
    try:
        if begun:
            await until(lambda: facts(bot))
        yield
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def reload(bot: Bot, settings: Settings) -> None:
    """Put other settings into force, as a daemon does."""
    (await bot.features.prepare(settings))()
    deps, _ = build_session_deps(settings, bot.turn_services, bot.current_models.in_use)
    bot.runtime.reload({name: runtime.link for name, runtime in bot.channel_runtimes.items()}, deps)


async def facts(bot: Bot) -> list[tuple[str, Mapping[str, Any]]]:
    """The facts of the export: names and data."""
    (entries,) = await bot.store.fetch([TapeQuery("bubbot/otel")])
    return [(str(entry.name), entry.payload["data"]) for entry in entries]


async def until(check: Callable[[], Awaitable[object]]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(WAIT):
        while not await check():  # noqa: ASYNC110 - what is waited for happens in the store, or in another task
            await asyncio.sleep(0.005)


async def written(bot: Bot, name: str, count: int = 1) -> None:
    """Wait until there are so many facts of this name."""

    async def check() -> bool:
        return sum(found == name for found, _ in await facts(bot)) >= count

    await until(check)


def message(text: str, *, chat: str = "default", sender: str = "1", name: str = "Ann", **fields: Any) -> Inbound:
    """A message of its own."""
    external = f"m-{next(_NUMBERS)}"
    made = Sender(sender, name)
    return Inbound("stdin", external, chat, made, text, "2026-11-21T20:21:00+00:00", message=external, **fields)


async def say(bot: Bot, text: str, **fields: Any) -> TurnResult:
    """A message, and its turn."""
    async with asyncio.timeout(WAIT):
        return await bot.ask(message(text, **fields))
