"""`bubbot chat` where a bot runs for this home: the adapter is here, everything else there."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from bubbot import plugins
from bubbot.cli.output import AnswerPrinter, show, show_aside
from bubbot.cli.quarantine import quarantine_line
from bubbot.cli.setup import CommandSetup
from bubbot.control.chat import ChatEnd, SentFiles
from bubbot.control.client import connected, until_gone
from bubbot.ports.channel import Channel, ChannelOptions, CommandInfo, StopRequest, no_commands
from bubbot.settings.environment import terminal_style
from bubbot.tape.entry import timestamp
from bubbot.texts import Texts
from bubbot.wiring.app import new_id, now


async def chat_with_the_bot(
    address: str, made: CommandSetup, session: str, printer: AnswerPrinter, ended: list[int]
) -> None:
    """Talks until the end of the input, and waits for what is still to be answered."""
    interactive = terminal(made)
    given = interactive or pipe(made, printer)
    if interactive:
        end_on_signals(ended)
    end = ChatEnd(session)
    async with connected(address, end.answer, end.heard) as peer, asyncio.TaskGroup() as group:
        watching = group.create_task(until_gone(peer))
        aside = notices()
        channel = adapter(made, session, given, end.files, lambda: end.commands)
        if held := await quarantine_line(made):
            aside(held)
        if notice := await end.opened(peer, channel):
            aside(notice)
        if waiting := await end.owed():
            taking_up = Texts(made.settings.bot.language).say("taking_up", count=waiting)
            aside(taking_up)
        await channel.run(end.receive)
        if interactive:  # what is still under way can be stopped, too
            name, _, chat = session.partition(":")
            stops: set[asyncio.Task[None]] = set()
            asyncio.get_running_loop().add_signal_handler(
                signal.SIGINT, lambda: stops.add(group.create_task(end.receive(StopRequest(name, chat))))
            )
        await end.idle()
        watching.cancel()


def adapter(
    made: CommandSetup,
    session: str,
    given: Mapping[str, Any],
    files: SentFiles,
    commands: Callable[[], Sequence[CommandInfo]] = no_commands,
) -> Channel:
    """The adapter that this terminal or pipe wants, as the wiring makes it: `given` goes before the configured keys."""
    name, _, chat = session.partition(":")
    table = {**made.settings.channels.get(name, {}), "chat": chat, **given}
    kind = str(table.pop("kind", name))
    options = ChannelOptions(
        name, made.home.path, lambda: timestamp(now()), new_id, table, files.blob, commands=commands
    )
    channel: Channel = plugins.load("bubbot.channels", kind)(options)
    return channel


def terminal(made: CommandSetup) -> dict[str, Any]:
    """The settings that choose the line editor; none where this is a pipe, or a terminal that can only print."""
    style = terminal_style()
    if not _is_ours(made) or style == "dumb" or not (sys.stdin.isatty() and _prints_to_terminal()):
        return {}
    return {"kind": "terminal", "colour": style == "colour"}


def pipe(made: CommandSetup, printer: AnswerPrinter) -> dict[str, Any]:
    """Choose the settings of the plain channel, whose answers `printer` prints; none if another adapter is configured."""
    return {"write": printer} if _is_ours(made) else {}


def notices() -> Callable[[str], None]:
    """Choose where notices go: in a pipe standard output carries answers and nothing else."""
    return partial(show, flush=True) if _prints_to_terminal() else show_aside


def _is_ours(made: CommandSetup) -> bool:
    return bool(made.settings.channels.get("stdin", {}).get("kind", "stdin") == "stdin")


def _prints_to_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def end_on_signals(ended: list[int]) -> None:
    """A terminal is left as it was found, whatever ends the chat; the turn under way is taken up by the next one."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def end(number: int) -> None:
        if task is not None and not ended:
            ended.append(number)
            task.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end, number)
