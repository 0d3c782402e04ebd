"""`bubbot reload`: the running bot takes over what was changed in its settings."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from bubbot.cli.output import show
from bubbot.cli.setup import CommandSetup, setup
from bubbot.control.client import beside, connected
from bubbot.control.codec import JsonObject
from bubbot.errors import ControlError
from bubbot.home import WriterLock

RELOAD_TIMEOUT_SECONDS = 120.0
"""Seconds: turns of a channel that is taken away may take thirty, and platforms are asked about new tokens."""


def configure(parser: argparse.ArgumentParser) -> None:
    """It has no options."""
    parser.description = (
        "Tell the running bot to read its settings again. They are checked first: where one is wrong, the bot goes on "
        "with those it has, and this command says what is wrong. Turns under way end as they began. SIGHUP does the "
        "same. Every change is a fact on the tape bubbot/config."
    )
    parser.epilog = "example: bubbot reload"


def run(args: argparse.Namespace) -> int:
    """Prints what was taken over."""
    asyncio.run(_ask(setup(args)))
    return 0


async def _ask(made: CommandSetup) -> None:
    async def nobody_runs() -> None:
        made.home.ensure()
        with WriterLock(made.home):  # else somebody else has it, who is asked then
            raise ControlError("no bot runs for this home: it reads the settings when it starts")

    async def in_the_bot(address: str) -> None:
        async with connected(address) as peer:
            _print(await peer.request("reload", {}, timeout=RELOAD_TIMEOUT_SECONDS))

    await beside(made.home, nobody_runs, in_the_bot)


def _print(told: JsonObject) -> None:
    lines = [
        *_line("Taken over", told["now"]),
        *_line("Takes effect at the next start", told["later"]),
        *_line("Channels begun anew", told["begun"]),
        *_line("Channels ended", told["ended"]),
    ]
    show("\n".join(lines) or "Nothing has changed.")


def _line(what: str, names: Sequence[str]) -> list[str]:
    return [f"{what}: {', '.join(names)}."] if names else []
