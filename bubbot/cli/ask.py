"""`bubbot ask`: one turn."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bubbot.app.tapes import new_id, now
from bubbot.cli.chat_connection import with_chat
from bubbot.cli.output import AnswerPrinter, is_unicode, show, show_on_stderr
from bubbot.cli.quarantine import read_quarantine_notice
from bubbot.cli.setup import CommandSetup, load_setup, session_id
from bubbot.errors import ConfigError, OutputFailed
from bubbot.ports.channel import Inbound, Sender
from bubbot.ports.text import escape_json
from bubbot.server.chat import ChatConnection
from bubbot.server.remote import AskResult
from bubbot.tape.entry import timestamp


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
    return ask(load_setup(args), session_id(args.session), text, as_json=args.json)


def ask(setup: CommandSetup, session: str, text: str, *, as_json: bool = False) -> int:
    """Run one turn and print its answer; return 1 if it failed, else 0."""
    show("", end="", flush=True)  # detect a closed output before the question costs anything
    printer = AnswerPrinter()
    with _without_delivery_warnings():
        status = asyncio.run(_ask(setup, session, text, printer, as_json=as_json))
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
    """Run one turn, print its answer, and return how it ended."""
    printed: list[AskResult] = []

    def show_result(result: AskResult, answer: str) -> None:
        printer(_as_json(session, result) if as_json else answer)
        printed.append(result)

    async def talk(chat: ChatConnection) -> str:
        if notice := await read_quarantine_notice(setup):
            show_on_stderr(notice)
        result = await chat.ask(_inbound(session, text), show_result)
        if not printed and printer.error is None and (as_json or result.text):
            with suppress(OutputFailed):  # reported at the end
                show_result(result, result.text)
        return result.status

    # Standard output is for the JSON object alone.
    return await with_chat(setup, session, {"write": show_on_stderr if as_json else printer}, talk, hold=True)


def _inbound(session: str, text: str) -> Inbound:
    channel, _, chat = session.partition(":")
    return Inbound(channel, new_id(), chat, Sender("0", "owner"), text.rstrip("\r\n"), timestamp(now()))


def _as_json(session: str, result: AskResult) -> str:
    data = {
        "session": session,
        "turn": result.turn,
        "status": result.status,
        "text": result.text,
        "entries": list(result.entries),
    }
    return escape_json(json.dumps(data, ensure_ascii=not is_unicode()))
