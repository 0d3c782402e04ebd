"""`bubbot chat`: the terminal or a pipe as a channel, in the foreground."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from bubbot.arguments.fields import Args
from bubbot.cli.chat.connection import with_chat
from bubbot.cli.invocation import Invocation
from bubbot.cli.local_command import local_command
from bubbot.cli.output import AnswerPrinter, show, show_on_stderr
from bubbot.cli.quarantine import read_quarantine_notice
from bubbot.cli.setup import CommandSetup, load_setup, session_id
from bubbot.server.chat import ChatConnection
from bubbot.settings.environment import terminal_style
from bubbot.shell_command import Argument, CommandGroup
from bubbot.texts import Texts

SIGNAL_CODE = 128
"""The offset of exit codes after a signal, as in a shell: 128 plus the number of the signal."""


class ChatArgs(Args, frozen=True):
    """The arguments of `bubbot chat`."""

    session: Annotated[str, Argument("the conversation, such as work (default: default)")] = "default"


@local_command("chat")
def chat(invocation: Invocation, args: ChatArgs) -> int:
    """Talk to the bot in this terminal.

    Talk to the bot: a line is a message; a line that starts with a comma is a command.
    """
    setup, session = load_setup(invocation), session_id(args.session)
    signals, printer = list[int](), AnswerPrinter()
    try:
        asyncio.run(_chat(setup, session, printer, signals))
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
    """Run the chat until the end of the input, then wait for open answers.

    Args:
        printer: prints the answers if this is a pipe.
        signals: receives the number of the signal that ends the chat, if one does.
    """
    interactive = terminal_settings(setup)
    if interactive:
        end_on_signals(signals)

    async def talk(connection: ChatConnection) -> None:
        show_notice = _notice_printer()
        if quarantine := await read_quarantine_notice(setup):
            show_notice(quarantine)
        if notice := await connection.open():
            show_notice(notice)
        if waiting := await connection.deliver_pending():
            show_notice(Texts(setup.settings.bot.language).say("taking_up", count=waiting))
        await connection.run()
        if interactive:  # let Ctrl-C stop the turns that are still running
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, connection.stop)
        await connection.wait_until_idle()

    settings = interactive or _pipe_settings(setup, printer)
    await with_chat(setup, session, settings, talk, is_shared=_is_ours(setup))


def terminal_settings(setup: CommandSetup) -> dict[str, Any]:
    """Choose the settings of the line editor; none for a pipe or a terminal that can only print."""
    style = terminal_style()
    if not _is_ours(setup) or setup.is_plain or not (sys.stdin.isatty() and _prints_to_terminal()):
        return {}
    return {"kind": "terminal", "colour": style == "colour"}


def _pipe_settings(setup: CommandSetup, printer: AnswerPrinter) -> dict[str, Any]:
    """Choose the settings of the plain channel, which prints with `printer`; none if another adapter is configured."""
    return {"write": printer} if _is_ours(setup) else {}


def _notice_printer() -> Callable[[str], None]:
    """Choose the output of notices: a pipe's standard output gets only answers."""
    return partial(show, flush=True) if _prints_to_terminal() else show_on_stderr


def _is_ours(setup: CommandSetup) -> bool:
    return bool(setup.settings.channels.get("stdin", {}).get("kind", "stdin") == "stdin")


def _prints_to_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def end_on_signals(signals: list[int]) -> None:
    """Restore the terminal when a signal ends the chat. The next chat resumes the running turn."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def end(number: int) -> None:
        if task is not None and not signals:
            signals.append(number)
            task.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end, number)


CHAT_COMMANDS = CommandGroup("chat", (chat,))
