"""`bubbot ask`: one turn."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bubbot.cli.chat_remote import make_adapter
from bubbot.cli.output import AnswerPrinter, escape_json, is_unicode, show, show_on_stderr
from bubbot.cli.quarantine import read_quarantine_notice
from bubbot.cli.setup import CommandSetup, load_setup, session_id
from bubbot.errors import ConfigError, ControlError, DeliveryFailed, OutputFailed
from bubbot.ports.channel import Inbound, Sender
from bubbot.server.chat import SentFiles
from bubbot.server.client import connect, run_on_home
from bubbot.server.codec import JsonObject, encode
from bubbot.server.peer import ControlPeer
from bubbot.tape.entry import timestamp
from bubbot.wiring.app import Bot, new_id, now, open_app


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's help texts and options."""
    parser.description = "Ask one question and print the answer. The exit code is 1 if the turn failed."
    parser.add_argument("text", help="what to say; - reads it from standard input")
    parser.add_argument("--session", default="default", help="the conversation it belongs to (default: default)")
    parser.add_argument("--json", action="store_true", help="print session, turn, status, text and entries as JSON")


def run(args: argparse.Namespace) -> int:
    """Run one turn; return 1 if it failed, else 0."""
    raw = sys.stdin.buffer.read() if args.text == "-" else args.text.encode("utf-8", "surrogateescape")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"the message is not valid UTF-8 (byte {error.start + 1}); nothing was sent") from error
    if not text.strip():
        raise ConfigError("the message is empty: give a text, such as bubbot ask hello")
    setup, session = load_setup(args), session_id(args.session)
    show("", end="", flush=True)  # detect a closed output before the question costs anything
    printer = AnswerPrinter()
    with _without_delivery_warnings():
        status = asyncio.run(
            run_on_home(
                setup.home,
                lambda: _ask(setup, session, text, printer, as_json=args.json),
                lambda address: _ask_running_bot(address, setup, session, text, printer, as_json=args.json),
            )
        )
    printer.check(session)
    return 1 if status == "failed" else 0


@contextmanager
def _without_delivery_warnings() -> Iterator[None]:
    """Hide the log's warning of an undelivered answer: this command prints its own sentence and exits with 1."""
    logger = logging.getLogger("bubbot.gateway.outbound")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


async def _ask(setup: CommandSetup, session: str, text: str, printer: AnswerPrinter, *, as_json: bool) -> str:
    chat = session.partition(":")[2]
    unprinted: list[str] = []

    def write(answer: str) -> None:
        if as_json and not unprinted:  # standard output is for the JSON object alone
            show_on_stderr(answer)
        else:
            printer(unprinted.pop() if unprinted else answer)

    settings = {"chat": chat, "write": write}
    async with open_app(setup.settings, setup.home, channel_settings=settings, hold=True) as app:
        await _show_quarantine(setup)
        for earlier in await app.recover(session, deliver=False):
            await earlier
        app.held_messages.clear()  # undelivered answers of earlier turns wait for the next chat
        result = await app.ask(_inbound(session, text))
        if as_json:
            ids = [entry.id for entry in result.merged_entries]
            ends = [ids[0], ids[-1]] if ids else []
            unprinted.append(_as_json(session, result.turn_id, result.status, result.text, ends))
        await _deliver(app, unprinted, printer)
        return result.status


def _inbound(session: str, text: str) -> Inbound:
    channel, _, chat = session.partition(":")
    return Inbound(channel, new_id(), chat, Sender("0", "owner"), text.rstrip("\r\n"), timestamp(now()))


async def _ask_running_bot(
    address: str, setup: CommandSetup, session: str, text: str, printer: AnswerPrinter, *, as_json: bool
) -> str:
    """Run the turn in the running bot: it sends the answer once merged; this process reports that it was printed."""
    printed: list[str] = []
    files = SentFiles()

    def write(line: str) -> None:
        if as_json:
            show_on_stderr(line)
        else:
            printer(line)

    channel = make_adapter(setup, session, {"write": write}, files)

    def show_result(result: JsonObject) -> None:
        line = str(result["text"])
        if as_json:
            line = _as_json(session, result["turn"], result["status"], line, result["entries"])
        printer(line)
        printed.append(line)

    async def answer(_peer: ControlPeer, do: str, body: JsonObject) -> JsonObject:
        if do != "part":
            raise ControlError(f"bubbot ask does not know {do!r}")
        try:
            with files.open_part(body) as part:
                if part.file:
                    await channel.send(part)
                else:
                    await asyncio.to_thread(show_result, body["result"])
        except (OSError, OutputFailed) as error:  # nobody else waits for the answer: this command reports the loss
            reason = error.reason if isinstance(error, OutputFailed) else error
            raise DeliveryFailed(f"standard output is gone ({reason})", permanent=True) from error
        return {}

    async with connect(address, answer) as peer:
        await _show_quarantine(setup)
        result = await peer.request("ask", {"inbound": encode(_inbound(session, text))})
        if not printed and printer.error is None and (as_json or result["text"]):
            with suppress(OutputFailed):  # reported at the end
                show_result(result)
    return str(result["status"])


async def _show_quarantine(setup: CommandSetup) -> None:
    if notice := await read_quarantine_notice(setup):
        show_on_stderr(notice)


async def _deliver(app: Bot, unprinted: list[str], printer: AnswerPrinter) -> None:
    """Print the answer and record its delivery."""
    for intent in app.held_messages:
        await app.deliverer.deliver(intent)
    with suppress(OutputFailed):  # reported at the end
        while unprinted:  # a silent turn has no answer to deliver
            printer(unprinted.pop())


def _as_json(session: str, turn: str, status: str, text: str, entries: list[int]) -> str:
    data = {"session": session, "turn": turn, "status": status, "text": text, "entries": entries}
    return escape_json(json.dumps(data, ensure_ascii=not is_unicode()))
