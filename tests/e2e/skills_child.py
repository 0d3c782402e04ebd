"""A real bot at the terminal that gets a skill, and ends itself with SIGKILL at one point.

Arguments: HOME SCRIPT POINT; the script is not used. POINT is one of kill_child.py, or `name:before#N` or `name:after#N` around the naming of the Nth new
file, and the same for `folder`, around the naming of the folder. Each line of standard input is said to the bot, but `add FOLDER` adds a skill as a
shell does, and `yes` answers the newest card.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bubbot import new_files
from bubbot.app.bot import PortWrappers, open_app
from bubbot.errors import CommandRefused
from bubbot.features.skills.settings import SkillsSettings
from bubbot.home import Home
from bubbot.models.scripted import ScriptedModel
from bubbot.settings.loader import ModelSettings
from tests.approving import card_ids
from tests.callers import by
from tests.callers import run as run_command
from tests.e2e.kill_child import Killer, KillingStore
from tests.made_settings import make_settings

BODY = "Say their name."
SCRIPT = {
    "rules": [
        {
            "when": "remember",
            "steps": [
                {
                    "calls": [
                        {
                            "name": "skill_propose",
                            "arguments": {"name": "greet", "description": "Greet guests.", "body": BODY},
                        }
                    ]
                },
                {"text": "I have asked."},
            ],
        }
    ],
    "default": [{"text": "It is done."}],
}


def wrap_names(killer: Killer) -> None:
    """End the process around the naming of files and of the folder."""
    give_name, rename = new_files._give_name, Path.rename

    def give(unfinished: Path, path: Path) -> None:
        killer.at("name:before")
        give_name(unfinished, path)
        killer.at("name:after")

    def name_folder(path: Path, target: Any) -> Path:
        killer.at("folder:before")
        named = rename(path, target)
        killer.at("folder:after")
        return named

    new_files._give_name = give
    Path.rename = name_folder  # type: ignore[assignment,method-assign]


async def main(home: Path, point: str) -> None:
    """Answer what was left open, then each line."""
    killer, said = Killer(point), list[str]()
    wrap_names(killer)
    wrappers = PortWrappers(
        store=lambda store: KillingStore(store, killer, split_done=False), model=lambda _: ScriptedModel(SCRIPT)
    )
    settings = make_settings(SkillsSettings(enabled=True), model=ModelSettings(name="scripted"))

    def write(text: str) -> None:
        said.append(text)
        print(text, flush=True)

    async with open_app(settings, Home(home), channel_settings={"write": write}, wrappers=wrappers) as bot:
        await bot.recover_all()
        await bot.runtime.wait_idle()
        (feature,) = [each for each in bot.features.lasting if each.name == "skills"]
        service: Any = feature.services[0]
        for line in sys.stdin.read().splitlines():
            if line.startswith("add "):
                await run_command(service.add, by("terminal"), line.removeprefix("add "), mine=True)
                continue
            if line == "yes":
                shown = (home / "printed").read_text() if not said else "\n".join(said)
                try:
                    await bot.say(f",approve {card_ids([shown])[-1]}")
                except (CommandRefused, IndexError):
                    continue
                continue
            await bot.say(line)
        await bot.runtime.wait_idle()


def run(arguments: Sequence[str]) -> int:
    """The process."""
    home, _script, point, *_ = arguments
    asyncio.run(main(Path(home), point))
    return 0
