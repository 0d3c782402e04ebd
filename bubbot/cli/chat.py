"""`bubbot chat`: the terminal or a pipe as a channel, in the foreground."""

from __future__ import annotations

import argparse
import asyncio
import sys

from bubbot.cli.common import Setup, session_id, setup
from bubbot.errors import ConfigError
from bubbot.wiring import open_app


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.description = "Talk with the bot: a line is a message, a line that starts with a comma is a command."
    parser.add_argument("--session", default="default", help="the conversation, such as work (default: default)")


def run(args: argparse.Namespace) -> int:
    """Runs until the end of the input or `,quit`."""
    asyncio.run(_chat(setup(args), session_id(args.session)))
    return 0


async def _chat(made: Setup, session: str) -> None:
    chat = session.partition(":")[2]
    if not chat:
        raise ConfigError("--session is empty; give the conversation a name, such as work")
    async with open_app(made.settings, made.home, channel_settings={"chat": chat}) as app:
        notice = app.model.traits.notice
        if notice:
            # In a pipe standard output carries answers and nothing else.
            print(notice, file=sys.stdout if sys.stdout.isatty() else sys.stderr, flush=True)
        await app.recover(session)
        await app.channel.run(app.gate.receive)
        await app.runtime.idle()
