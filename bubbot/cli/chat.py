"""`bubbot chat`: the terminal or a pipe as a channel, in the foreground."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from functools import partial

from bubbot.cli.chat_remote import chat_through_daemon, end_on_signals, notice_printer, pipe_settings, terminal_settings
from bubbot.cli.output import AnswerPrinter
from bubbot.cli.quarantine import read_quarantine_notice
from bubbot.cli.setup import CommandSetup, load_setup, session_id
from bubbot.errors import ModelError
from bubbot.server.client import run_on_home
from bubbot.texts import Texts
from bubbot.wiring.app import Bot, open_app

SIGNAL_CODE = 128
"""The offset of exit codes after a signal, as in a shell: 128 plus the number of the signal."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's help texts and options."""
    parser.description = "Talk to the bot: a line is a message; a line that starts with a comma is a command."
    parser.add_argument("--session", default="default", help="the conversation, such as work (default: default)")


def run(args: argparse.Namespace) -> int:
    """Run the chat until the end of the input or `,quit`; return 143 or 129 if SIGTERM or a hang-up ends a terminal."""
    setup, session, signals, printer = load_setup(args), session_id(args.session), list[int](), AnswerPrinter()
    try:
        asyncio.run(
            run_on_home(
                setup.home,
                lambda: _chat(setup, session, printer, signals),
                lambda address: chat_through_daemon(address, setup, session, printer, signals),
            )
        )
    except (asyncio.CancelledError, OSError):
        if not signals:
            raise
    if signal.SIGHUP in signals:  # the terminal is gone: discard the rest of the output
        null = os.open(os.devnull, os.O_WRONLY)
        for number in (1, 2):
            os.dup2(null, number)
    printer.check(session)
    return SIGNAL_CODE + signals[0] if signals else 0


async def _chat(setup: CommandSetup, session: str, printer: AnswerPrinter, signals: list[int]) -> None:
    interactive = terminal_settings(setup)
    settings = interactive or pipe_settings(setup, printer)
    if interactive:
        end_on_signals(signals)
    async with open_app(
        setup.settings, setup.home, channel_settings={"chat": session.partition(":")[2], **settings}
    ) as app:
        show_notice = notice_printer()
        if quarantine := await read_quarantine_notice(setup):
            show_notice(quarantine)
        if notice := await _notice(app, session):
            show_notice(notice)
        await app.warm_model(session)
        left_open = await app.recover(session)
        if left_open:
            taking_up = Texts(setup.settings.bot.language).say("taking_up", count=len(left_open))
            show_notice(taking_up)
        await app.channel.run(app.gate.receive)
        if interactive:  # let Ctrl-C stop the turns that are still running
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, partial(app.runtime.stop, session))
        await app.runtime.wait_idle()


async def _notice(app: Bot, session: str) -> str | None:
    try:
        return (await app.models.model_for_tape(app.tape(session))).traits.notice
    except ModelError as error:
        return str(error)
