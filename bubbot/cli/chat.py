"""`bubbot chat`: the terminal or a pipe as a channel, in the foreground."""

from __future__ import annotations

import argparse
import asyncio
import sys

from bubbot import texts
from bubbot.cli.setup import Setup, session_id, setup
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
    async with open_app(made.settings, made.home, channel_settings={"chat": chat}) as app:
        # In a pipe standard output carries answers and nothing else.
        aside = sys.stdout if sys.stdout.isatty() else sys.stderr
        if app.model.traits.notice:
            print(app.model.traits.notice, file=aside, flush=True)
        app.warm()
        left_open = await app.recover(session)
        if left_open:
            print(texts.taking_up(len(left_open)), file=aside, flush=True)
        await app.channel.run(app.gate.receive)
        await app.runtime.idle()
