"""`bubbot ask`: one turn."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys

from bubbot.channel import Inbound, Sender
from bubbot.cli.setup import Setup, session_id, setup
from bubbot.errors import ConfigError
from bubbot.tape.entry import timestamp
from bubbot.turn import TurnResult
from bubbot.wiring import App, new_id, now, open_app


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.description = "Ask one question and print the answer. The exit code is 1 where the turn failed."
    parser.add_argument("text", help="what to say; - reads it from standard input")
    parser.add_argument("--session", default="default", help="the conversation it belongs to (default: default)")
    parser.add_argument("--json", action="store_true", help="print session, turn, status, text and entries as JSON")


def run(args: argparse.Namespace) -> int:
    """Runs one turn; 0 where it was answered."""
    raw = sys.stdin.buffer.read() if args.text == "-" else args.text.encode("utf-8", "surrogateescape")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"the message is not valid UTF-8 (byte {error.start + 1}); nothing was sent") from error
    if not text.strip():
        raise ConfigError("the message is empty; say something, such as bubbot ask hello")
    result = asyncio.run(_ask(setup(args), session_id(args.session), text, as_json=args.json))
    return 1 if result.status == "failed" else 0


async def _ask(made: Setup, session: str, text: str, *, as_json: bool) -> TurnResult:
    chat = session.partition(":")[2]
    shown: list[str] = []
    settings = {"chat": chat, "write": lambda answer: _print(shown.pop() if shown else answer)}
    async with open_app(made.settings, made.home, channel_settings=settings, hold=True) as app:
        for earlier in await app.recover(session, deliver=False):
            await earlier
        app.held.clear()  # what is owed from before waits for the next chat
        sender = Sender("0", "owner")
        inbound = Inbound(app.channel.name, new_id(), chat, sender, text.rstrip("\r\n"), timestamp(now()))
        result = await app.ask(inbound)
        if as_json:
            shown.append(_as_json(session, result))
        await _deliver(app, shown)
        return result


async def _deliver(app: App, shown: list[str]) -> None:
    """Prints the answer and records that it was delivered."""
    for intent in app.held:
        await app.deliverer.deliver(intent)
    while shown:  # a silent turn has no answer to deliver
        _print(shown.pop())


def _as_json(session: str, result: TurnResult) -> str:
    ids = [entry.id for entry in result.merged]
    data = {
        "session": session,
        "turn": result.turn,
        "status": result.status,
        "text": result.text,
        "entries": [ids[0], ids[-1]] if ids else [],
    }
    return json.dumps(data, ensure_ascii=False)


def _print(text: str) -> None:
    sys.stdout.buffer.write(text.encode(errors="replace") + b"\n")
    sys.stdout.buffer.flush()
