"""A real bot at the terminal that exports rated turns and lets newer weights answer, and ends itself with SIGKILL at one point.

Arguments: HOME SCRIPT POINT; the script is not used. POINT is one of kill_child.py, or `name:before#N` or `name:after#N` around the naming of the Nth new file. Each
line of standard input is a message; what the bot says goes to standard output.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bubbot import new_files
from bubbot.app.bot import PortWrappers, open_app
from bubbot.features.learn.settings import LearnSettings
from bubbot.home import Home
from bubbot.models.scripted import ScriptedModel
from bubbot.settings.loader import ModelSettings
from tests.e2e.kill_child import Killer, KillingStore
from tests.made_settings import make_settings
from tests.weights import NEW, OLD, RIGHT, WRONG, find_weights_feature

AFTER = 2
SCRIPTS = {OLD: WRONG, NEW: RIGHT}


async def main(home: Path, point: str) -> None:
    """Answer what was left open, then each line, and do after each what is due beside the turns."""
    killer, give_name = Killer(point), new_files._give_name

    def give(unfinished: Path, path: Path) -> None:
        killer.at("name:before")
        give_name(unfinished, path)
        killer.at("name:after")

    new_files._give_name = give
    wrappers = PortWrappers(
        store=lambda store: KillingStore(store, killer, split_done=False),
        model=lambda model: ScriptedModel(SCRIPTS.get(model.name), name=model.name),
    )
    settings = make_settings(LearnSettings(after=AFTER), model=ModelSettings(name=OLD))
    said: dict[str, Any] = {"write": lambda text: print(text, flush=True)}
    async with open_app(settings, Home(home), channel_settings=said, wrappers=wrappers) as bot:
        feature = find_weights_feature(bot)
        await bot.recover_all()
        await bot.runtime.wait_idle()
        await feature.act()
        for line in sys.stdin:
            await bot.say(line.rstrip("\n"))
            await feature.act()


def run(arguments: Sequence[str]) -> int:
    """The process."""
    home, _script, point, *_ = arguments
    asyncio.run(main(Path(home), point))
    return 0
