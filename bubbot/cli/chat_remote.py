"""`bubbot chat` while a bot runs for this home: the adapter is in this process, everything else in the bot's."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from bubbot import plugins
from bubbot.cli.output import AnswerPrinter, show, show_on_stderr
from bubbot.cli.quarantine import read_quarantine_notice
from bubbot.cli.setup import CommandSetup
from bubbot.ports.channel import Channel, ChannelOptions, CommandInfo, StopRequest, no_commands
from bubbot.server.chat import ChatEnd, SentFiles
from bubbot.server.client import connect, raise_when_closed
from bubbot.settings.environment import terminal_style
from bubbot.tape.entry import timestamp
from bubbot.texts import Texts
from bubbot.wiring.app import new_id, now


async def chat_through_daemon(
    address: str, setup: CommandSetup, session: str, printer: AnswerPrinter, signals: list[int]
) -> None:
    """Run the chat through the running bot until the end of the input, then wait for open answers.

    Args:
        address: the control socket of the running bot.
        setup: the settings and the home of this command.
        session: the session id.
        printer: prints the answers if this is a pipe.
        signals: receives the number of the signal that ends the chat, if one does.
    """
    interactive = terminal_settings(setup)
    settings = interactive or pipe_settings(setup, printer)
    if interactive:
        end_on_signals(signals)
    end = ChatEnd(session)
    async with connect(address, end.on_request, end.on_notice) as peer, asyncio.TaskGroup() as group:
        watching = group.create_task(raise_when_closed(peer))
        show_notice = notice_printer()
        channel = make_adapter(setup, session, settings, end.files, lambda: end.commands)
        if quarantine := await read_quarantine_notice(setup):
            show_notice(quarantine)
        if notice := await end.open(peer, channel):
            show_notice(notice)
        if waiting := await end.deliver_pending():
            taking_up = Texts(setup.settings.bot.language).say("taking_up", count=waiting)
            show_notice(taking_up)
        await channel.run(end.receive)
        if interactive:  # let Ctrl-C stop the turns that are still running
            name, _, chat = session.partition(":")
            stops: set[asyncio.Task[None]] = set()
            asyncio.get_running_loop().add_signal_handler(
                signal.SIGINT, lambda: stops.add(group.create_task(end.receive(StopRequest(name, chat))))
            )
        await end.wait_until_idle()
        watching.cancel()


def make_adapter(
    setup: CommandSetup,
    session: str,
    settings: Mapping[str, Any],
    files: SentFiles,
    commands: Callable[[], Sequence[CommandInfo]] = no_commands,
) -> Channel:
    """Make the adapter for this terminal or pipe, as the wiring makes it.

    Args:
        setup: the settings and the home of this command.
        session: the session id; its channel names the adapter.
        settings: keys that override those of the configuration.
        files: reads and stores the files that messages carry.
        commands: lists the commands to complete.
    """
    name, _, chat = session.partition(":")
    table = {**setup.settings.channels.get(name, {}), "chat": chat, **settings}
    kind = str(table.pop("kind", name))
    options = ChannelOptions(
        name, setup.home.path, lambda: timestamp(now()), new_id, table, files.blob, list_commands=commands
    )
    channel: Channel = plugins.load("bubbot.channels", kind)(options)
    return channel


def terminal_settings(setup: CommandSetup) -> dict[str, Any]:
    """Choose the settings of the line editor; none for a pipe, or a terminal that can only print."""
    style = terminal_style()
    if not _is_ours(setup) or style == "dumb" or not (sys.stdin.isatty() and _prints_to_terminal()):
        return {}
    return {"kind": "terminal", "colour": style == "colour"}


def pipe_settings(setup: CommandSetup, printer: AnswerPrinter) -> dict[str, Any]:
    """Choose the settings of the plain channel, which prints with `printer`; none if another adapter is configured."""
    return {"write": printer} if _is_ours(setup) else {}


def notice_printer() -> Callable[[str], None]:
    """Choose the output of notices: the standard output of a pipe carries only answers."""
    return partial(show, flush=True) if _prints_to_terminal() else show_on_stderr


def _is_ours(setup: CommandSetup) -> bool:
    return bool(setup.settings.channels.get("stdin", {}).get("kind", "stdin") == "stdin")


def _prints_to_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def end_on_signals(signals: list[int]) -> None:
    """Restore the terminal when a signal ends the chat; the next chat resumes the turn that was running."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def end(number: int) -> None:
        if task is not None and not signals:
            signals.append(number)
            task.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end, number)
