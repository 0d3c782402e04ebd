"""A bot with several agents on a platform with an owner, members and a group, put together as the daemon does it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

from bubbot.app import bot as bot_module
from bubbot.app.bot import PortWrappers
from bubbot.app.channel_factory import ChannelFactory
from bubbot.app.daemon import Daemon, open_daemon
from bubbot.app.turns import build_session_deps
from bubbot.features.agents.settings import AgentsSettings
from bubbot.features.schedule.timer import JobTimer
from bubbot.home import Home
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Inbound, Sender
from bubbot.ports.settings import SettingsSection
from bubbot.settings.loader import ModelSettings
from bubbot.settings.sections import StoreSettings
from bubbot.tape.entry import JsonObject, TapeEntry, timestamp
from bubbot.tape.query import TapeQuery
from bubbot.tape.shards import count_shards, shard_tapes
from bubbot.tool import Tool
from tests.approving import acting_tools, card_ids
from tests.made_settings import make_settings
from tests.turns import KeptChannel

WAIT = 60.0
"""Seconds any wait may take."""
OWNER, MEMBER = "1", "5"
"""The people: Ann, who owns the bot, and Ben."""
NAMES = {OWNER: "Ann", MEMBER: "Ben"}
GROUP = "-8"
"""The chat in which everybody is. The direct chat of a person has the person's id."""
AGENTS: Mapping[str, Any] = MappingProxyType(
    {
        "rosi": {"title": "Rosi", "prompt": "You are Rosi, a cook.", "about": "cooking"},
        "tom": {"title": "Tom", "prompt": "You are Tom, a teacher.", "about": "homework"},
    }
)

_NUMBERS = count(1)
"""The ids of messages, over all lives of a home."""


@dataclass
class Family:
    """The running bot.

    Attributes:
        daemon: its parts.
        channel: what people have read.
        done: what the tools that act outside did, as their names and texts.
    """

    daemon: Daemon
    channel: KeptChannel
    model: ScriptedModel
    done: list[tuple[str, str]]

    async def say(self, text: str, sender: str = OWNER, chat: str = GROUP, **fields: Any) -> list[str]:
        """Let somebody write; return what the bot sent until all was quiet, in order."""
        before, number = len(self.channel.sent), f"m{next(_NUMBERS)}"
        now, who = timestamp(datetime.now(UTC)), Sender(sender, NAMES.get(sender, ""))
        inbound = Inbound(
            "tg", number, chat, who, text, now, message=number, direct=chat != GROUP, addressed=True, **fields
        )
        async with asyncio.timeout(WAIT):
            await self.daemon.bot.channel_runtimes["tg"].receive(inbound)
            await self.quiet()
        return [part.text for part in self.channel.sent[before:]]

    async def quiet(self) -> None:
        """Return when no turn runs and nothing is delivered."""
        for _ in range(2):
            await self.daemon.bot.runtime.wait_idle()
            await self.daemon.bot.channel_runtimes["tg"].deliverer.wait_until_idle()

    async def fire(self, job: str) -> None:
        """Let a job run whose time has come, as the timer of a daemon does."""
        schedule = self.daemon.bot.features.schedule
        assert schedule is not None
        timer = JobTimer(schedule.store, self.daemon.bot.directory.accept, notify_missed=schedule.notify_missed)
        await timer.check_job(job)
        await self.quiet()

    @property
    def cards(self) -> list[str]:
        """The ids of all cards, oldest first."""
        return card_ids(self.channel.texts)

    async def entries(self, chat: str = GROUP) -> Sequence[TapeEntry]:
        """All entries of a chat's tape; of a tape of the system, and its shards, by its name."""
        store = self.daemon.bot.store
        is_system = chat.startswith("bubbot/")
        names = shard_tapes(chat, count_shards(store)) if is_system else (self.daemon.bot.tape(f"tg:{chat}").name,)
        return [entry for found in await store.fetch([TapeQuery(name) for name in names]) for entry in found]

    async def facts(self, name: str, chat: str = GROUP) -> list[JsonObject]:
        """The data of the events of this name."""
        return [entry.data for entry in await self.entries(chat) if entry.name == name]

    def list_offered(self, place: int = -1) -> set[str]:
        """Return the names of the tools that a model was offered."""
        return {spec.name for spec in self.model.requests[place].tools}


@asynccontextmanager
async def family(
    home: Path,
    model: ScriptedModel,
    *sections: SettingsSection,
    agents: Mapping[str, Any] = AGENTS,
    tools: Sequence[Tool] = (),
    pages: Mapping[str, str] = MappingProxyType({}),
    toolbox: list[Tool] | None = None,
    busy: str = "queue",
    store: str = "",
    **limits: Any,
) -> AsyncIterator[Family]:
    """Run the bot. `sections` are those of other features, `limits` settings of `[agents]`, `pages` what addresses hold.
    All tools are put into `toolbox`. `store` is the address of a server with the tapes; by default they are in the home."""
    channel, done = KeptChannel("tg"), list[tuple[str, str]]()
    acting = acting_tools(lambda name, text: done.append((name, text)), lambda address: pages.get(address, "a page"))
    settings = make_settings(
        AgentsSettings.model_validate({**agents, **limits}),
        *sections,
        model=ModelSettings(name="scripted"),
        store=StoreSettings.model_validate({"url": store or None}),
        channels={
            "tg": {
                "kind": "kept",
                "owners": [OWNER],
                "members": [MEMBER],
                "groups": [GROUP],
                "respond_to_all": [GROUP],
                "debounce": 0,
                "messages_per_minute": 0,
                "messages_per_hour": 0,
                "busy": busy,
            }
        },
    )
    wrappers = PortWrappers(model=lambda _: model, tools=[*acting, *tools])
    build = build_session_deps

    def capture(*arguments: Any) -> Any:
        made = build(*arguments)
        if toolbox is not None:
            toolbox[:] = made[1]
        return made

    with (
        patch.object(ChannelFactory, "build_adapter", lambda *_arguments, **_more: channel),
        patch.object(bot_module, "build_session_deps", capture),
    ):
        async with open_daemon(settings, Home(home), wrappers=wrappers) as daemon:
            await daemon.bot.recover_all()
            yield Family(daemon, channel, model, done)
