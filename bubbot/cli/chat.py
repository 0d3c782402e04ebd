"""`bubbot chat`: the terminal or a pipe as a channel, in the foreground."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from functools import partial

from bubbot.cli.chat_remote import chat_with_the_bot, end_on_signals, notices, pipe, terminal
from bubbot.cli.output import AnswerPrinter
from bubbot.cli.quarantine import quarantine_line
from bubbot.cli.setup import CommandSetup, session_id, setup
from bubbot.control.client import beside
from bubbot.errors import ModelError
from bubbot.texts import Texts
from bubbot.wiring.app import Bot, open_app

SIGNAL_CODE = 128
"""What a shell adds to the number of the signal that ended a command."""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.description = "Talk with the bot: a line is a message, a line that starts with a comma is a command."
    parser.add_argument("--session", default="default", help="the conversation, such as work (default: default)")


def run(args: argparse.Namespace) -> int:
    """Runs until the end of the input or `,quit`; 143 and 129 where a signal or a hang-up ended a terminal."""
    made, session, ended, printer = setup(args), session_id(args.session), list[int](), AnswerPrinter()
    try:
        asyncio.run(
            beside(
                made.home,
                lambda: _chat(made, session, printer, ended),
                lambda at: chat_with_the_bot(at, made, session, printer, ended),
            )
        )
    except (asyncio.CancelledError, OSError):
        if not ended:
            raise
    if signal.SIGHUP in ended:  # what is left to write has nowhere to go
        lost = os.open(os.devnull, os.O_WRONLY)
        for number in (1, 2):
            os.dup2(lost, number)
    printer.check(session)
    return SIGNAL_CODE + ended[0] if ended else 0


async def _chat(made: CommandSetup, session: str, printer: AnswerPrinter, ended: list[int]) -> None:
    interactive = terminal(made)
    given = interactive or pipe(made, printer)
    if interactive:
        end_on_signals(ended)
    async with open_app(made.settings, made.home, channel_settings={"chat": session.partition(":")[2], **given}) as app:
        aside = notices()
        if held := await quarantine_line(made):
            aside(held)
        if notice := await _notice(app, session):
            aside(notice)
        await app.warm(session)
        left_open = await app.recover(session)
        if left_open:
            taking_up = Texts(made.settings.bot.language).say("taking_up", count=len(left_open))
            aside(taking_up)
        await app.channel.run(app.gate.receive)
        if interactive:  # what is still under way can be stopped, too
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, partial(app.runtime.stop, session))
        await app.runtime.idle()


async def _notice(app: Bot, session: str) -> str | None:
    try:
        return (await app.models.on(app.tape(session))).traits.notice
    except ModelError as error:
        return str(error)
