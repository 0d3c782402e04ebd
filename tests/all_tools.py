"""Every tool of a bot with everything switched on."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from bubbot.app.daemon import open_daemon
from bubbot.app.own_features import own_sections
from bubbot.app.turns import build_session_deps
from bubbot.features.agents.settings import AgentsSettings
from bubbot.home import Home
from bubbot.settings.loader import ModelSettings
from bubbot.tool import Tool
from tests.made_settings import make_settings

ON = [
    *(
        section.model_validate({"enabled": True})
        for path, section in own_sections().items()
        if path.startswith("tools.") or path == "skills"
    ),
    AgentsSettings.model_validate({"rosi": {}}),
]
"""The sections of the tools that are off by default; without an agent there is none for orders."""


@cache
def all_tools() -> tuple[Tool, ...]:
    """Open a daemon in a home of its own and return what its turns have."""
    made: list[tuple[Tool, ...]] = []

    def capture(*arguments: Any) -> Any:
        built = build_session_deps(*arguments)
        made.append(tuple(built[1]))
        return built

    async def run(folder: Path) -> None:
        running: Any = object()  # nobody changes settings
        settings = make_settings(*ON, model=ModelSettings(name="scripted"))
        async with open_daemon(settings, Home(folder / "home"), running=running):
            pass

    with TemporaryDirectory() as folder, patch("bubbot.app.bot.build_session_deps", capture):
        asyncio.run(run(Path(folder)))
    return made[-1]
